package engine

import (
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine/internal/memory"
)

// dma is what the host sees and decides of the data movement devices: its
// pulses, the progress counters in its memory, the log (SPEC.md 2.9).
type dma struct {
	pulses   [directions]bool
	deadline time.Duration
	since    [directions]time.Duration // when the frame that is held began
	timeouts uint32
	refused  uint32
	area     uint64 // bus address of the progress counters; zero: none
	progress [directions]descriptors.Progress
	log      transferLog
}

// clearDMA switches off what the host has switched on.
func (e *Engine) clearDMA() {
	e.dma = dma{deadline: descriptors.PulseDeadlineReset * time.Microsecond}
	e.dma.log.e = e
	for d := range e.dma.log.sides {
		e.dma.log.sides[d] = logSide{log: &e.dma.log, direction: Direction(d)}
	}
}

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
	s := DMAState{Pulses: e.dma.pulses, Timeouts: e.dma.timeouts, Refused: e.dma.refused, Log: e.dma.log.on,
		LogProducer: e.dma.log.producer, LogConsumer: e.dma.log.consumer, LogLost: e.dma.log.lost}
	for d, m := range e.movers {
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
	e.setPulses(d, on)
}

func (e *Engine) setPulses(d Direction, on bool) {
	if e.dma.pulses[d] != on {
		e.dma.pulses[d] = on
		e.movers[d].SetPulses(on)
	}
}

// SetPulseDeadline bounds the time for which a frame waits for the host.
func (e *Engine) SetPulseDeadline(t time.Duration) {
	defer e.Wake()
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dma.deadline = t
}

// SetProgressArea has the progress counters of directions in which the host
// decides kept at bus address iova, a multiple of descriptors.ProgressSize; zero
// ends it.
func (e *Engine) SetProgressArea(iova uint64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.dma.area = iova
}

// Pulse lets n bytes more of the frame that is in progress in direction d move;
// frame is the low 8 bits of its number. A pulse that makes no sense changes
// nothing and is counted: Pulse returns false.
func (e *Engine) Pulse(d Direction, frame uint8, n uint32) bool {
	defer e.Wake()
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.movers[d].Pulse(frame, int(n)) {
		e.dma.refused++
		return false
	}
	return true
}

// hold notes that a frame begins whose transfers the host decides.
func (e *Engine) hold(d Direction) {
	e.look()
	e.dma.since[d] = e.now
}

// checkPulses lets the policy have the frame that is held if the host has been
// silent for too long.
func (e *Engine) checkPulses(d Direction) {
	if !e.movers[d].Hosted() {
		return
	}
	e.look() // deadlines are shorter than the time between two looks may be
	if e.now-e.dma.since[d] > e.dma.deadline {
		e.movers[d].Release()
		e.dma.timeouts++
	}
}

// report writes the progress counters of direction d to host memory, if the host
// wants them.
func (e *Engine) report(d Direction) {
	if e.dma.area == 0 || !e.dma.pulses[d] {
		return
	}
	s := e.movers[d].State()
	p := &e.dma.progress[d]
	p.Frame, p.Length, p.Arrived, p.Sent, p.Queued = s.Frame, uint32(s.Length), uint32(s.Arrived), uint32(s.Sent), uint32(s.Queued)
	p.Flags = 0
	if s.Active {
		p.Flags = descriptors.ProgressActive
	}
	at := descriptors.ProgressAt(e.regions.whole(e.dma.area+uint64(d)*descriptors.ProgressSize, descriptors.ProgressSize, true))
	if at == nil {
		for d := range directions {
			e.setPulses(d, false)
		}
		return
	}
	at.Store(p)
}
