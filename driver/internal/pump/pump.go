// Package pump runs a delivery policy at the host: the scheduler of package pipeline between the progress
// counters that a device writes to host memory and the pulse registers that let its engines go on.
package pump

import (
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// Pump reads the progress counters, asks the policy, and writes pulse registers. It is
// stepped by calls that poll or wait on the NIC, and by a goroutine of its own.
// A step allocates nothing and makes no system call on a device whose registers
// take none.
type Pump struct {
	setup Setup

	wake   chan struct{} // has a token when the goroutine shall look
	asleep atomic.Bool
	busy   atomic.Bool // a frame is under way
	done   chan struct{}
	// broken, if not nil, is why the pump gives up.
	broken atomic.Pointer[error]

	mu      sync.Mutex
	stopped bool
	visits  uint32 // steps by those who poll; written with mu held, read without
	lanes   [2]lane
}

// Setup says what a pump works on.
type Setup struct {
	Plan pipeline.Plan
	// Area has the progress counters, Pulse lets the outgoing engine of a direction move n bytes more of a frame:
	// to send, and to receive.
	Area  []byte
	Pulse [2]func(frame, n uint32)
	// Longest is the payload of the longest frame in bytes.
	Longest uint32
	// Failed says why the device cannot be expected to do anything any more, and GiveUp is called when the pump
	// gives up, unless it is stopped before.
	Failed func() error
	GiveUp func(p *Pump, cause error)
}

// New makes a pump that does nothing yet.
func New(s Setup) (*Pump, error) {
	p := &Pump{setup: s, wake: make(chan struct{}, 1), done: make(chan struct{})}
	began := time.Now()
	for i, build := range []func() pipeline.Policy{s.Plan.Send, s.Plan.Receive} {
		l := &p.lanes[i]
		l.shared = datasheet.ProgressAt(s.Area[i*datasheet.ProgressSize:])
		l.pulse, l.longest = s.Pulse[i], s.Longest
		l.clock = func() int64 { return time.Since(began).Nanoseconds() * 1000 }
		if err := l.use(build()); err != nil {
			return nil, fmt.Errorf("%w: %w", descriptors.ErrInvalidParameter, err)
		}
	}
	return p, nil
}

// Name of the policy.
func (p *Pump) Name() string { return p.setup.Plan.Name }

// Look reads the progress counters once and answers. It reports whether they
// had changed. If another call is at it, it returns false at once. visit is 1 of a call that polls,
// and 0 of the goroutine.
func (p *Pump) Look(visit uint32) bool {
	if !p.mu.TryLock() {
		return false
	}
	defer p.mu.Unlock()
	if p.stopped {
		return false // the counters may be no memory any more
	}
	if visit != 0 {
		datasheet.StoreIndex(&p.visits, p.visits+visit)
	}
	did := false
	for i := range p.lanes {
		did = p.lanes[i].step() || did
	}
	if did {
		p.busy.Store(p.lanes[0].active || p.lanes[1].active)
		p.judge()
	}
	return did
}

// maxFaults is the number of bad reports in a row that the pump takes from the device.
const maxFaults = 16

// judge gives up on a device that keeps on telling nonsense.
func (p *Pump) judge() {
	for i := range p.lanes {
		if l := &p.lanes[i]; l.faults >= maxFaults && !p.stopped {
			p.stopped = true
			err := fmt.Errorf("progress counters of frame %d: length %d, arrived %d, sent %d, after %d others that make no sense",
				l.read.Frame, l.read.Length, l.read.Arrived, l.read.Sent, maxFaults-1)
			p.broken.Store(&err)
			p.Kick()
		}
	}
}

// Kick wakes the goroutine, which shall be awake when the device begins.
func (p *Pump) Kick() {
	if p.asleep.Load() {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// How the goroutine goes on while nothing happens.
const (
	spins      = 100
	yields     = 50
	firstNap   = 20 * time.Microsecond
	longestNap = time.Millisecond
)

// shortNap is the longest sleep of the goroutine without being woken by posts:
// waking it costs the poster a system call.
const shortNap = 200 * time.Microsecond

// Run steps the pump while no call does, until it is stopped or gives up. It
// keeps away while a call polls, and else spins, yields and sleeps; short, if
// a frame is under way.
func (p *Pump) Run() {
	timer := time.NewTimer(longestNap)
	defer timer.Stop()
	nap, seen := time.Duration(0), uint32(0)
	for idle := 0; ; {
		if broken := p.broken.Load(); broken != nil {
			p.setup.GiveUp(p, *broken)
			return
		}
		polled := false
		if v := datasheet.LoadIndex(&p.visits); v != seen {
			seen, polled = v, true
		} else if p.Look(0) {
			idle, nap = 0, 0
			continue
		}
		idle++
		switch {
		case polled:
		case idle <= spins:
			continue
		case idle <= spins+yields:
			runtime.Gosched()
			continue
		case p.setup.Failed() != nil:
			return
		}
		if nap = min(max(2*nap, firstNap), longestNap); p.busy.Load() {
			nap = firstNap
		}
		kicked, stopped := p.sleep(timer, nap)
		if stopped {
			return
		}
		if kicked {
			idle, nap = 0, 0
		}
	}
}

// sleep sleeps until the time is over or the pump is kicked or stopped.
func (p *Pump) sleep(timer *time.Timer, d time.Duration) (kicked, stopped bool) {
	if d > shortNap {
		p.asleep.Store(true)
		defer p.asleep.Store(false)
		// What came before asleep was set does not kick.
		if p.broken.Load() != nil || p.Look(0) {
			return true, false
		}
	}
	timer.Reset(d)
	select {
	case <-p.wake:
		return true, false
	case <-p.done:
		return false, true
	case <-timer.C:
		return false, false
	}
}

// Stop ends the pump. When it returns no step is under way and none begins. It
// is called once.
func (p *Pump) Stop() {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	close(p.done)
}

// Stats are those of both directions.
func (p *Pump) Stats() Stats {
	p.mu.Lock()
	defer p.mu.Unlock()
	var s Stats
	for i := range p.lanes {
		l := &p.lanes[i].stats
		s.Pulses += l.Pulses
		s.Frames += l.Frames
		s.TakenOver += l.TakenOver
		s.BadProgress += l.BadProgress
	}
	return s
}
