package core

import (
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/engine/internal/memory"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// dma is the host's part in the data movement devices: its
// pulses, the progress counters in its memory, the log (SPEC.md 2.9).
type dma struct {
	clock   *Clock
	program *Program
	regions *Regions
	config  Pipeline
	timed   bool // transfers take their time

	Movers [Directions]*memory.Mover
	// Policies decide where neither a program nor the host does.
	Policies [Directions]pipeline.Policy
	Chosen   bool // one of them is not a default

	Pulses   [Directions]bool
	Deadline time.Duration
	since    [Directions]time.Duration // when the frame that is held began
	Timeouts uint32
	Refused  uint32
	Area     uint64 // bus address of the progress counters; zero: none
	progress [Directions]datasheet.Progress
	Log      TransferLog
}

// clear switches off what the host has switched on, and goes back to the configured
// policies, with new movers.
func (d *dma) clear() error {
	policies := [Directions]pipeline.Policy{d.config.Send, d.config.Receive}
	*d = dma{clock: d.clock, program: d.program, regions: d.regions, config: d.config, timed: d.timed,
		Policies: policies, Chosen: d.config.chosen, Deadline: datasheet.PulseDeadlineReset * time.Microsecond}
	clock := func() int64 { return int64(d.clock.Read()) * psPerNS }
	for i, policy := range policies {
		c := memory.Config{Policy: policy, Clock: clock, Slow: d.timed}
		if d.timed {
			c.Buffers = d.config.Buffers
		}
		m, err := memory.New(c)
		if err != nil {
			return fmt.Errorf("%w: Pipeline, %v: %w", ErrConfig, Direction(i), err)
		}
		d.Movers[i], d.Log.Sides[i] = m, logSide{dma: d, direction: Direction(i)}
	}
	return nil
}

// ChoosePolicy has program or policy decide in a direction from the next frame on.
func (d *dma) ChoosePolicy(which Direction) {
	p := d.Policies[which]
	if d.program.Asks(pulseHooks[which]) {
		p = pulseProgram{d, which}
	}
	_ = d.Movers[which].SetPolicy(p) // neither is nil
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
	if hook := pulseHooks[d]; p.program.Asks(hook) {
		n, ok := p.program.Processor.Pulse(d, v, p.Movers[d].Asked())
		if ok {
			return n
		}
		p.program.Hooks &^= hook.Set()
		p.ChoosePolicy(d)
	}
	return p.Policies[d].Next(v)
}

func (d *dma) SetPulses(which Direction, on bool) {
	if d.Pulses[which] != on {
		d.Pulses[which] = on
		d.Movers[which].SetPulses(on)
	}
}

// hold notes that a frame begins whose transfers the host decides.
func (d *dma) hold(which Direction) {
	d.clock.Look()
	d.since[which] = d.clock.Now
}

// checkPulses lets the policy have the frame that is held if the host has said
// nothing for too long.
func (d *dma) checkPulses(which Direction) {
	if !d.Movers[which].Hosted() {
		return
	}
	d.clock.Look() // deadlines are shorter than the time between two looks may be
	if d.clock.Now-d.since[which] > d.Deadline {
		d.Movers[which].Release()
		d.Timeouts++
	}
}

// report writes the progress counters of a direction to host memory, if the host
// wants them.
func (d *dma) report(which Direction) {
	if d.Area == 0 || !d.Pulses[which] {
		return
	}
	s := d.Movers[which].State()
	p := &d.progress[which]
	p.Frame, p.Length, p.Arrived, p.Sent, p.Queued = s.Frame, uint32(s.Length), uint32(s.Arrived), uint32(s.Sent), uint32(s.Queued)
	p.Flags = 0
	if s.Active {
		p.Flags = datasheet.ProgressActive
	}
	at := datasheet.ProgressAt(d.regions.whole(d.Area+uint64(which)*datasheet.ProgressSize, datasheet.ProgressSize, true))
	if at == nil {
		for which := range Directions {
			d.SetPulses(which, false)
		}
		return
	}
	at.Store(p)
}

// TransferLog is a ring of records in host memory, one for each transfer of each
// data movement engine. While it is off, a mover only asks whether there is one.
type TransferLog struct {
	On       bool
	IOVA     uint64
	Log2     uint8
	Producer uint32 // free-running
	Consumer uint32 // as the host said last
	Lost     uint32
	Sides    [Directions]logSide
}

// logSide is the log as a mover sees it.
type logSide struct {
	dma       *dma
	direction Direction
	First     uint32 // frame that is packet 0
}

func (d *dma) StopLog() {
	d.Log.On = false
	for _, m := range d.Movers {
		m.SetLog(nil)
	}
}

// Transfer implements memory.Log.
func (s *logSide) Transfer(t memory.Transfer) {
	g := &s.dma.Log
	packet := t.Frame - s.First
	if int32(packet) < 0 {
		return // it was in progress when the log began
	}
	if g.Producer-g.Consumer >= 1<<g.Log2 {
		g.Lost++
		return
	}
	at := g.IOVA + uint64(g.Producer&(1<<g.Log2-1))*datasheet.DMARecordSize
	records := datasheet.DMARecordsAt(s.dma.regions.whole(at, datasheet.DMARecordSize, true))
	if records == nil {
		s.dma.StopLog()
		return
	}
	r := &records[0]
	r.Start, r.End, r.Packet, r.Bytes = uint64(t.Start/psPerNS), uint64(t.End/psPerNS), packet, uint32(t.Bytes)
	r.Engine = engineOf[s.direction][0]
	if t.Outgoing {
		r.Engine = engineOf[s.direction][1]
	}
	const most = int(datasheet.DMARecordQueued >> 16)
	flags := datasheet.PhaseOf(g.Producer, g.Log2) | uint32(t.Buffer)<<1&datasheet.DMARecordBuffer | uint32(min(max(t.Queued, 0), most))<<16
	if t.Control {
		flags |= datasheet.DMARecordControl
	}
	r.Publish(flags)
	g.Producer++
}

// engineOf names the incoming and the outgoing engine of each direction.
var engineOf = [Directions][2]datasheet.DMAEngine{
	Transmit: {datasheet.EngineHostTx, datasheet.EngineNetTx},
	Receive:  {datasheet.EngineNetRcv, datasheet.EngineHostRcv},
}
