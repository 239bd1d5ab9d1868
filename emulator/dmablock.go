package emulator

import (
	"time"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// dmaRegisters are the registers of the DMA block that the host writes and the
// engine does not keep. Device.mu is held.
type dmaRegisters struct {
	policy   [2]datasheet.DMAPolicy // by engine.Direction, as minPulse
	minPulse [2]uint32
	deadline uint32 // microseconds
	progress uint64
	logBase  uint64
	logLog2  uint32
}

// preferences are those of policy "auto" in each direction.
var preferences = [2]pipeline.Preference{engine.Transmit: pipeline.EarlyBytes, engine.Receive: pipeline.FewTransfers}

// configuredDMA returns the registers after power-on, which show how the engine was
// configured.
func (d *Device) configuredDMA() dmaRegisters {
	r := dmaRegisters{deadline: datasheet.PulseDeadlineReset}
	for _, dir := range []engine.Direction{engine.Transmit, engine.Receive} {
		r.policy[dir], r.minPulse[dir] = describePolicy(d.engine.Policy(dir))
	}
	return r
}

// describePolicy returns the number of a policy and its size.
func describePolicy(p pipeline.Policy) (datasheet.DMAPolicy, uint32) {
	size := func(n int) uint32 { return uint32(min(max(n, 1), datasheet.MaxMinPulse)) }
	switch p := p.(type) {
	case pipeline.StoreAndForward:
		return datasheet.DMAPolicyStoreAndForward, engine.DefaultMinPulse
	case pipeline.Static:
		return datasheet.DMAPolicyStatic, size(p.Pulse)
	case pipeline.Within:
		switch in := p.Policy.(type) {
		case pipeline.Static:
			return datasheet.DMAPolicyCutThrough, size(in.Pulse)
		case pipeline.Eager:
			return datasheet.DMAPolicyEager, size(in.MinPulse)
		}
	case pipeline.Eager:
		return datasheet.DMAPolicyAMP, size(p.MinPulse)
	case *pipeline.Auto:
		return datasheet.DMAPolicyAuto, engine.DefaultMinPulse
	}
	return datasheet.DMAPolicyOwn, engine.DefaultMinPulse
}

// builtIn makes a policy by number; nil if the device has none of that number.
func builtIn(n datasheet.DMAPolicy, size int, dir engine.Direction) pipeline.Policy {
	switch n {
	case datasheet.DMAPolicyStoreAndForward:
		return pipeline.StoreAndForward{}
	case datasheet.DMAPolicyStatic:
		return pipeline.Static{Pulse: size}
	case datasheet.DMAPolicyCutThrough:
		return pipeline.Within{Policy: pipeline.Static{Pulse: size}, Buffers: 1}
	case datasheet.DMAPolicyEager:
		return pipeline.Within{Policy: pipeline.Eager{MinPulse: size}, Buffers: 2}
	case datasheet.DMAPolicyAMP:
		return pipeline.Eager{MinPulse: size}
	case datasheet.DMAPolicyAuto:
		return pipeline.NewAuto(preferences[dir])
	}
	return nil
}

// resetDMA resets the registers that the engine does not keep, and has policies that
// learn begin anew.
func (d *Device) resetDMA() {
	d.dma = d.configuredDMA()
	d.tellMinimum()
	for _, dir := range []engine.Direction{engine.Transmit, engine.Receive} {
		if d.dma.policy[dir] == datasheet.DMAPolicyAuto {
			d.applyPolicy(dir, d.dma.policy[dir], d.dma.minPulse[dir])
		}
	}
}

// applyPolicy has a built-in policy decide. It returns false, and nothing
// changes, if there is none of that number.
func (d *Device) applyPolicy(dir engine.Direction, n datasheet.DMAPolicy, size uint32) bool {
	p := builtIn(n, int(size), dir)
	if p == nil || d.engine.SetPolicy(dir, p) != nil {
		return false
	}
	d.dma.policy[dir], d.dma.minPulse[dir] = n, size
	return true
}

// setPolicy is a write to POLICY_TX or POLICY_RX.
func (d *Device) setPolicy(dir engine.Direction, v uint32) {
	if !d.applyPolicy(dir, datasheet.DMAPolicy(v), d.dma.minPulse[dir]) {
		d.badAccess()
	}
}

// setMinPulse is a write to MINPULSE_TX or MINPULSE_RX.
func (d *Device) setMinPulse(dir engine.Direction, v uint32) {
	if v < 1 || v > datasheet.MaxMinPulse {
		d.badAccess()
		return
	}
	if d.dma.policy[dir] == datasheet.DMAPolicyOwn {
		d.dma.minPulse[dir] = v // the policy of the device's configuration does not use it
	} else {
		d.applyPolicy(dir, d.dma.policy[dir], v)
	}
	d.tellMinimum()
}

// tellMinimum tells control programs what the MINPULSE registers say.
func (d *Device) tellMinimum() {
	for _, dir := range []engine.Direction{engine.Transmit, engine.Receive} {
		d.processor.SetMinimum(dir, d.dma.minPulse[dir])
	}
}

// setDMAControl is a write to DMA_CONTROL: all of it or nothing.
func (d *Device) setDMAControl(v uint32) {
	is := d.engine.DMAState()
	wantsLog := v&datasheet.DMAControlLog != 0
	if v&datasheet.DMAControlReserved != 0 ||
		wantsLog && !is.Log && !d.engine.StartLog(d.dma.logBase, uint8(min(d.dma.logLog2, 0xff))) {
		d.badAccess()
		return
	}
	if !wantsLog && is.Log {
		d.engine.StopLog()
	}
	d.engine.SetProgressArea(d.dma.progress) // it cannot be written while it is in use
	d.engine.SetPulses(engine.Transmit, v&datasheet.DMAControlHostTx != 0)
	d.engine.SetPulses(engine.Receive, v&datasheet.DMAControlHostRx != 0)
}

// dmaControl is the value that DMA_CONTROL reads as: the engine may have cleared a bit.
func dmaControl(s *engine.DMAState) (v uint32) {
	if s.Pulses[engine.Transmit] {
		v |= datasheet.DMAControlHostTx
	}
	if s.Pulses[engine.Receive] {
		v |= datasheet.DMAControlHostRx
	}
	if s.Log {
		v |= datasheet.DMAControlLog
	}
	return v
}

// pulse is a write to PULSE_TX or PULSE_RX. The engine counts what it refuses.
func (d *Device) pulse(dir engine.Direction, v uint32) {
	frame, n := datasheet.SplitPulse(v)
	d.engine.Pulse(dir, frame, n)
}

// setPulseDeadline is a write to PULSE_DEADLINE.
func (d *Device) setPulseDeadline(v uint32) {
	if v == 0 {
		d.badAccess()
		return
	}
	d.dma.deadline = v
	d.engine.SetPulseDeadline(time.Duration(v) * time.Microsecond)
}

// engineRegister returns the value of a register of a DMA engine.
func engineRegister(s *engine.DMAState, e datasheet.DMAEngine, offset uint32) uint32 {
	dir, outgoing := engine.Transmit, e == datasheet.EngineNetTx || e == datasheet.EngineHostRcv
	if e >= datasheet.EngineNetRcv {
		dir = engine.Receive
	}
	m := s.Movers[dir]
	moved := m.Arrived
	if outgoing {
		moved = m.Sent
	}
	switch offset {
	case datasheet.EngineRegFrame:
		return m.Frame
	case datasheet.EngineRegLength:
		return uint32(m.Length)
	case datasheet.EngineRegProgress:
		return uint32(moved)
	}
	switch {
	case !m.Active || moved == m.Length:
		return uint32(datasheet.DMAIdle)
	case outgoing && m.Held:
		return uint32(datasheet.DMAWaits)
	}
	return uint32(datasheet.DMABusy)
}
