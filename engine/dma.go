package engine

import (
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/engine/internal/memory"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// dma is what the host sees and decides of the data movement devices: its
// pulses, the progress counters in its memory, the log (SPEC.md 2.9).
type dma struct {
	clock   *clock
	program *program
	regions *regions
	config  Pipeline
	timed   bool // transfers take their time

	movers [directions]*memory.Mover
	// policies decide where neither a program nor the host does.
	policies [directions]pipeline.Policy
	chosen   bool // one of them is not a default

	pulses   [directions]bool
	deadline time.Duration
	since    [directions]time.Duration // when the frame that is held began
	timeouts uint32
	refused  uint32
	area     uint64 // bus address of the progress counters; zero: none
	progress [directions]datasheet.Progress
	log      transferLog
}

// clear switches off what the host has switched on, and goes back to the configured
// policies, with new movers.
func (d *dma) clear() error {
	policies := [directions]pipeline.Policy{d.config.Send, d.config.Receive}
	*d = dma{clock: d.clock, program: d.program, regions: d.regions, config: d.config, timed: d.timed,
		policies: policies, chosen: d.config.chosen, deadline: datasheet.PulseDeadlineReset * time.Microsecond}
	clock := func() int64 { return int64(d.clock.read()) * psPerNS }
	for i, policy := range policies {
		m, err := memory.New(memory.Config{Policy: policy, Clock: clock, Slow: d.timed})
		if err != nil {
			return fmt.Errorf("%w: Pipeline, %v: %w", ErrConfig, Direction(i), err)
		}
		d.movers[i], d.log.sides[i] = m, logSide{dma: d, direction: Direction(i)}
	}
	return nil
}

// choosePolicy has program or policy decide in a direction from the next frame on.
func (d *dma) choosePolicy(which Direction) {
	p := d.policies[which]
	if d.program.asks(pulseHooks[which]) {
		p = pulseProgram{d, which}
	}
	_ = d.movers[which].SetPolicy(p) // neither is nil
}

// pulseProgram is a control program as a policy.
type pulseProgram struct {
	*dma
	direction Direction
}

// Next implements pipeline.Policy. The frame in progress when a program is stopped
// goes on with the policy.
func (p pulseProgram) Next(v pipeline.View) int {
	d := p.direction
	if hook := pulseHooks[d]; p.program.asks(hook) {
		n, ok := p.program.processor.Pulse(d, v, p.movers[d].Asked())
		if ok {
			return n
		}
		p.program.hooks &^= hook.Set()
		p.choosePolicy(d)
	}
	return p.policies[d].Next(v)
}

func (d *dma) setPulses(which Direction, on bool) {
	if d.pulses[which] != on {
		d.pulses[which] = on
		d.movers[which].SetPulses(on)
	}
}

// hold notes that a frame begins whose transfers the host decides.
func (d *dma) hold(which Direction) {
	d.clock.look()
	d.since[which] = d.clock.now
}

// checkPulses lets the policy have the frame that is held if the host has said
// nothing for too long.
func (d *dma) checkPulses(which Direction) {
	if !d.movers[which].Hosted() {
		return
	}
	d.clock.look() // deadlines are shorter than the time between two looks may be
	if d.clock.now-d.since[which] > d.deadline {
		d.movers[which].Release()
		d.timeouts++
	}
}

// report writes the progress counters of a direction to host memory, if the host
// wants them.
func (d *dma) report(which Direction) {
	if d.area == 0 || !d.pulses[which] {
		return
	}
	s := d.movers[which].State()
	p := &d.progress[which]
	p.Frame, p.Length, p.Arrived, p.Sent, p.Queued = s.Frame, uint32(s.Length), uint32(s.Arrived), uint32(s.Sent), uint32(s.Queued)
	p.Flags = 0
	if s.Active {
		p.Flags = datasheet.ProgressActive
	}
	at := datasheet.ProgressAt(d.regions.whole(d.area+uint64(which)*datasheet.ProgressSize, datasheet.ProgressSize, true))
	if at == nil {
		for which := range directions {
			d.setPulses(which, false)
		}
		return
	}
	at.Store(p)
}

// transferLog is a ring of records in host memory, one for each transfer of each
// data movement engine. While it is off, a mover only asks whether there is one.
type transferLog struct {
	on       bool
	iova     uint64
	log2     uint8
	producer uint32 // free-running
	consumer uint32 // as the host said last
	lost     uint32
	sides    [directions]logSide
}

// logSide is the log as a mover sees it.
type logSide struct {
	dma       *dma
	direction Direction
	first     uint32 // frame that is packet 0
}
