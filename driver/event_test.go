package driver_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/outputtest"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

func TestEvents(t *testing.T) {
	checkLeaks(t)
	d := newFake(t)
	n := openFake(t, d)
	got := make(chan datasheet.Event, 8)
	n.OnEvent(func(e datasheet.Event) {
		// A handler may use the NIC.
		if _, err := n.CreatePtag(context.Background()); err != nil {
			t.Error(err)
		}
		got <- e
	})
	for i := range uint32(3) {
		d.with(func() { d.event(datasheet.Event{Code: datasheet.EventLink, CQ: datasheet.NoCQ, Detail: i}) })
	}
	for i := range uint32(3) {
		select {
		case e := <-got:
			if e.Code != datasheet.EventLink || e.Detail != i {
				t.Errorf("event %d: %+v", i, e)
			}
		case <-time.After(timeout):
			t.Fatal("no event")
		}
	}
}

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
	n, err := driver.New(contextFor(t), d, driver.Options{Logger: slog.New(slog.NewTextHandler(&log, nil)), CommandTimeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
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
	if err := n.Close(); err != nil {
		t.Error(err)
	}
	most := 2 + int(time.Since(began)/time.Second) // with that of Close
	got := log.String()
	if lines := strings.Count(got, "\n"); lines < 1 || lines > most || !strings.Contains(got, "count=1\n") {
		t.Errorf("%d lines, want 1 to %d:\n%s", lines, most, got)
	}
}

// TestEventLogLevels: what belongs to every program is a matter of debugging, what
// costs data is an error.
func TestEventLogLevels(t *testing.T) {
	checkLeaks(t)
	d := newFake(t)
	var log outputtest.Buffer
	n, err := driver.New(contextFor(t), d, driver.Options{CommandTimeout: timeout,
		Logger: slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{Level: slog.LevelDebug}))})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		event datasheet.Event
		want  []string
	}{
		{datasheet.Event{Code: datasheet.EventLink, CQ: datasheet.NoCQ, Detail: 1}, []string{"level=DEBUG", "detail=1"}},
		{datasheet.Event{Code: datasheet.EventLink, CQ: datasheet.NoCQ}, []string{"level=DEBUG", "detail=0"}},
		{datasheet.Event{Code: datasheet.EventConnectionLost, CQ: datasheet.NoCQ, Endpoint: 5}, []string{"level=DEBUG", "vi=5"}},
		{datasheet.Event{Code: datasheet.EventConnectionLost, CQ: datasheet.NoCQ, Endpoint: 6, Detail: 35}, []string{"level=WARN", "vi=6", "detail=35"}},
		{datasheet.Event{Code: datasheet.EventCQOverrun, CQ: 3}, []string{"level=ERROR", "cq=3"}},
	} {
		d.with(func() { d.event(c.event) })
		n.Poll()
		line := ""
		waittest.Until(t, "the event is logged", func() bool {
			all := strings.Split(strings.TrimSpace(log.String()), "\n")
			line = all[len(all)-1]
			return strings.Contains(line, c.want[1]) && strings.Contains(line, c.want[0])
		})
		for _, want := range append(c.want, "device=fake:", c.event.Code.String()) {
			if !strings.Contains(line, want) {
				t.Errorf("%+v: logged %q, want %q", c.event, line, want)
			}
		}
	}
	if err := n.Close(); err != nil {
		t.Error(err)
	}
}
