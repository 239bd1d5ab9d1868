package driver

import (
	"context"
	"errors"
	"runtime"
	"runtime/trace"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
)

// How a wait goes on while nothing happens, unless SetWaiting says otherwise: it spins,
// then lets others run, then arms an interrupt and sleeps. Sleeps are short where the
// device makes no progress by itself, and never long: an interrupt may be
// lost, and a device may be pulled out.
const (
	spins        = 100
	yields       = 50
	firstStep    = 20 * time.Microsecond
	longestStep  = time.Millisecond
	longestSleep = 5 * time.Millisecond
)

// Waking up in vain costs some tens of microseconds, so who has waited for long is
// woken less often: after promptSleeps in vain, a doubling each slowerAfter, up to
// the limits below. Interrupts and frames end a sleep as ever.
const (
	promptSleeps = 8
	slowerAfter  = 2
	rarestStep   = 20 * time.Millisecond
	rarestSleep  = 50 * time.Millisecond
)

// slowed returns the time to sleep instead of d, after so many sleeps in vain.
func slowed(d, rarest time.Duration, emptyWakeups int) time.Duration {
	for n := promptSleeps; n <= emptyWakeups && d < rarest; n += slowerAfter {
		d *= 2
	}
	return min(d, rarest)
}

// errDeadline is returned by pause when the waiter's time is over.
var errDeadline = errors.New("deadline")

// timeLeft is the time that a device has left. Between two looks no more than rarestSleep
// counts: what is beyond that the program was not run, and the device may have been short of
// the same processors.
type timeLeft struct {
	left   time.Duration
	looked time.Time
}

func newTimeLeft(limit time.Duration) *timeLeft { return &timeLeft{limit, time.Now()} }

func (p *timeLeft) over() bool {
	now := time.Now()
	p.left -= min(now.Sub(p.looked), rarestSleep)
	p.looked = now
	return p.left <= 0
}

// waiter paces the repetitions of one wait. Its zero value with n and ctx set is ready.
type waiter struct {
	n   *NIC
	ctx context.Context
	// done, if not nil, ends the wait with ErrClosed when it is closed.
	done <-chan struct{}
	// left, if not nil, ends the wait with errDeadline when it is over.
	left *timeLeft

	round        int
	pace         pace
	since        int           // round in which the pace began
	began        time.Time     // when it began, if that is looked at
	past         time.Duration // since then, at the last look
	step         time.Duration
	emptyWakeups int             // sleeps in a row that nothing but time ended
	armed        <-chan struct{} // closed by the interrupt that was armed
	idle         <-chan struct{} // closed when there is something to step the device for
	timer        *time.Timer
}

// armer asks the device for an interrupt as soon as there is something to take.
type armer interface {
	arm(ctx context.Context) error
}

// pause is called each time that the caller has looked in vain. When it returns
// nil the caller looks again. With an armer and a vector it arms the interrupt
// before it sleeps; ready, if not nil, also ends the sleep.
func (w *waiter) pause(a armer, v *vector, ready <-chan struct{}) error {
	if err := w.over(); err != nil {
		return err
	}
	moved := w.n.progress()
	// The admin queue is common to all: a waiter for its own queue looks there
	// only when nothing else is to be done.
	if w.pace > spinning {
		moved = w.n.admin.tryDrain() || moved
	}
	if moved { // no time to sleep
		w.step, w.emptyWakeups = 0, 0
		if w.pace > spinning {
			runtime.Gosched()
		}
		return nil
	}
	w.round++
	waiting := w.n.waiting.Load()
	switch w.keepPace(waiting) {
	case spinning:
		return nil
	case yielding:
		runtime.Gosched()
		return nil
	}
	if err := w.n.alive(); err != nil {
		return err
	}
	if a != nil && v != nil && w.armed == nil {
		// Completions between the last look and this do not go unseen: the
		// device raises the interrupt at once, and the caller looks again.
		w.armed = v.interrupted(&w.n.goroutines)
		return a.arm(w.ctx)
	}
	if w.n.waker != nil && w.idle == nil {
		// As with interrupts: what came before this is found by looking again.
		if w.idle = w.n.waker.Idle(); w.idle != nil {
			return nil
		}
	}
	return w.sleep(ready, waiting.Sleep)
}

// over reports why the wait has to end, if it has.
func (w *waiter) over() error {
	if err := w.ctx.Err(); err != nil {
		return err
	}
	select {
	case <-w.done:
		return descriptors.ErrClosed
	default:
	}
	if err := w.n.failed(); err != nil {
		return err
	}
	if w.left != nil && w.left.over() {
		return errDeadline
	}
	return nil
}

// sleep sleeps, not longer than limit if that is positive.
func (w *waiter) sleep(ready <-chan struct{}, limit time.Duration) error {
	defer trace.StartRegion(w.ctx, "NIC sleeps").End()
	d, rarest := longestSleep, rarestSleep
	if w.n.poller != nil && w.idle == nil {
		w.step = min(max(2*w.step, firstStep), longestStep)
		d, rarest = w.step, rarestStep
	}
	d = slowed(d, rarest, w.emptyWakeups)
	if limit > 0 {
		d = min(d, limit)
	}
	w.emptyWakeups++
	if w.timer == nil {
		w.timer = time.NewTimer(d)
	} else {
		w.timer.Reset(d)
	}
	select {
	case <-w.armed:
		// The next look may be in vain all the same: others share the vector.
		w.armed = nil
		w.step, w.emptyWakeups = 0, 0
	case <-w.idle:
		w.idle, w.step, w.emptyWakeups = nil, 0, 0
	case <-ready:
	case <-w.timer.C:
		w.idle = nil // says again that it sleeps
	case <-w.done:
	case <-w.ctx.Done():
	}
	w.timer.Stop()
	return nil
}

// pace says what a waiter does between two looks.
type pace uint8

const (
	spinning pace = iota
	yielding
	sleeping
)

// looksPerTime is the number of looks of a waiter that spins for a time between two looks at the
// clock.
const looksPerTime = 16

// keepPace changes the pace if its time is over, or the number of looks if there is none, and returns it.
func (w *waiter) keepPace(o *Waiting) pace {
	for w.pace < sleeping {
		limit, looks := o.Spin, spins
		if w.pace == yielding {
			limit, looks = o.Yield, yields
		}
		n := w.round - w.since
		switch {
		case limit <= 0:
		case n == 1:
			w.began = time.Now()
		case n%looksPerTime == 0:
			w.past = time.Since(w.began)
		}
		if limit == 0 && n <= looks || w.past < limit {
			return w.pace
		}
		w.pace, w.since, w.past = w.pace+1, w.round-1, 0
	}
	if o.Sleep < 0 {
		return yielding
	}
	return sleeping
}

// waitUntil waits until ready says so, or early does, which may be nil.
func (n *NIC) waitUntil(ctx context.Context, op string, early *Signal, a armer, v *vector, ready func() (bool, error)) error {
	if ctx == nil {
		return n.noContext(op)
	}
	w := waiter{n: n, ctx: ctx, done: n.done}
	for {
		if there, err := ready(); there || early.Clear() {
			return err
		}
		if err := w.pause(a, v, early.C()); err != nil {
			return n.error(op, err)
		}
	}
}
