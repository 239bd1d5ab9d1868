package port

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// Ring is a queue of a driver, which embeds a Queue.
type Ring interface {
	ethernet.Queue
	// Ready reports whether a frame has arrived.
	Ready() bool
	// Sleep waits for an interrupt, at most ethernet.WaitLimit. It returns false if the queue has
	// no interrupts.
	Sleep(ctx context.Context) (bool, error)
	// Trouble returns the reason why the queue needs new rings, nil if it does not. up says that
	// the device can send.
	Trouble(now time.Time, up bool) error
	// Renew gives the queue new rings. It fails with ErrNotSupported if only the whole device can be
	// restarted.
	Renew(ctx context.Context) error
}

// Queue is the part of a queue that does not depend on its NIC. The lock of the ring guards
// Live and Full.
type Queue struct {
	Port     *Port
	Index    int
	Counters Counters
	// Live lets the data path use the rings. Full says that the last Send found no room.
	Live, Full bool

	cache    *ethernet.Cache
	ring     Ring
	stuck    time.Time // when Stands first saw that nothing is sent; zero after progress
	renewals int       // in a row
	renewed  time.Time
	idle     int // interrupts without a frame, in a row
}

// Add makes a ring, which embeds q, the next queue of the port, with a cache of its own.
func (p *Port) Add(r Ring, q *Queue) {
	q.Port, q.Index, q.cache, q.ring = p, len(p.queues), p.options.Pool.NewCache(), r
	p.queues = append(p.queues, q)
}

func (q *Queue) Cache() *ethernet.Cache { return q.cache }

// Moved notes that the device has sent a frame, or has none to send. The ring's lock is held.
func (q *Queue) Moved() { q.stuck = time.Time{} }

// Stands returns an error once the device has sent nothing for Options.Timeout. Trouble calls it
// while frames wait. The ring's lock is held.
func (q *Queue) Stands(now time.Time) error {
	if q.stuck.IsZero() {
		q.stuck = now
	}
	if d := now.Sub(q.stuck); d >= q.Port.options.Timeout {
		return fmt.Errorf("%w: no frame was sent for %v", ethernet.ErrNotReady, d.Round(time.Millisecond))
	}
	return nil
}

// Broken leaves rings that break the rules to the watch. The ring's lock is held.
func (q *Queue) Broken() {
	q.Live = false
	q.Port.Poke()
}

// BadFrame is the error of Send for a frame that it refuses: a reason that all drivers share, or
// else why.
func (q *Queue) BadFrame(f *ethernet.Frame, why string) error {
	switch longest := q.Port.options.MaxFrame(); {
	case !q.cache.Pool().Contains(f):
		why = "it is not in its buffer"
	case f.Length < ethernet.HeaderSize || int(f.Length) > longest && f.Segment == 0:
		why = fmt.Sprintf("its length is not %d to %d", ethernet.HeaderSize, longest)
	}
	return q.Port.Error("send", fmt.Errorf("%w: %s: %+v", ethernet.ErrBadFrame, why, *f))
}

func (q *Queue) Wait(ctx context.Context) error {
	if err := q.ended(ctx); err != nil {
		return err
	}
	if q.ring.Ready() {
		return nil
	}
	sleeps, err := q.ring.Sleep(ctx)
	if !sleeps {
		q.poll(ctx)
	}
	if err := q.ended(ctx); err != nil {
		return err
	}
	return q.Port.Error("wait for", err)
}

// ended says why there is nothing to wait for, nil if there is something.
func (q *Queue) ended(ctx context.Context) error {
	if err := q.Port.Failed(); err != nil {
		return err
	}
	return q.Port.Error("wait for", ctx.Err())
}

// poll yields this often, and then sleeps for Nap between two looks.
const yields = 1000

// Nap is the time between two looks at a ring that stays empty.
const Nap = 50 * time.Microsecond

// poll looks for frames again and again, for as long as Wait may take.
func (q *Queue) poll(ctx context.Context) {
	end := time.Now().Add(ethernet.WaitLimit)
	for i := 0; !q.ring.Ready() && q.ended(ctx) == nil && time.Now().Before(end); i++ {
		if i < yields {
			runtime.Gosched()
		} else {
			time.Sleep(Nap)
		}
	}
}

// maxIdle is the number of interrupts that may come without a frame, before Wait takes a nap after each.
const maxIdle = 16

// Await sleeps until an interrupt, at most ethernet.WaitLimit. The lock is that of the ring, and
// arrived, which is called with it, says whether a frame has come. After too many interrupts that
// have brought nothing it takes a nap.
func (q *Queue) Await(ctx context.Context, interrupt *vfio.Eventfd, lock sync.Locker, arrived func() bool) error {
	limited, cancel := context.WithTimeout(ctx, ethernet.WaitLimit)
	defer cancel()
	if err := interrupt.Wait(limited); err != nil {
		if limited.Err() != nil {
			err = nil
		}
		return err
	}
	lock.Lock()
	q.Counters.Interrupts.Add(1)
	q.idle++
	if arrived() {
		q.idle = 0
	}
	storm := q.idle > maxIdle
	lock.Unlock()
	if storm {
		time.Sleep(Nap)
	}
	return nil
}
