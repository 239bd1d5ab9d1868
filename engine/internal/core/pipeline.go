package core

import (
	"cmp"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/internal/speed"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// Direction is one of the two ways of a payload through the NIC. Each has a
// data movement device of its own (package pipeline).
type Direction int

const (
	// Transmit: hostTx gathers from host memory into the wire's buffer, netTx
	// lets the wire have it.
	Transmit Direction = iota
	// Receive: netRcv counts what has arrived on the wire, hostRcv scatters it into
	// host memory.
	Receive
	Directions
)

func (d Direction) String() string {
	switch d {
	case Transmit:
		return "transmit"
	case Receive:
		return "receive"
	}
	return fmt.Sprintf("direction %d", int(d))
}

// Pipeline says how payloads cross the NIC. Every data frame with payload goes
// through the scheduler of package pipeline. Where transfers take their time, frames arrive in
// several buffers of the NIC while those before them leave. Elsewhere a frame arrives and leaves whole,
// which is one decision.
type Pipeline struct {
	// Send decides netTx, Receive decides hostRcv. Nil means a default: eager
	// with DefaultMinPulse where the wire hands frames over piece by piece
	// (Progressive, and no checksum), else store and forward. A policy that
	// learns belongs to one direction of one engine.
	Send, Receive pipeline.Policy
	// Burst is the number of bytes that hostTx gathers before netTx is asked, 64 to 65536;
	// speed.DefaultBurst if zero.
	Burst int
	// Bus is the speed of hostTx and hostRcv, 10^6 to 64*10^9 bytes per second. Zero: as
	// fast as the machine copies.
	Bus int64
	// HalfDuplex says that the bus carries one transfer at a time, of hostTx or of hostRcv.
	HalfDuplex bool
	// Buffers is the number of frames that the NIC holds in each direction where transfers take their time, 1
	// to MaxBuffers; DefaultBuffers if zero. Elsewhere a frame has left before the next arrives.
	Buffers int
	// Setup is the time that it takes to begin a transfer of either, at most 100 us: of hostTx
	// each frame, of hostRcv each piece.
	Setup time.Duration

	chosen bool // one of the policies is not a default
}

const (
	// DefaultMinPulse is the least that the default policies move, in bytes,
	// unless it ends the frame. Handing over less costs more than it gains: the
	// peer's look at a progress counter is a cache miss.
	DefaultMinPulse = 2048
	// DefaultBuffers and MaxBuffers are the frames that a NIC holds in each direction. The sources do not state
	// a number; Trapeze's firmware has several, bounded by the card's SRAM.
	DefaultBuffers, MaxBuffers = 4, 64
)

// setDefaults fills in what depends on the wire: whether frames cross it in
// pieces.
func (p *Pipeline) setDefaults(pieces bool) {
	var policy pipeline.Policy = pipeline.StoreAndForward{}
	if pieces {
		policy = pipeline.Eager{MinPulse: DefaultMinPulse}
	}
	p.chosen = p.Send != nil || p.Receive != nil
	p.Send, p.Receive = cmp.Or(p.Send, policy), cmp.Or(p.Receive, policy)
	p.Burst, p.Buffers = cmp.Or(p.Burst, speed.DefaultBurst), cmp.Or(p.Buffers, DefaultBuffers)
}

func (p *Pipeline) validate() error {
	if p.Burst < speed.MinBurst || p.Burst > speed.MaxBurst {
		return fmt.Errorf("%w: Pipeline.Burst %d is not in %d..%d", ErrConfig, p.Burst, speed.MinBurst, speed.MaxBurst)
	}
	if p.Buffers < 1 || p.Buffers > MaxBuffers {
		return fmt.Errorf("%w: Pipeline.Buffers %d is not in 1..%d", ErrConfig, p.Buffers, MaxBuffers)
	}
	if err := p.bus().Check(); err != nil {
		return fmt.Errorf("%w: Pipeline, Bus and Setup: %w", ErrConfig, err)
	}
	return nil
}

// bus is the speed of the way between host and NIC.
func (p *Pipeline) bus() speed.Path { return speed.Path{Rate: p.Bus, Setup: p.Setup} }

// psPerNS converts the engine's clock to the pipeline's.
const psPerNS = 1000
