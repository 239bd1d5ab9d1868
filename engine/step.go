package engine

import (
	"context"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Step does one round of work: it takes frames, doorbells and timers as they
// come and sends what can be sent. It reports whether there was anything to do.
// If another goroutine is in the engine, it returns false at once.
func (e *Engine) Step() bool {
	if !e.mu.TryLock() {
		return false
	}
	// Deferred: host memory that another process has taken away ends a round
	// with a panic, which the owner of the engine catches, and then calls Reset.
	defer e.mu.Unlock()
	return e.round()
}

// round asks each resource in turn what it could do now.
func (e *Engine) round() bool {
	if e.step++; e.step >= e.nextLook {
		e.look()
	}
	if e.waiting != 0 {
		e.checkSuspension()
	}
	// Doorbells come first: a receive that was posted before a message was sent
	// must be there for it.
	worked := e.bells.take()
	// What has been posted goes before what has come: a message that waits is late
	// already.
	worked = e.transmit() || worked
	if len(e.unsettled) > 0 {
		e.settleAll()
	}
	e.handed = false
	worked = e.receive() || worked
	if len(e.unsettled) > 0 && !e.handed {
		e.settleAll()
	}
	if len(e.owing) > 0 {
		worked = e.acknowledge() || worked
	}
	if len(e.fresh) > 0 {
		e.anticipate()
	}
	if e.now >= e.nextTick && e.waiting == 0 {
		e.nextTick = e.now + tickEvery
		e.tick()
	}
	e.finish()
	return worked
}

// deadLooks is how often the engine must at least have looked for an answer
// before it takes a peer for dead.
const deadLooks = 8

// look reads the clock. An engine that nobody ran for long, because its host
// was suspended or did not poll, cannot know that its peers are silent: what
// they said may be on the wire.
//
// The clock costs as much as a step without work. While steps follow each other
// closely, the time since the last look is known well enough, and the next look
// can wait for more of them.
func (e *Engine) look() {
	now := e.clock()
	passed := now - e.now
	if gap := e.timing.Dead / deadLooks; passed > gap {
		e.away += passed - gap
	}
	if e.lookEvery *= 2; passed >= closely*time.Duration(e.step-e.looked) {
		e.lookEvery = 1
	}
	e.lookEvery = min(e.lookEvery, clockSteps)
	e.looked, e.nextLook = e.step, e.step+e.lookEvery
	e.now = now
}

// present is the time for which the engine has been running.
func (e *Engine) present() time.Duration { return e.now - e.away }

// finish ends a step: what was only gathered goes out.
func (e *Engine) finish() {
	if len(e.cqs.doomed) > 0 {
		e.failDoomed()
	}
	e.flush()
	e.interrupt()
}

// flush lets the peers see the frames that were handed to the wire.
func (e *Engine) flush() {
	if e.committed {
		e.committed = false
		e.port.Flush()
	}
}

// sleeper lets a thread that runs the engine sleep until there is work.
type sleeper struct {
	asleep atomic.Bool
	wake   chan struct{}
}

func newSleeper() sleeper { return sleeper{wake: make(chan struct{}, 1)} }

// Wake ends the sleep of Run. It may be called from any goroutine.
func (e *Engine) Wake() { e.wakeIfAsleep() }

func (e *Engine) wakeIfAsleep() {
	if e.sleep.asleep.Load() {
		select {
		case e.sleep.wake <- struct{}{}:
		default:
		}
	}
}

// How Run waits. Spinning costs a core but answers at once; the numbers keep it
// to some tens of microseconds, about what a sleep and a wake-up cost.
const (
	spinSteps  = 1024
	yieldEvery = 8
	// longestSleep bounds a sleep in which nothing is to be done.
	longestSleep = 200 * time.Millisecond
)

// Where doorbells are in shared memory a store wakes nobody: Run looks again and
// again, the less often the longer nothing has come. With the 50 us that Linux
// adds to a short sleep (prctl(2), PR_SET_TIMERSLACK), that is an answer within
// some 100 us for the first 10 ms, and half a percent of a core in the end.
const (
	shortNap  = 20 * time.Microsecond
	shortNaps = 128
	longNap   = time.Millisecond
)

// Run steps the engine until ctx ends: the thread of a NIC that works beside
// its host.
func (e *Engine) Run(ctx context.Context) {
	timer := time.NewTimer(longestSleep)
	defer timer.Stop()
	naps := 0
	for idle := 0; ctx.Err() == nil; {
		if e.Step() {
			idle, naps = 0, 0
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
		e.Rest()
		if e.looking() {
			nap(naps)
			naps++
			continue
		}
		e.sleep.asleep.Store(true)
		// Work that came before asleep was set wakes nobody: look once more, even
		// if somebody else is in the engine, who may not look.
		if !e.insist() {
			timer.Reset(e.patience())
			select {
			case <-e.sleep.wake:
			case <-timer.C:
				// Nobody has come: one look is enough.
				idle = spinSteps - 1
			case <-ctx.Done():
			}
		}
		e.sleep.asleep.Store(false)
	}
}

// insist is Step, but waits for whoever is in the engine.
func (e *Engine) insist() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.round()
}

// Rest says that nobody will step the engine for a while: the next step looks at
// the clock.
func (e *Engine) Rest() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.nextLook = 0
}

// looking reports whether there are doorbells that nobody is told of.
func (e *Engine) looking() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.bells.mapped) > 0
}

// nap sleeps for a short time, after n naps that nothing ended. It is a call of
// its own to the kernel, as the runtime's timers are a millisecond late when
// nothing else is to be done.
func nap(n int) {
	d := longNap
	if n < shortNaps {
		d = shortNap
	}
	t := unix.NsecToTimespec(d.Nanoseconds())
	// A signal may cut it short, which does no harm.
	_ = unix.Nanosleep(&t, nil)
}

// patience is how long Run may sleep if nobody wakes it.
func (e *Engine) patience() time.Duration {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pending() {
		return tickEvery
	}
	// Who is away for longer does not count time against a peer, see look.
	d := min(longestSleep, e.timing.Dead/(2*deadLooks))
	for _, ep := range e.endpoints {
		if ep == nil {
			continue
		}
		l := ep.liveness()
		if l == nil {
			continue
		}
		if l.silent != 0 {
			return idleEvery
		}
		d = min(d, l.heard+e.timing.Probe-e.now)
	}
	return max(d, idleEvery)
}

// pending reports whether something is under way that a timer looks after.
func (e *Engine) pending() bool {
	return e.in.held || e.out.held || e.waiting != 0 || len(e.busy) > 0 || len(e.settingUp) > 0 || len(e.owing) > 0 ||
		len(e.ready) > 0 || len(e.unsettled) > 0
}

// Quiet reports whether nothing is under way that a timer looks after.
func (e *Engine) Quiet() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return !e.pending()
}

// silentProbes is how often a silent peer is asked before it is given up: with
// half of all frames lost each way, one connection in 10,000 is given up wrongly.
const silentProbes = 32

// makeBusy has the timers of a connection looked at with every tick.
func (e *Engine) makeBusy(ep *endpoint) {
	if !ep.busy {
		ep.busy = true
		e.busy = append(e.busy, ep)
	}
}

// tick looks at the timers that may have run out.
func (e *Engine) tick() {
	keep := e.busy[:0]
	for _, ep := range e.busy {
		r := ep.rel
		if r == nil || r.una == r.nxt && !r.stalled {
			ep.busy = false
			continue
		}
		e.timeouts(ep)
		keep = append(keep, ep)
	}
	clear(e.busy[len(keep):])
	e.busy = keep
	e.tickRequests()
	e.tickSetup()
	if e.now >= e.nextIdle {
		e.nextIdle = e.now + idleEvery
		for _, ep := range e.endpoints {
			if ep != nil && !ep.busy {
				e.keepAlive(ep)
			}
		}
	}
}

// timeouts looks after a connection with frames under way or without credit.
func (e *Engine) timeouts(ep *endpoint) {
	r := ep.rel
	switch {
	case r.una == r.nxt:
		e.seekCredit(ep)
	case r.retransmitAt == 0:
		r.startTimer()
	case e.now >= r.retransmitAt:
		e.unanswered(ep)
	}
	if r.suspectAt != 0 && e.now >= r.suspectAt {
		e.findLost(ep)
	}
	e.giveUp(ep)
}
