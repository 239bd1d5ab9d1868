package emulator

import (
	"errors"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/wire"
)

// Option is a choice of Pair.
type Option func(*pairOptions)

type pairOptions struct {
	device Options // of both devices, except name, wire and address
	memory wire.MemoryOptions
	faults *wire.FaultOptions
	tap    wire.TapFunc

	pipeline func() engine.Pipeline
}

// WithMTU sets the largest frame of the wire in bytes.
func WithMTU(mtu int) Option { return func(o *pairOptions) { o.memory.MTU = mtu } }

// WithRing sets the size of the wire's rings in bytes.
func WithRing(size int) Option { return func(o *pairOptions) { o.memory.Ring = size } }

// WithFaults puts faults on both directions of the wire. The second device's
// seed is one more than the first's.
func WithFaults(f wire.FaultOptions) Option { return func(o *pairOptions) { o.faults = &f } }

// WithTap has show see every frame that crosses the first device's end of the wire.
func WithTap(show wire.TapFunc) Option { return func(o *pairOptions) { o.tap = show } }

// WithLimits sets the limits of both devices.
func WithLimits(l engine.Limits) Option { return func(o *pairOptions) { o.device.Limits = l } }

// WithTiming sets the timing of both devices.
func WithTiming(t engine.Timing) Option { return func(o *pairOptions) { o.device.Timing = t } }

// WithClock has both devices use a monotonic clock.
func WithClock(c func() time.Duration) Option { return func(o *pairOptions) { o.device.Clock = c } }

// WithDoorbells sets how stores to BAR2 reach the engines.
func WithDoorbells(m DoorbellMode) Option { return func(o *pairOptions) { o.device.Doorbells = m } }

// WithPipeline asks f for each device how its payloads are to cross it: policies
// that learn are not shared.
func WithPipeline(f func() engine.Pipeline) Option { return func(o *pairOptions) { o.pipeline = f } }

// WithThreads runs each engine on a thread of its own instead of inline.
func WithThreads() Option { return func(o *pairOptions) { o.device.Thread = true } }

// pairMACs are the addresses of a pair: locally administered, and the only ones
// on their wire.
var pairMACs = [2]descriptors.MAC{{2, 'T', 'R', 'P', 'Z', 1}, {2, 'T', 'R', 'P', 'Z', 2}}

// Pair makes two devices on one memory wire. Inline, which is the default, Poll
// of either steps both.
func Pair(options ...Option) (a, b *Device, err error) {
	var o pairOptions
	for _, f := range options {
		f(&o)
	}
	left, right, err := wire.NewMemory(o.memory)
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

func (o *pairOptions) end(name string, w wire.Port, number int) (*Device, error) {
	if o.tap != nil && number == 0 {
		w = wire.NewTap(w, o.tap)
	}
	if o.faults != nil {
		f := *o.faults
		f.Seed += uint64(number)
		faulty, err := wire.NewFault(w, f)
		if err != nil {
			return nil, fmt.Errorf("create a pair of emulated devices: %w", err)
		}
		w = faulty
	}
	device := o.device
	if o.pipeline != nil {
		device.Pipeline = o.pipeline()
	}
	device.Name, device.Wire, device.MAC = name, w, pairMACs[number]
	return New(device)
}

// stepTogether has Poll of either device step both, if both run inline.
func stepTogether(a, b *Device) {
	if a.thread || b.thread {
		return
	}
	a.peer.Store(b)
	b.peer.Store(a)
}
