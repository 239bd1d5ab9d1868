package engine

import (
	"time"

	"github.com/trapeze-nic/trapeze/engine/internal/memory"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// DMAState is what the registers of the DMA block tell.
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

// DMA returns the state of the data movement devices. It waits for a step to
// end.
func (e *Engine) DMA() DMAState {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := DMAState{Pulses: e.core.dma.pulses, Timeouts: e.core.dma.timeouts, Refused: e.core.dma.refused, Log: e.core.dma.log.on,
		LogProducer: e.core.dma.log.producer, LogConsumer: e.core.dma.log.consumer, LogLost: e.core.dma.log.lost}
	for d, m := range e.core.dma.movers {
		s.Movers[d] = m.State()
	}
	return s
}

// SetPulses has the host's pulses decide in direction d, instead of the policy,
// from the next frame on. Switching them off frees the frame that is held.
func (e *Engine) SetPulses(d Direction, on bool) {
	defer e.Wake()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.core.dma.setPulses(d, on)
	e.core.welcome()
}

// SetPulseDeadline bounds the time for which a frame waits for the host.
func (e *Engine) SetPulseDeadline(t time.Duration) {
	defer e.Wake()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.core.dma.deadline = t
}

// SetProgressArea has the progress counters of directions in which the host
// decides kept at bus address iova, a multiple of datasheet.ProgressSize; zero
// ends it.
func (e *Engine) SetProgressArea(iova uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.core.dma.area = iova
}

// Pulse lets n bytes more of the frame that is in progress in direction d move;
// frame is the low 8 bits of its number. A pulse that makes no sense changes
// nothing and is counted: Pulse returns false.
func (e *Engine) Pulse(d Direction, frame uint8, n uint32) bool {
	defer e.Wake()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.core.dma.movers[d].Pulse(frame, int(n)) {
		e.core.dma.refused++
		return false
	}
	return true
}

// Policy returns the delivery policy of a direction, where no program decides.
func (e *Engine) Policy(d Direction) pipeline.Policy {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.core.dma.policies[d]
}

// SetPolicy has p decide in direction d from the next frame on, until Reset;
// where a program decides, once it does no longer. Errors are
// *pipeline.ParameterError and change nothing.
func (e *Engine) SetPolicy(d Direction, p pipeline.Policy) error {
	e.mu.Lock()
	defer e.mu.Unlock()
	if _, err := pipeline.NewDevice(p, 1); err != nil {
		return err
	}
	e.core.dma.policies[d], e.core.dma.chosen = p, true
	e.core.welcome()
	e.core.dma.choosePolicy(d)
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
	g := &e.core.dma.log
	*g = transferLog{on: true, iova: iova, log2: log2, sides: g.sides}
	for d, m := range e.core.dma.movers {
		g.sides[d].first = m.Started()
		m.SetLog(&g.sides[d])
	}
	e.core.welcome()
	return true
}

// StopLog ends the log.
func (e *Engine) StopLog() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.core.dma.stopLog()
	e.core.welcome()
}

// TakeLog tells how many records of the log the host has taken, free-running. It
// returns false, and nothing changes, if the count goes backwards or beyond what
// was written, or if there is no log.
func (e *Engine) TakeLog(taken uint32) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	g := &e.core.dma.log
	if !g.on || taken-g.consumer > g.producer-g.consumer {
		return false
	}
	g.consumer = taken
	return true
}
