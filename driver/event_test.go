package driver_test

import (
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/outputtest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestEventFlood: more events than a slow handler takes are counted.
func TestEventFlood(t *testing.T) {
	checkLeaks(t)
	d := newFake(t)
	n := openFake(t, d)
	block := make(chan struct{})
	n.OnEvent(func(datasheet.Event) { <-block })
	defer close(block)
	for range 6000 { // if Poll finds the admin queue busy it takes none of them
		d.with(func() { d.event(datasheet.Event{Code: datasheet.EventReceiveQueueEmpty, Endpoint: 0xffffffff}) })
		n.Poll()
	}
	h, err := n.Health(contextFor(t))
	if err != nil || h.EventsLost < 1000 {
		t.Errorf("%d events lost, %v", h.EventsLost, err)
	}
	n.OnEvent(nil)
}

// TestEventsAreLoggedSeldom: messages that nobody takes, as many as a peer likes, are
// a line a second in the log.
func TestEventsAreLoggedSeldom(t *testing.T) {
	checkLeaks(t)
	d := newFake(t)
	var log outputtest.Buffer
	n := open(t, d, driver.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), CommandTimeout: timeout})
	began := time.Now()
	for range 500 {
		d.with(func() {
			d.event(datasheet.Event{Code: datasheet.EventReceiveQueueEmpty, Endpoint: 1, CQ: datasheet.NoCQ})
		})
		n.Poll()
	}
	for range 10 { // the goroutine that logs is slower than we are
		time.Sleep(time.Millisecond)
	}
	should.OK(t, n.Close())
	most := 2 + int(time.Since(began)/time.Second) // with that of Close
	got := log.String()
	if lines := strings.Count(got, "\n"); lines < 1 || lines > most || !strings.Contains(got, "count=1\n") {
		t.Errorf("%d lines, want 1 to %d:\n%s", lines, most, got)
	}
}
