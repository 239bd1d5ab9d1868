package engine

import (
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/pipeline"
)

// Direction is one of the two ways of a payload through the NIC. Each has a
// data movement device of its own (package pipeline).
type Direction int

const (
	// Transmit: hostTx gathers from host memory into the wire's buffer, netTx
	// lets the wire have it.
	Transmit Direction = iota
	// Receive: netRcv is what has arrived on the wire, hostRcv scatters it into
	// host memory.
	Receive
	directions
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
// through the scheduler of package pipeline: one frame at a time in each
// direction, those behind it wait on the wire or in the host's queue. Where a
// frame arrives and leaves whole, as most do, that is one decision.
type Pipeline struct {
	// Send decides netTx, Receive decides hostRcv. Nil means a default: eager
	// with DefaultMinPulse where the wire hands frames over piece by piece
	// (Progressive, and no checksum), else store and forward. A policy that
	// learns belongs to one direction of one engine.
	Send, Receive pipeline.Policy
	// Burst is how many bytes hostTx gathers before netTx is asked, 64 to 65536;
	// DefaultBurst if zero.
	Burst int
	// Bus is how fast hostTx and hostRcv move, MinBus to MaxBus bytes per second. Zero: as
	// fast as the machine copies.
	Bus int64
	// Setup is how long it takes to begin a transfer of either, at most MaxSetup: of hostTx
	// each frame, of hostRcv each piece.
	Setup time.Duration
}

const (
	// DefaultBurst is the payload of a frame of the default wire in memory, so
	// that such frames take one decision. Larger ones are cut, so that a peer on
	// another processor copies along: of bursts of 2, 4 and 8 KiB these were the
	// best (BenchmarkEcho, frames of 64 KiB).
	DefaultBurst = 8192
	// DefaultMinPulse is the least that the default policies move, in bytes,
	// unless it ends the frame. Handing over less costs more than it gains: the
	// peer's look at a progress counter is a cache miss.
	DefaultMinPulse = 2048

	// MinBurst and MaxBurst bound Burst.
	MinBurst, MaxBurst = 64, 65536
	// MinBus and MaxBus bound Bus. With MinBus the largest frame takes 65 ms, well below the
	// time after which a peer is dead. With MaxBus the smallest burst takes the nanosecond
	// that the clock resolves.
	MinBus, MaxBus = 1_000_000, 64_000_000_000
	// MaxSetup bounds Setup: the largest frame in pieces of 64 bytes takes 0.1 s.
	MaxSetup = 100 * time.Microsecond
)

// setDefaults fills in what depends on the wire: whether frames cross it in
// pieces.
func (p *Pipeline) setDefaults(pieces bool) {
	var policy pipeline.Policy = pipeline.StoreAndForward{}
	if pieces {
		policy = pipeline.Eager{MinPulse: DefaultMinPulse}
	}
	if p.Send == nil {
		p.Send = policy
	}
	if p.Receive == nil {
		p.Receive = policy
	}
	if p.Burst == 0 {
		p.Burst = DefaultBurst
	}
}

func (p *Pipeline) validate() error {
	if p.Burst < MinBurst || p.Burst > MaxBurst {
		return fmt.Errorf("%w: Pipeline.Burst %d is not in %d..%d", ErrConfig, p.Burst, MinBurst, MaxBurst)
	}
	if p.Bus != 0 && (p.Bus < MinBus || p.Bus > MaxBus) {
		return fmt.Errorf("%w: Pipeline.Bus %d is not in %d..%d", ErrConfig, p.Bus, int64(MinBus), int64(MaxBus))
	}
	if p.Setup < 0 || p.Setup > MaxSetup {
		return fmt.Errorf("%w: Pipeline.Setup %v is not in 0..%v", ErrConfig, p.Setup, MaxSetup)
	}
	return nil
}

// psPerNS converts the engine's clock to the pipeline's.
const psPerNS = 1000
