package events

import (
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

func dropped(endpoint uint32) datasheet.Event {
	return datasheet.Event{Code: datasheet.EventReceiveQueueEmpty, Endpoint: endpoint}
}

func TestOneLineASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l limiter
		var counts []uint64
		for range 3000 {
			if n := l.count(dropped(7)); n > 0 {
				counts = append(counts, n)
			}
			time.Sleep(700 * time.Microsecond)
		}
		time.Sleep(time.Minute)
		if counts = append(counts, l.count(dropped(7))); !slices.Equal(counts, []uint64{1, 1429, 1429, 142}) {
			t.Errorf("lines for %v events", counts)
		}
	})
}

func TestKindsAreApart(t *testing.T) {
	var l limiter
	lost := datasheet.Event{Code: datasheet.EventConnectionLost, Endpoint: 1}
	var counts []uint64
	for _, e := range []datasheet.Event{dropped(1), dropped(2), {Code: datasheet.EventPostDescriptor, Endpoint: 1}, lost, lost, dropped(1)} {
		counts = append(counts, l.count(e))
	}
	should.Same(t, counts, []uint64{1, 1, 1, 1, 1, 0}, "lines for events")
	for i := range uint32(3 * mostKinds) {
		l.count(dropped(i))
	}
	if len(l) > mostKinds {
		t.Errorf("it remembers %d kinds", len(l))
	}
}
