package framescmd

import (
	"context"
	"errors"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
)

// relay passes frames from each of two ports to the other. Queue i of each port belongs to goroutine i,
// which looks at them in turn, since a queue is used by one goroutine at a time.
type relay struct {
	pool  *ethernet.Pool
	ports [2]ethernet.Port
	// dropped frames had no room in a send ring, or were too long for a port.
	dropped atomic.Uint64
}

// outbox is frames for a queue. Those for which its ring has no room wait there.
type outbox struct {
	q       ethernet.Queue
	frames  []ethernet.Frame
	stuck   time.Time // since when the ring has had no room; zero if it had
	dropped *atomic.Uint64
}

// outboxSize is the number of frames that may wait for a queue.
const outboxSize = 4 * burst

// flush sends what it can, and reports whether that was anything. A ring that stays full
// for sendTimeout loses what waits for it, and what comes then, until it has room.
func (o *outbox) flush() (moved bool, err error) {
	for len(o.frames) > 0 {
		n, err := o.q.Send(o.frames)
		if bad := errors.Is(err, ethernet.ErrBadFrame) && n < len(o.frames); bad {
			o.q.Cache().Free(o.frames[n : n+1])
			o.dropped.Add(1)
			n++
		} else if err != nil {
			return false, err
		}
		o.frames = o.frames[:copy(o.frames, o.frames[n:])]
		if n > 0 {
			moved, o.stuck = true, time.Time{}
			continue
		}
		now := time.Now()
		if o.stuck.IsZero() {
			o.stuck = now
		} else if now.Sub(o.stuck) > sendTimeout {
			o.drop()
		}
		return moved, nil
	}
	return moved, nil
}

// drop frees what waits.
func (o *outbox) drop() {
	o.dropped.Add(uint64(len(o.frames)))
	o.q.Cache().Free(o.frames)
	o.frames = o.frames[:0]
}

// How a relay waits while no port has frames: looks, then naps that double. It cannot
// sleep until an interrupt, as it would be that of one port.
const (
	idleLooks = 100
	firstNap  = 10 * time.Microsecond
	lastNap   = 200 * time.Microsecond
)

// work passes on what comes into queue i of any port until ctx ends.
func (r *relay) work(ctx context.Context, i int) (err error) {
	w := r.newWorker(i)
	defer func() {
		for p := range w.out {
			w.out[p].drop() // what ctx has left no time for
		}
	}()
	nap, idle := firstNap, 0
	for ctx.Err() == nil {
		moved, err := w.round()
		switch {
		case err != nil:
			return err
		case moved:
			nap, idle = firstNap, 0
		case idle < idleLooks:
			idle++
			runtime.Gosched()
		default:
			for p := range w.out {
				if _, err := w.out[p].q.Unsent(); err != nil { // buffers come back
					return err
				}
			}
			time.Sleep(nap)
			nap = min(2*nap, lastNap)
		}
	}
	return nil
}

// worker is the state of one goroutine of a relay.
type worker struct {
	pool   *ethernet.Pool
	out    [2]outbox // by port
	frames []ethernet.Frame
}

func (r *relay) newWorker(i int) *worker {
	w := &worker{pool: r.pool, frames: make([]ethernet.Frame, burst)}
	for n, p := range r.ports {
		w.out[n] = outbox{q: p.Queue(i), frames: make([]ethernet.Frame, 0, outboxSize), dropped: &r.dropped}
	}
	return w
}

// round looks at each port once, and reports whether anything has moved. Nothing is taken
// from a port while the other has no room for it.
func (w *worker) round() (moved bool, err error) {
	for p := range w.out {
		q, to := w.out[p].q, &w.out[1-p]
		if cap(to.frames)-len(to.frames) < burst {
			continue
		}
		n, err := q.Receive(w.frames)
		if err != nil {
			return false, err
		}
		if n == 0 {
			continue
		}
		for i := range n {
			restoreTag(w.pool, &w.frames[i])
		}
		to.frames = append(to.frames, w.frames[:n]...)
		moved = true
	}
	for p := range w.out {
		sent, err := w.out[p].flush()
		if err != nil {
			return false, err
		}
		moved = moved || sent
	}
	return moved, nil
}
