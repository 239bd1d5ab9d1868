package events_test

import (
	"slices"
	"testing"

	"github.com/trapeze-nic/trapeze/lab/internal/events"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// TestOrder: events happen by time, rank and order of setting; one that is set again moves, one may set others for now.
func TestOrder(t *testing.T) {
	var c events.Clock
	var did []string
	note := func(name string) func() { return func() { did = append(did, name) } }
	moved, dropped := events.NewEvent(0, note("moved")), events.NewEvent(0, note("dropped"))
	c.Set(moved, 1)
	c.Set(dropped, 2)
	c.At(5, 1, note("late rank"))
	c.At(5, 0, note("first"))
	c.At(5, 0, note("second"))
	c.At(3, 7, func() { c.At(c.Now, 0, note("now")) })
	c.Set(moved, 9)
	c.Set(dropped, events.Never)
	var times []profile.Time
	for c.Next() {
		times = append(times, c.Now)
	}
	if !slices.Equal(did, []string{"now", "first", "second", "late rank", "moved"}) || !slices.Equal(times, []profile.Time{3, 3, 5, 5, 5, 9}) {
		t.Errorf("%q at %v", did, times)
	}
}
