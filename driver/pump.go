package driver

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

// PumpStats counts what the host has done for its delivery policy.
type PumpStats struct {
	Pulses uint64 `json:"pulses" help:"Decisions of the policy that bytes may move." unit:"pulses"`
	Frames uint64 `json:"frames" help:"Frames that left by these alone." unit:"frames"`
	// TakenOver counts frames for which the policy was late.
	TakenOver   uint64 `json:"taken_over" help:"Frames of which the device moved more than the policy had allowed." unit:"frames"`
	BadProgress uint64 `json:"bad_progress" help:"Progress counters that made no sense." unit:"counters"`
}

// pump runs a delivery policy at the host: it reads the progress counters that
// the device writes to host memory, asks, and writes pulse registers. It is
// stepped by calls that poll or wait on the NIC, and by a goroutine of its own.
// A step allocates nothing and makes no system call on a device whose registers
// take none.
type pump struct {
	n    *NIC
	name string

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

// newPump makes a pump that watches the progress area and does nothing yet.
func (n *NIC) newPump(plan pipeline.Plan) (*pump, error) {
	p := &pump{n: n, name: plan.Name, wake: make(chan struct{}, 1), done: make(chan struct{})}
	for i, side := range []struct {
		build func() pipeline.Policy
		reg   uint64
	}{{plan.Send, datasheet.RegPulseTx}, {plan.Receive, datasheet.RegPulseRx}} {
		l := &p.lanes[i]
		l.shared = datasheet.ProgressAt(n.dma.area.mem.Bytes()[i*datasheet.ProgressSize:])
		l.bell = n.pulseAt(side.reg)
		l.longest = uint32(n.identity.MTU - datasheet.HeaderSize)
		l.clock = n.picoseconds
		if err := l.use(side.build()); err != nil {
			return nil, fmt.Errorf("%w: %w", descriptors.ErrInvalidParameter, err)
		}
	}
	return p, nil
}

// picoseconds is the clock of policies that learn.
func (n *NIC) picoseconds() int64 { return time.Since(n.opened).Nanoseconds() * 1000 }

// look reads the progress counters once and answers. It reports whether they
// had changed. If another call is at it, it returns false at once. visit is 1 of a call that polls,
// and 0 of the goroutine.
func (p *pump) look(visit uint32) bool {
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
func (p *pump) judge() {
	for i := range p.lanes {
		if l := &p.lanes[i]; l.faults >= maxFaults && !p.stopped {
			p.stopped = true
			err := fmt.Errorf("%w: progress counters of frame %d: length %d, arrived %d, sent %d, after %d others that make no sense",
				ErrProtocol, l.read.Frame, l.read.Length, l.read.Arrived, l.read.Sent, maxFaults-1)
			p.broken.Store(&err)
			p.kick()
		}
	}
}

// kick wakes the goroutine, which shall be awake when the device begins.
func (p *pump) kick() {
	if p.asleep.Load() {
		select {
		case p.wake <- struct{}{}:
		default:
		}
	}
}

// shortNap is the longest sleep of the goroutine without being woken by posts:
// waking it costs the poster a system call.
const shortNap = 200 * time.Microsecond

// run steps the pump while no call does, until it is stopped or gives up. It
// keeps away while a call polls, and else spins, yields and sleeps; short, if
// a frame is under way.
func (p *pump) run() {
	timer := time.NewTimer(longestStep)
	defer timer.Stop()
	nap, seen := time.Duration(0), uint32(0)
	for idle := 0; ; {
		if broken := p.broken.Load(); broken != nil {
			p.n.fallBack(p, *broken)
			return
		}
		polled := false
		if v := datasheet.LoadIndex(&p.visits); v != seen {
			seen, polled = v, true
		} else if p.look(0) {
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
		case p.n.failed() != nil:
			return
		}
		if nap = min(max(2*nap, firstStep), longestStep); p.busy.Load() {
			nap = firstStep
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
func (p *pump) sleep(timer *time.Timer, d time.Duration) (kicked, stopped bool) {
	if d > shortNap {
		p.asleep.Store(true)
		defer p.asleep.Store(false)
		// What came before asleep was set does not kick.
		if p.broken.Load() != nil || p.look(0) {
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

// stop ends the pump. When it returns no step is under way and none begins. It
// is called once.
func (p *pump) stop() {
	p.mu.Lock()
	p.stopped = true
	p.mu.Unlock()
	close(p.done)
}

func (p *pump) stats() PumpStats {
	p.mu.Lock()
	defer p.mu.Unlock()
	var s PumpStats
	for i := range p.lanes {
		l := &p.lanes[i].stats
		s.Pulses += l.Pulses
		s.Frames += l.Frames
		s.TakenOver += l.TakenOver
		s.BadProgress += l.BadProgress
	}
	return s
}
