package engine

import (
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// Hook is a place at which a control program may be asked (SPEC.md 14.1, in its
// order).
type Hook uint8

// Hooks.
const (
	HookPulseTransmit Hook = iota
	HookPulseReceive
	HookDemultiplex
	HookFilterTransmit
	HookFilterReceive
)

// HookSet is a set of hooks.
type HookSet uint8

// Set returns the set of one hook.
func (h Hook) Set() HookSet { return 1 << h }

// Has reports whether a hook is in the set.
func (s HookSet) Has(h Hook) bool { return s&h.Set() != 0 }

const (
	filterTransmit = HookSet(1 << HookFilterTransmit)
	transmitHooks  = HookSet(1<<HookPulseTransmit) | filterTransmit
	// wholeFrames are asked about frames that have arrived whole.
	wholeFrames  = HookSet(1<<HookDemultiplex | 1<<HookFilterReceive)
	receiveHooks = HookSet(1<<HookPulseReceive) | wholeFrames
	// dropping may drop frames.
	dropping = filterTransmit | wholeFrames
	// watching stands beside the hooks while frames are shown, so that to look for either costs
	// the data path the same. No program is asked there.
	watching = HookSet(1 << 7)
	// arriveWhole are those for which a frame must be there whole, with its bytes in it.
	arriveWhole = wholeFrames | watching
)

// pulseHooks are those of each direction.
var pulseHooks = [directions]Hook{HookPulseTransmit, HookPulseReceive}

// Action is what becomes of a frame.
type Action uint8

// Actions.
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

// program is who decides in the engine's place, and at which hooks.
type program struct {
	*clock
	processor Processor
	hooks     HookSet
	writes    HookSet // those that may change frames
	// While waiting is not empty, what its hooks would be asked about waits, until
	// the time.
	waiting HookSet
	until   time.Duration
	frozen  time.Duration // clock.present when the waiting began
	// show is shown frames while hooks has watching.
	show func(sent bool, frame []byte)
	// copies hold the frame that a program may change: as it was, of one that is
	// sent, and the one that it may change, of one that has arrived.
	copies [directions][]byte
}

// resume ends a suspension. Its time does not count against peers: nobody listened.
func (p *program) resume() {
	if p.waiting != 0 {
		p.waiting = 0
		p.look()
		p.away = p.now - p.frozen
	}
}

// clear goes back to built-in behaviour.
func (p *program) clear() { p.processor, p.hooks, p.writes, p.waiting = nil, p.hooks&watching, 0, 0 }

// asks reports whether a program is asked at a hook.
func (p *program) asks(h Hook) bool { return p.hooks.Has(h) }

// filter asks about a complete frame of an endpoint. It reports whether
// the frame goes.
func (p *program) filter(frame []byte, number uint32) bool {
	before := p.copies[Transmit]
	writes := p.writes.Has(HookFilterTransmit)
	if writes {
		copy(before, frame)
	}
	a, _, ok := p.processor.Filter(Transmit, frame, number)
	if !ok {
		p.hooks &^= HookFilterTransmit.Set()
		if writes {
			copy(frame, before)
		}
		return true
	}
	return a != FrameDrop
}

// filterReceive asks what becomes of a frame that is for the endpoint number. It
// returns the frame, which the program may have changed, whom it is for now, and
// false if it is dropped.
func (p *program) filterReceive(frame []byte, number uint32) ([]byte, uint32, bool) {
	shown := frame
	if p.writes.Has(HookFilterReceive) {
		// Not on the wire, which cannot always be written.
		shown = p.copies[Receive]
		shown = shown[:copy(shown, frame)]
	}
	a, queue, ok := p.processor.Filter(Receive, shown, number)
	switch {
	case !ok:
		p.hooks &^= HookFilterReceive.Set()
		return frame, number, true
	case a == FrameDrop:
		return nil, number, false
	case a == FrameRedirect:
		return shown, queue, true
	}
	return shown, number, true
}

// askDemultiplex asks which endpoint a frame is for, and which entry of its
// payload table.
func (p *program) askDemultiplex(frame []byte, number uint32) (to, entry uint32) {
	to, entry, ok := p.processor.Demultiplex(frame, number)
	if !ok {
		p.hooks &^= HookDemultiplex.Set()
		return number, DefaultQueue
	}
	if to == DefaultQueue {
		to = number
	}
	return to, entry
}

// aligned returns n bytes at an address at which a frame may stand.
func aligned(n int) []byte {
	const align = 8
	b := make([]byte, n+align+datasheet.HeaderSize)
	for datasheet.HeaderAt(b) == nil {
		b = b[1:]
	}
	return b[:n:n]
}
