package driver_test

import (
	"context"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver/drivertest"
)

func TestEvents(t *testing.T) {
	drivertest.CheckLeaks(t)
	d := newFake(t)
	n := openFake(t, d)
	got := make(chan descriptors.Event, 8)
	n.OnEvent(func(e descriptors.Event) {
		// A handler may use the NIC.
		if _, err := n.CreatePtag(context.Background()); err != nil {
			t.Error(err)
		}
		got <- e
	})
	for i := range uint32(3) {
		d.with(func() { d.event(descriptors.Event{Code: descriptors.EventLink, CQ: descriptors.NoCQ, Detail: i}) })
	}
	for i := range uint32(3) {
		select {
		case e := <-got:
			if e.Code != descriptors.EventLink || e.Detail != i {
				t.Errorf("event %d: %+v", i, e)
			}
		case <-time.After(patience):
			t.Fatal("no event")
		}
	}
}

// TestEventFlood: more events than a slow handler takes are counted.
func TestEventFlood(t *testing.T) {
	drivertest.CheckLeaks(t)
	d := newFake(t)
	n := openFake(t, d)
	block := make(chan struct{})
	n.OnEvent(func(descriptors.Event) { <-block })
	defer close(block)
	for range 3000 {
		d.with(func() { d.event(descriptors.Event{Code: descriptors.EventReceiveQueueEmpty, Endpoint: 0xffffffff}) })
		n.Poll()
	}
	h, err := n.Health(contextFor(t))
	if err != nil || h.EventsLost < 1000 {
		t.Errorf("%d events lost, %v", h.EventsLost, err)
	}
	n.OnEvent(nil)
}
