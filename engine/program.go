package engine

import (
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
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
	transmitHooks = HookSet(1<<HookPulseTransmit | 1<<HookFilterTransmit)
	receiveHooks  = HookSet(1<<HookPulseReceive | 1<<HookDemultiplex | 1<<HookFilterReceive)
	// wholeFrames are asked about frames that have arrived whole.
	wholeFrames = HookSet(1<<HookDemultiplex | 1<<HookFilterReceive)
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
	processor Processor
	hooks     HookSet
	writes    HookSet // those that may change frames
	// While waiting is not empty, what its hooks would be asked about waits, until
	// the time.
	waiting HookSet
	until   time.Duration
	frozen  time.Duration // clock.present when the waiting began
	// policies decide where no program does.
	policies [directions]pipeline.Policy
	// copies hold the frame that a program may change: as it was, of one that is
	// sent, and the one that it may change, of one that has arrived.
	copies [directions][]byte
}

// SetProcessor has p asked at some hooks from now on, and ends what Suspend began.
// writes are the filter hooks whose programs may change frames. With an empty set
// there is built-in behaviour only. Call it in Exclusive.
func (e *Engine) SetProcessor(p Processor, at, writes HookSet) {
	e.resume()
	e.processor, e.hooks, e.writes = p, at, at&writes
	for d, h := range [directions]Hook{HookFilterTransmit, HookFilterReceive} {
		if e.writes.Has(h) && e.copies[d] == nil {
			// The peer's frames may be larger than ours.
			e.copies[d] = aligned(descriptors.MaxMTU)
		}
	}
	for d := range directions {
		e.choosePolicy(d)
	}
}

// aligned returns n bytes at an address at which a frame may stand.
func aligned(n int) []byte {
	const align = 8
	b := make([]byte, n+align+descriptors.HeaderSize)
	for range align {
		if descriptors.HeaderAt(b) != nil {
			break
		}
		b = b[1:]
	}
	return b[:n:n]
}

// clearProgram goes back to built-in behaviour, with fresh movers.
func (e *Engine) clearProgram() {
	e.processor, e.hooks, e.writes, e.waiting = nil, 0, 0, 0
	e.policies = [directions]pipeline.Policy{e.pipeline.Send, e.pipeline.Receive}
}

// asks reports whether a program is asked at a hook.
func (e *Engine) asks(h Hook) bool { return e.hooks.Has(h) }

// choosePolicy has program or policy decide in direction d from the next frame on.
func (e *Engine) choosePolicy(d Direction) {
	p := e.policies[d]
	if e.asks(pulseHooks[d]) {
		p = pulseProgram{e, d}
	}
	_ = e.movers[d].SetPolicy(p) // neither is nil
}

// pulseProgram is a control program as a policy.
type pulseProgram struct {
	e *Engine
	d Direction
}

// Next implements pipeline.Policy. The frame in progress when a program is stopped
// goes on with the policy.
func (p pulseProgram) Next(v pipeline.View) int {
	e, hook := p.e, pulseHooks[p.d]
	if e.asks(hook) {
		n, ok := e.processor.Pulse(p.d, v, e.movers[p.d].Asked())
		if ok {
			return n
		}
		e.hooks &^= hook.Set()
		e.choosePolicy(p.d)
	}
	return e.policies[p.d].Next(v)
}

// filterTransmit asks about a complete frame of an endpoint. It reports whether
// the frame goes.
func (e *Engine) filterTransmit(frame []byte, number uint32) bool {
	before := e.copies[Transmit]
	writes := e.writes.Has(HookFilterTransmit)
	if writes {
		copy(before, frame)
	}
	a, _, ok := e.processor.Filter(Transmit, frame, number)
	if !ok {
		e.hooks &^= HookFilterTransmit.Set()
		if writes {
			copy(frame, before)
		}
		return true
	}
	return a != FrameDrop
}
