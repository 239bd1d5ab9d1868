package engine

import (
	"time"

	"github.com/trapeze-nic/trapeze/engine/internal/core"
	"github.com/trapeze-nic/trapeze/engine/internal/memory"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// DMAState holds the registers of the DMA block.
type DMAState struct {
	// Movers are the progress counters of each direction.
	Movers [2]memory.State
	// Pulses says of each direction whether the host decides.
	Pulses [2]bool
	// Timeouts counts frames for which the host's pulses came too late, Refused
	// pulses that made no sense. Both wrap.
	Timeouts, Refused uint32
	// Log says that transfers are logged.
	Log bool
	// LogProducer and LogConsumer are free-running counts of records. LogLost
	// counts those for which there was no room, and wraps.
	LogProducer, LogConsumer, LogLost uint32
}

// DMAState returns the state of the data movement devices. It waits for a step to
// end.
func (e *Engine) DMAState() DMAState {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := DMAState{Pulses: e.DMA.Pulses, Timeouts: e.DMA.Timeouts, Refused: e.DMA.Refused, Log: e.DMA.Log.On,
		LogProducer: e.DMA.Log.Producer, LogConsumer: e.DMA.Log.Consumer, LogLost: e.DMA.Log.Lost}
	for d, m := range e.DMA.Movers {
		s.Movers[d] = m.State()
	}
	return s
}

// SetPulses has the host's pulses decide in direction d, instead of the policy,
// from the next frame on. Switching them off frees the frame that is held.
func (e *Engine) SetPulses(d core.Direction, on bool) {
	defer e.Wake()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.DMA.SetPulses(d, on)
	e.RefreshPlain()
}

// SetPulseDeadline bounds the time for which a frame waits for the host.
func (e *Engine) SetPulseDeadline(t time.Duration) {
	defer e.Wake()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.DMA.Deadline = t
}

// SetProgressArea has the progress counters of directions in which the host
// decides kept at bus address iova, a multiple of datasheet.ProgressSize; zero
// ends it.
func (e *Engine) SetProgressArea(iova uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.DMA.Area = iova
}

// Pulse lets n bytes more of the frame that is in progress in direction d move;
// frame is the low 8 bits of its number. A pulse that makes no sense changes
// nothing and is counted: Pulse returns false.
func (e *Engine) Pulse(d core.Direction, frame uint8, n uint32) bool {
	defer e.Wake()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.DMA.Movers[d].Pulse(frame, int(n)) {
		e.DMA.Refused++
		return false
	}
	return true
}

// Policy returns the delivery policy of a direction, where no program decides.
func (e *Engine) Policy(d core.Direction) pipeline.Policy {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.DMA.Policies[d]
}

// SetPolicy has p decide in direction d from the next frame on, until Reset;
// where a program decides, once it does no longer. Errors are
// *pipeline.ParameterError and change nothing.
func (e *Engine) SetPolicy(d core.Direction, p pipeline.Policy) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := pipeline.NewDevice(p, 1); err != nil {
		return err
	}
	e.DMA.Policies[d], e.DMA.Chosen = p, true
	e.RefreshPlain()
	e.DMA.ChoosePolicy(d)
	return nil
}

// StartLog begins a log in the 2^log2 records at bus address iova, a multiple of
// datasheet.DMARecordSize; log2 is MinLogLog2 to MaxLogLog2 of package
// descriptors. It returns false, and nothing changes, if they are not.
func (e *Engine) StartLog(iova uint64, log2 uint8) bool {
	if iova == 0 || iova%datasheet.DMARecordSize != 0 || log2 < datasheet.MinLogLog2 || log2 > datasheet.MaxLogLog2 ||
		iova+datasheet.DMARecordSize<<log2 < iova {
		return false
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	g := &e.DMA.Log
	*g = core.TransferLog{On: true, IOVA: iova, Log2: log2, Sides: g.Sides}
	for d, m := range e.DMA.Movers {
		g.Sides[d].First = m.Started()
		m.SetLog(&g.Sides[d])
	}
	e.RefreshPlain()
	return true
}

// StopLog ends the log.
func (e *Engine) StopLog() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.DMA.StopLog()
	e.RefreshPlain()
}

// TakeLog tells how many records of the log the host has taken, free-running. It
// returns false, and nothing changes, if the count goes backwards or beyond what
// was written, or if there is no log.
func (e *Engine) TakeLog(taken uint32) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := &e.DMA.Log
	if !g.On || taken-g.Consumer > g.Producer-g.Consumer {
		return false
	}
	g.Consumer = taken
	return true
}
