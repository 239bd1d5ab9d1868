package core

import (
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// Hook is a place at which a control program may be asked (SPEC.md 14.1, in its
// order).
type Hook uint8

const (
	HookPulseTransmit Hook = iota
	HookPulseReceive
	HookDemultiplex
	HookFilterTransmit
	HookFilterReceive
)

type HookSet uint8

func (h Hook) Set() HookSet { return 1 << h }

func (s HookSet) Has(h Hook) bool { return s&h.Set() != 0 }

const (
	filterTransmit = HookSet(1 << HookFilterTransmit)
	TransmitHooks  = HookSet(1<<HookPulseTransmit) | filterTransmit
	// WholeFrames are asked about frames that have arrived whole.
	WholeFrames  = HookSet(1<<HookDemultiplex | 1<<HookFilterReceive)
	receiveHooks = HookSet(1<<HookPulseReceive) | WholeFrames
	// dropping may drop frames.
	dropping = filterTransmit | WholeFrames
	// Watching stands beside the hooks while frames are shown, so that to look for either costs
	// the data path the same. No program is asked there.
	Watching = HookSet(1 << 7)
	// ArriveWhole are those for which a frame must be there whole, with its bytes in it.
	ArriveWhole = WholeFrames | Watching
)

// pulseHooks are those of each direction.
var pulseHooks = [Directions]Hook{HookPulseTransmit, HookPulseReceive}

// Action is a program's decision about a frame.
type Action uint8

const (
	FramePass Action = iota
	FrameDrop
	// FrameRedirect: the frame is for another receive queue.
	FrameRedirect
)

// DefaultQueue stands for the built-in rule in answers of Processor.Demultiplex.
const DefaultQueue uint32 = 0xffffffff

// Processor runs control programs. It is called by the goroutine that steps the
// engine or runs Exclusive. Where ok is false the program has been stopped: the
// engine follows the built-in rule, and does not ask at that hook again until
// SetProcessor.
type Processor interface {
	// Pulse returns how many bytes of a frame may go now, as a pipeline.Policy.
	Pulse(d Direction, v pipeline.View, frame uint32) (bytes int, ok bool)
	// Filter says what becomes of a frame. number is that of the endpoint which
	// sends it or, in direction Receive, which it is for.
	Filter(d Direction, frame []byte, number uint32) (a Action, queue uint32, ok bool)
	// Demultiplex names the receive queue and the entry of its payload table that a
	// frame is for; either may be DefaultQueue.
	Demultiplex(frame []byte, queue uint32) (to, entry uint32, ok bool)
	// Misled is told of an answer that names what is not there or what cannot take
	// the frame. The built-in rule was followed.
	Misled(h Hook)
}

// Program is who decides in the engine's place, and at which hooks.
type Program struct {
	*Clock
	Processor Processor
	Hooks     HookSet
	Writes    HookSet // those that may change frames
	// While waiting is not empty, what its hooks would be asked about waits, until
	// the time.
	Waiting HookSet
	Until   time.Duration
	Frozen  time.Duration // clock.present when the waiting began
	// Show is shown frames while hooks has watching.
	Show func(sent bool, frame []byte)
	// Copies hold the frame that a program may change: as it was, of one that is
	// sent, and the one that it may change, of one that has arrived.
	Copies [Directions][]byte
}

// Resume ends a suspension. Its time does not count against peers: the engine did not listen.
func (p *Program) Resume() {
	if p.Waiting != 0 {
		p.Waiting = 0
		p.Look()
		p.away = p.Now - p.Frozen
	}
}

// clear goes back to built-in behaviour.
func (p *Program) clear() { p.Processor, p.Hooks, p.Writes, p.Waiting = nil, p.Hooks&Watching, 0, 0 }

func (p *Program) Asks(h Hook) bool { return p.Hooks.Has(h) }

// filter asks about a complete frame of an endpoint. It reports whether
// the frame goes.
func (p *Program) filter(frame []byte, number uint32) bool {
	before := p.Copies[Transmit]
	writes := p.Writes.Has(HookFilterTransmit)
	if writes {
		copy(before, frame)
	}
	a, _, ok := p.Processor.Filter(Transmit, frame, number)
	if !ok {
		p.Hooks &^= HookFilterTransmit.Set()
		if writes {
			copy(frame, before)
		}
		return true
	}
	return a != FrameDrop
}

// FilterReceive asks what becomes of a frame that is for the endpoint number. It
// returns the frame, which the program may have changed, whom it is for now, and
// false if it is dropped.
func (p *Program) FilterReceive(frame []byte, number uint32) ([]byte, uint32, bool) {
	shown := frame
	if p.Writes.Has(HookFilterReceive) {
		// Not on the wire, which cannot always be written.
		shown = p.Copies[Receive]
		shown = shown[:copy(shown, frame)]
	}
	a, queue, ok := p.Processor.Filter(Receive, shown, number)
	switch {
	case !ok:
		p.Hooks &^= HookFilterReceive.Set()
		return frame, number, true
	case a == FrameDrop:
		return nil, number, false
	case a == FrameRedirect:
		return shown, queue, true
	}
	return shown, number, true
}

// AskDemultiplex asks which endpoint a frame is for, and which entry of its
// payload table.
func (p *Program) AskDemultiplex(frame []byte, number uint32) (to, entry uint32) {
	to, entry, ok := p.Processor.Demultiplex(frame, number)
	if !ok {
		p.Hooks &^= HookDemultiplex.Set()
		return number, DefaultQueue
	}
	if to == DefaultQueue {
		to = number
	}
	return to, entry
}

// Aligned returns n bytes at an address at which a frame may stand.
func Aligned(n int) []byte {
	const align = 8
	b := make([]byte, n+align+datasheet.HeaderSize)
	for datasheet.HeaderAt(b) == nil {
		b = b[1:]
	}
	return b[:n:n]
}
