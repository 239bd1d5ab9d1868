package engine

import (
	"context"
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/engine/internal/core"
)

// These say how Run waits. Spinning costs a core but answers at once; the numbers keep it
// to some tens of microseconds, about what a sleep and a wake-up cost.
const (
	spinSteps  = 1024
	yieldEvery = 8
	// longestSleep bounds a sleep in which nothing is to be done.
	longestSleep = 200 * time.Millisecond
)

// Where doorbells are in shared memory a store wakes no thread: Run looks again and
// again, the less often the longer nothing has come. With the 50 us that Linux
// adds to a short sleep (prctl(2), PR_SET_TIMERSLACK), that is an answer within
// some 100 us for the first 10 ms, and half a percent of a core in the end.
const (
	shortSleep  = 20 * time.Microsecond
	shortSleeps = 128
	longSleep   = time.Millisecond
)

// Run steps the engine until ctx ends: the thread of a NIC that works beside
// its host.
func (e *Engine) Run(ctx context.Context) {
	timer := time.NewTimer(longestSleep)
	defer timer.Stop()
	sleeps := 0
	for idle := 0; ctx.Err() == nil; {
		if e.Step() {
			idle, sleeps = 0, 0
			continue
		}
		if e.Moving() {
			runtime.Gosched()
			continue
		}
		idle++
		if idle < spinSteps {
			if idle%yieldEvery == 0 {
				runtime.Gosched()
			}
			continue
		}
		idle = spinSteps / 2
		if e.rest() {
			shortly(sleeps)
			sleeps++
			continue
		}
		e.sleep.asleep.Store(true)
		// Work that came before asleep was set wakes no thread: look once more, even
		// if another thread is in the engine, which may not look.
		if !e.stepWaiting() {
			timer.Reset(e.sleepTime())
			select {
			case <-e.sleep.wake:
			case <-timer.C:
				// Nothing has come: one look is enough.
				idle = spinSteps - 1
			case <-ctx.Done():
			}
		}
		e.sleep.asleep.Store(false)
	}
}

// stepWaiting does what Step does, after it has waited for a step under way.
func (e *Engine) stepWaiting() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.round(&e.None)
}

// BeforeIdle says that the engine will not be stepped for a while: the next step looks at
// the clock, and what the peer has taken by then it says without being looked at.
func (e *Engine) BeforeIdle() { e.rest() }

// rest also reports whether there are doorbells that wake no thread.
func (e *Engine) rest() (polls bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.vis.AskFlight()
	e.cells.Ask()
	e.NextLook = 0
	return len(e.Bells.Mapped) > 0
}

// shortly sleeps for a short time, after n sleeps that nothing ended. It is a call of
// its own to the kernel, as the runtime's timers are a millisecond late when
// nothing else is to be done.
func shortly(n int) {
	d := longSleep
	if n < shortSleeps {
		d = shortSleep
	}
	t := unix.NsecToTimespec(d.Nanoseconds())
	// A signal may cut it short, which does no harm.
	_ = unix.Nanosleep(&t, nil)
}

// sleepTime returns the time that Run may sleep if it is not woken.
func (e *Engine) sleepTime() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pending() {
		return core.TickEvery
	}
	// Who is away for longer does not count time against a peer, see look.
	d := min(longestSleep, e.Timing.Dead/(2*core.DeadLooks))
	for _, ep := range e.Living {
		l := ep.Alive
		if l == nil {
			continue
		}
		if l.Pending != 0 {
			return core.IdleEvery
		}
		d = min(d, l.Heard+e.Timing.Probe-e.Now)
	}
	return max(d, core.IdleEvery)
}

// pending reports whether something is under way that a timer looks after.
func (e *Engine) pending() bool {
	return e.Events != 0 || e.Rx.Held || len(e.Setups.UnderWay) > 0
}

// Moving reports whether transfers go on, whose ends wake no thread: the runner of the engine
// steps it again at once. Its answer is false if transfers take no time.
func (e *Engine) Moving() bool {
	if !e.Timed {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.Tx.Box.Moving() || e.Rx.Placing && e.Rx.Moves > 0
}

// Quiet reports whether nothing is under way that a timer looks after.
func (e *Engine) Quiet() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.pending()
}
