package breakdown

import (
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
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
	watched bool // the borders between begin and end count
	on      bool // they do now
	at      uint64
	now     phase
	spent   [phaseCount]uint64
	marks   [phaseCount]uint32
}

func (t *timeline) begin(p phase) {
	t.spent, t.marks = [phaseCount]uint64{}, [phaseCount]uint32{}
	t.on, t.now = t.watched, p
	t.at = ticks.Now()
}

// turn ends the phase that is on and begins another.
func (t *timeline) turn(p phase) {
	if t.on {
		t.mark(p)
	}
}

func (t *timeline) end() {
	t.mark(phaseRest)
	t.on = false
}

func (t *timeline) mark(p phase) {
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

func (p *probe) Reserve(n int) []byte {
	p.t.turn(phaseWire)
	b := p.Memory.Reserve(n)
	p.t.turn(p.reserved)
	return b
}

func (p *probe) Commit() {
	p.t.turn(phaseWire)
	p.Memory.Commit()
	p.t.turn(phaseRest)
}

func (p *probe) Publish(n int) {
	p.t.turn(phaseWire)
	p.Memory.Publish(n)
	p.t.turn(p.reserved)
}

func (p *probe) Flush() {
	p.t.turn(phaseWire)
	p.Memory.Flush()
	p.t.turn(phaseRest)
}

// Receive has a border behind a frame only: most calls find none, and a border costs more than such a call.
func (p *probe) Receive() []byte {
	b := p.Memory.Receive()
	if b != nil {
		p.t.turn(p.received)
	}
	return b
}

// Put and PutPair send a short frame; its copy is inside the wire.
func (p *probe) Put(header uint64, b datasheet.ShortBeside, payload []byte, last bool) (uint32, bool) {
	p.t.turn(phaseWire)
	mark, ok := p.Memory.Put(header, b, payload, last)
	p.t.turn(phaseRest)
	return mark, ok
}

func (p *probe) PutPair(header uint64, b datasheet.ShortBeside, first, second []byte, last bool) (uint32, bool) {
	p.t.turn(phaseWire)
	mark, ok := p.Memory.PutPair(header, b, first, second, last)
	p.t.turn(phaseRest)
	return mark, ok
}

// Next has a border behind a short frame only.
func (p *probe) Next() (payload []byte, header uint64, b datasheet.ShortBeside, found engine.Found) {
	payload, header, b, found = p.Memory.Next()
	if found == engine.FoundShort {
		p.t.turn(p.received)
	}
	return payload, header, b, found
}

func (p *probe) Pass(tell bool) {
	p.t.turn(phaseWire)
	p.Memory.Pass(tell)
	p.t.turn(phaseRest)
}

func (p *probe) Release() {
	p.t.turn(phaseWire)
	p.Memory.Release()
	p.t.turn(phaseRest)
}

// borderCost is the time of a border in ticks: the median of what one of many takes.
func borderCost() float64 {
	const borders = 1000
	t := timeline{on: true}
	var took []float64
	for range 51 {
		start := ticks.Now()
		for range borders {
			t.turn(phaseRest)
		}
		took = append(took, float64(ticks.Now()-start)/borders)
	}
	border, _ := bench.Median(took)
	return float64(border)
}
