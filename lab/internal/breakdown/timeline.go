package breakdown

import (
	"errors"
	"slices"

	"github.com/trapeze-nic/trapeze/lab/internal/ticks"
	"github.com/trapeze-nic/trapeze/wire"
)

// phase says what a stretch of time between two borders was spent on.
type phase int

const (
	phasePost    phase = iota // PostSend
	phaseFetch                // sender's NIC, until it asks the wire for room
	phaseCopy                 // header and payload into the wire's buffer
	phaseWire                 // inside the wire, at both ends
	phaseDeliver              // receiver's NIC, from the frame until it gives it back
	phaseRest                 // both NICs, before and after that
	phasePoll                 // RecvDone
	phaseCount
)

// timeline is the time of one message by phase, in ticks.
type timeline struct {
	on    bool
	at    uint64
	now   phase
	spent [phaseCount]uint64
	marks [phaseCount]uint32
}

// begin starts a message.
func (t *timeline) begin(p phase) {
	t.spent, t.marks = [phaseCount]uint64{}, [phaseCount]uint32{}
	t.on, t.now = true, p
	t.at = ticks.Now()
}

// turn ends the phase that is on and begins another.
func (t *timeline) turn(p phase) {
	now := ticks.Now()
	t.spent[t.now] += now - t.at
	t.marks[t.now]++
	t.at, t.now = now, p
}

// probe is an end of a memory wire that tells a timeline when it is entered and
// left: the only borders inside a NIC that can be seen from outside.
type probe struct {
	*wire.Memory
	t *timeline
	// reserved and received are the phases that follow Reserve and a frame.
	reserved, received phase
}

// enter is called first by what the NIC calls on the data path.
func (p *probe) enter() {
	if p.t.on {
		p.t.turn(phaseWire)
	}
}

// leave is called last.
func (p *probe) leave(next phase) {
	if p.t.on {
		p.t.turn(next)
	}
}

// Reserve is described at engine.Port.
func (p *probe) Reserve(n int) []byte {
	p.enter()
	b := p.Memory.Reserve(n)
	p.leave(p.reserved)
	return b
}

// Commit is described at engine.Port.
func (p *probe) Commit() {
	p.enter()
	p.Memory.Commit()
	p.leave(phaseRest)
}

// Publish is described at engine.Progressive.
func (p *probe) Publish(n int) {
	p.enter()
	p.Memory.Publish(n)
	p.leave(p.reserved)
}

// Flush is described at engine.Port.
func (p *probe) Flush() {
	p.enter()
	p.Memory.Flush()
	p.leave(phaseRest)
}

// Receive is described at engine.Port. A border stands behind a frame only: most
// looks are in vain, and borders cost more than they take.
func (p *probe) Receive() []byte {
	b := p.Memory.Receive()
	if b != nil {
		p.leave(p.received)
	}
	return b
}

// Release is described at engine.Port.
func (p *probe) Release() {
	p.enter()
	p.Memory.Release()
	p.leave(phaseRest)
}

// borderCost returns what a border adds, in ticks: half of what a call into a wire with nothing
// to flush takes longer if it is watched.
func borderCost() (ticksEach float64, err error) {
	a, b, err := wire.NewMemory(wire.MemoryOptions{})
	if err != nil {
		return 0, err
	}
	var t timeline
	t.begin(phaseRest)
	watched := median(func() { flushOften(&probe{b, &t, phaseRest, phaseDeliver}) })
	plain := median(func() { flushOften(a) })
	return max(watched-plain, 0) / (2 * calls), errors.Join(a.Close(), b.Close())
}

// calls is the number of times that the wire is called between two looks at the counter.
const calls = 1000

func flushOften(p wire.Port) {
	for range calls {
		p.Flush()
	}
}

// median is the middle of how many ticks f takes.
func median(f func()) float64 {
	var took [51]uint64
	for i := range took {
		start := ticks.Now()
		f()
		took[i] = ticks.Now() - start
	}
	slices.Sort(took[:])
	return float64(took[len(took)/2])
}
