package emulator

import (
	"errors"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire"
)

// PairOptions are choices of Pair. The zero value is good.
type PairOptions struct {
	// MTU is the largest frame of the wire, and Ring the size of its rings, both in bytes;
	// zero as in wire.MemoryOptions.
	MTU, Ring int
	// Faults are put on both directions of the wire. The second device's seed is one more
	// than the first's.
	Faults wire.FaultOptions
	// Shape gives both directions a speed, on Clock and by the pipeline's bursts.
	Shape wire.ShaperOptions
	// Limits, Timing, Clock and Doorbells are those of both devices, see Options.
	Limits    engine.Limits
	Timing    engine.Timing
	Clock     func() time.Duration
	Doorbells DoorbellMode
	// Pipeline is asked for each device how its payloads are to cross it: policies that
	// learn are not shared.
	Pipeline func() engine.Pipeline
	// Threads runs each engine on a thread of its own instead of inline.
	Threads bool
}

// pairMACs are the addresses of a pair: locally administered, and the only ones
// on their wire.
var pairMACs = [2]datasheet.MAC{{2, 'T', 'R', 'P', 'Z', 1}, {2, 'T', 'R', 'P', 'Z', 2}}

// Pair makes two devices on one memory wire. Inline, which is the default, Poll
// of either steps both.
func Pair(o PairOptions) (a, b *Device, err error) {
	left, right, err := wire.NewMemory(wire.MemoryOptions{MTU: o.MTU, Ring: o.Ring})
	if err != nil {
		return nil, nil, fmt.Errorf("create a pair of emulated devices: %w", err)
	}
	a, err = o.end("emu:pair/a", left, 0)
	if err != nil {
		return nil, nil, err
	}
	b, err = o.end("emu:pair/b", right, 1)
	if err != nil {
		return nil, nil, errors.Join(err, a.Close())
	}
	stepTogether(a, b)
	return a, b, nil
}

func (o *PairOptions) end(name string, w wire.Port, number int) (_ *Device, err error) {
	device := Options{Name: name, MAC: pairMACs[number], Limits: o.Limits, Timing: o.Timing, Clock: o.Clock,
		Doorbells: o.Doorbells, Thread: o.Threads}
	if o.Pipeline != nil {
		device.Pipeline = o.Pipeline()
	}
	faults, shape := o.Faults, o.Shape
	faults.Seed += uint64(number)
	shape.Clock = o.Clock
	if device.Wire, err = dress(w, faults, shape, device.Pipeline); err != nil {
		return nil, fmt.Errorf("create a pair of emulated devices: %w", err)
	}
	return New(device)
}

// stepTogether has Poll of either device step both, if both run inline.
func stepTogether(a, b *Device) {
	if a.thread || b.thread {
		return
	}
	a.peer.Store(b)
	b.peer.Store(a)
	a.regate()
	b.regate()
}
