package eventlog_test

import (
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/trapeze-nic/trapeze/driver/internal/eventlog"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

func dropped(endpoint uint32) datasheet.Event {
	return datasheet.Event{Code: datasheet.EventReceiveQueueEmpty, Endpoint: endpoint}
}

// lines notes what is written, and of which event.
type lines struct {
	mu     sync.Mutex
	counts []uint64
	events []int
}

func (n *lines) event(i int) func(uint64) {
	return func(count uint64) {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.counts, n.events = append(n.counts, count), append(n.events, i)
	}
}

func (n *lines) mustBe(t *testing.T, what string, counts []uint64, events []int) {
	t.Helper()
	synctest.Wait()
	n.mu.Lock()
	defer n.mu.Unlock()
	if !slices.Equal(n.counts, counts) || !slices.Equal(n.events, events) {
		t.Errorf("%s: counts %v of events %v, want %v of %v", what, n.counts, n.events, counts, events)
	}
}

func TestOneLineASecond(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l eventlog.Limiter
		var n lines
		for i := range 3000 {
			l.Log(dropped(7), n.event(i))
			time.Sleep(700 * time.Microsecond) // never at the same time as a line
		}
		n.mustBe(t, "2.1 s", []uint64{1, 1428, 1429}, []int{0, 1428, 2857})
		time.Sleep(time.Minute)
		n.mustBe(t, "the last ones", []uint64{1, 1428, 1429, 142}, []int{0, 1428, 2857, 2999})
		l.Log(dropped(7), n.event(-1))
		n.mustBe(t, "after a pause", []uint64{1, 1428, 1429, 142, 1}, []int{0, 1428, 2857, 2999, -1})
		l.Close()
	})
}

func TestKindsAreApart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l eventlog.Limiter
		var n lines
		lost := datasheet.Event{Code: datasheet.EventConnectionLost, Endpoint: 1}
		for i, e := range []datasheet.Event{dropped(1), dropped(2), {Code: datasheet.EventPostDescriptor, Endpoint: 1}, lost, lost, dropped(1)} {
			l.Log(e, n.event(i))
		}
		n.mustBe(t, "at once", []uint64{1, 1, 1, 1, 1}, []int{0, 1, 2, 3, 4})
		l.Close()
	})
}

func TestClose(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var l eventlog.Limiter
		var n lines
		for i := range 5 {
			l.Log(dropped(0), n.event(i))
		}
		l.Close()
		n.mustBe(t, "closed", []uint64{1, 4}, []int{0, 4})
		l.Log(dropped(0), n.event(5))
		l.Close()
		time.Sleep(time.Minute)
		n.mustBe(t, "after that", []uint64{1, 4, 1}, []int{0, 4, 5})
	})
}

// TestWriteMayCall: what is written may cause more.
func TestWriteMayCall(t *testing.T) {
	var l eventlog.Limiter
	wrote := 0
	l.Log(dropped(0), func(uint64) {
		wrote++
		l.Log(dropped(0), func(uint64) { wrote++; l.Close() })
	})
	if l.Close(); wrote != 2 {
		t.Errorf("%d lines", wrote)
	}
}
