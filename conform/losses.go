package conform

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/pause"
	"github.com/trapeze-nic/trapeze/via"
)

// frameCounts are a NIC's counts of its frames, and of the cells in them.
type frameCounts struct{ sent, received, damaged, dropped, cellsSent, cellsReceived uint64 }

// beginTally waits until there is a link at both ends, and counts from there: what a NIC has sent
// before is lost, and would be counted as what the wire loses.
func (w *World) beginTally() {
	w.Helper()
	ctx := Context(w)
	for _, nic := range []*via.NIC{w.A, w.B} {
		w.Until("a link", func() bool { return Must(nic.Health(ctx))(w).LinkUp })
	}
	w.before = Must(w.tally())(w)
}

// tally reads what both NICs have counted since the check began.
func (w *World) tally() (now [2]frameCounts, err error) {
	for i, nic := range []*via.NIC{w.A, w.B} {
		counters, err := nic.Counters()
		if err != nil {
			return now, err
		}
		c := func(n datasheet.Counter) uint64 { return counters[n.String()] }
		was := w.before[i]
		now[i] = frameCounts{
			sent:          c(datasheet.CounterFramesSent) - was.sent,
			received:      c(datasheet.CounterFramesReceived) - was.received,
			damaged:       c(datasheet.CounterChecksumErrors) - was.damaged,
			dropped:       c(datasheet.CounterFramesDropped) - was.dropped,
			cellsSent:     c(datasheet.CounterCellsSent) - was.cellsSent,
			cellsReceived: c(datasheet.CounterCellsReceived) + c(datasheet.CounterCellsDropped) - was.cellsReceived,
		}
	}
	return now, nil
}

const (
	// A check asks after idleTime without a message whether something was lost, and on a wire that
	// is known to lose frames after lossyIdleTime.
	idleTime      = 20 * time.Millisecond
	lossyIdleTime = 5 * time.Millisecond
	// Frames under way are counted at their end within settling. Both ends may go on for ceasing
	// without ever having counted the same: the probes of a connection whose frames are lost never
	// end.
	settling, ceasing = time.Second, 2 * time.Second
)

// excuses counts how often a check was told that the wire loses frames.
var excuses atomic.Int64

// lost reports whether the wire has lost, doubled or damaged frames.
func (w *World) lost() bool {
	w.Helper()
	OK(w, w.look(w.Context()))
	if w.losing.Load() {
		excuses.Add(1)
	}
	return w.losing.Load()
}

// look finds out whether the wire loses frames, by what both NICs have counted: other numbers
// of frames at its ends, or damaged ones. A copy may make up for a frame that was lost; then
// cells are missing, and the copy was dropped.
func (w *World) look(ctx context.Context) error {
	var last [2]frameCounts
	limit := time.Now().Add(ceasing)
	for end := time.Now().Add(settling); !w.losing.Load() && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		for range 16 { // NICs that are stepped
			w.A.Poll()
			w.B.Poll()
		}
		now, err := w.tally()
		if err != nil {
			return err
		}
		a, b := now[0], now[1]
		missing := a.cellsSent != b.cellsReceived || b.cellsSent != a.cellsReceived
		switch {
		case a.damaged+b.damaged > 0:
			w.losing.Store(true)
		case now == last && a.sent == b.received && b.sent == a.received && (a.dropped+b.dropped == 0 || !missing):
			return nil
		case time.Now().After(end) || time.Now().After(limit):
			w.losing.Store(true)
		case now != last: // it goes on
			end, last = time.Now().Add(settling), now
		}
	}
	return nil
}

const (
	// shortMessage is a message's length in words at which frames that are lost now and then leave
	// most copies whole.
	shortMessage = 40
	// longTries bounds how often a longer one is sent over a wire that loses frames.
	longTries = 5
)

// try has attempt made until it says that a message of so many words has come. Only a wire that
// loses frames excuses one that has not; there, a long message is given up after some.
func (w *World) try(what string, words int, attempt func() bool) (came bool) {
	w.Helper()
	end := time.Now().Add(Timeout)
	for i := 1; !attempt(); i++ {
		if !w.lost() {
			w.Fatalf("%s: it has not come as it was sent, over a wire that has lost nothing", what)
		}
		if words > shortMessage && i == longTries {
			return false
		}
		if time.Now().After(end) {
			w.Fatalf("waited %v for: %s", Timeout, what)
		}
	}
	return true
}

// under returns a context that also ends when the wire has lost something.
func (w *World) under() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(w.Context(), Timeout)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			if pause.For(ctx, 10*idleTime) != nil {
				return
			}
			if w.look(ctx) != nil || w.losing.Load() {
				cancel()
			}
		}
	}()
	return ctx, func() {
		cancel()
		<-ended
	}
}

// patiently polls until f reports true; it returns false if the wire has lost something, and
// nothing is under way any more.
func (w *World) patiently(f func() bool) bool {
	w.Helper()
	began := time.Now()
	silent, last := began, [2]frameCounts{}
	for i := 0; !f(); i++ {
		w.A.Poll()
		w.B.Poll()
		if i%64 != 63 {
			continue
		}
		switch now := time.Now(); {
		case now.Sub(began) > Timeout:
			w.Fatalf("waited %v for a message", Timeout)
		case w.losing.Load() && now.Sub(silent) > lossyIdleTime:
			t := Must(w.tally())(w)
			if t == last {
				return f()
			}
			silent, last = now, t
		case now.Sub(silent) > idleTime:
			if w.lost() {
				return f() // it may have come meanwhile
			}
			silent = time.Now()
		default:
			time.Sleep(time.Microsecond)
		}
	}
	return true
}
