package wire

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/line"
)

// FaultOptions are probabilities, from 0 (never) to 1 (always), that are drawn
// for each frame sent.
type FaultOptions struct {
	// Loss drops the frame.
	Loss float64
	// Duplicate sends it twice.
	Duplicate float64
	// Reorder holds it back until 1 to 8 later frames have been sent.
	Reorder float64
	// Corrupt inverts 1 to 3 adjacent bits of it.
	Corrupt float64
	// Seed chooses the faults. The same seed does the same to the same sequence
	// of frames.
	Seed uint64
}

func (o *FaultOptions) validate() error {
	for _, p := range []struct {
		name string
		v    float64
	}{{"Loss", o.Loss}, {"Duplicate", o.Duplicate}, {"Reorder", o.Reorder}, {"Corrupt", o.Corrupt}} {
		if math.IsNaN(p.v) || p.v < 0 || p.v > 1 {
			return fmt.Errorf("%w: %s %v is not in 0..1", ErrOptions, p.name, p.v)
		}
	}
	return nil
}

// FaultStats says what a wire with faults has done so far.
type FaultStats struct {
	Frames     uint64 `json:"frames" help:"Frames that were sent through this end." unit:"frames"`
	Lost       uint64 `json:"lost" help:"Frames that were dropped." unit:"frames"`
	Duplicated uint64 `json:"duplicated" help:"Frames that were sent twice." unit:"frames"`
	Reordered  uint64 `json:"reordered" help:"Frames that were held back." unit:"frames"`
	Corrupted  uint64 `json:"corrupted" help:"Frames with inverted bits." unit:"frames"`
}

const (
	// maxHeld is the number of frames that can be held back at one time, and how many
	// later frames may overtake one. It is well within the 64 frames for which
	// a receiver keeps track of what is missing (datasheet.Header).
	maxHeld = 8
	// maxInverted: CRC-32C notices any three inverted bits in frames of up to
	// 2^31 bits (Castagnoli, Bräuer, Herrmann 1993), so a damaged frame is
	// never taken for a good one.
	maxInverted = 3
	// idleLooks is the number of times that the owner looks for frames in vain before those
	// that are held back go out: without it the last frame would be lost.
	idleLooks = 64
)

// fault is one end of a wire with faults.
type fault struct {
	inner
	parts  engine.Progressive // inner, if frames may come in parts
	chance FaultOptions
	rand   *rand.Rand

	frame   []byte // reserved in inner
	spare   []byte // for duplicates
	sent    uint64 // frames committed, lost ones included
	idle    int
	held    [maxHeld]heldFrame
	waiting int // held frames

	lost, duplicated, reordered, corrupted, frames atomic.Uint64
}

type heldFrame struct {
	buf []byte
	n   int
	due uint64 // goes out once sent reaches it; zero: none is held
}

// NewFault makes a wire do wrong what a wire can do wrong, to the frames that are sent through this
// end. It owns the wire then; on error the caller keeps it. The port's [Stats] are [FaultyStats].
func NewFault(of Port, o FaultOptions) (Port, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	f := &fault{inner: of, chance: o, spare: line.Aligned(of.MTU()),
		// The second word only has to differ from the first now and then.
		rand: rand.New(rand.NewPCG(o.Seed, ^o.Seed))}
	f.parts, _ = of.(engine.Progressive)
	for i := range f.held {
		f.held[i].buf = line.Aligned(of.MTU())
	}
	return f, nil
}

// Checksum returns true: frames may be damaged.
func (f *fault) Checksum() bool { return true }

// Reserve is described at engine.Port.
func (f *fault) Reserve(n int) []byte {
	f.frame = f.inner.Reserve(n)
	return f.frame
}

// Commit is described at engine.Port.
func (f *fault) Commit() {
	p := f.frame
	if p == nil {
		return
	}
	f.frame = nil
	f.idle = 0
	f.sent++
	f.frames.Add(1)
	// Each fate is drawn for each frame, so that one probability does not shift
	// the draws of another.
	lose, twice := f.draw(f.chance.Loss), f.draw(f.chance.Duplicate)
	late, damage := f.draw(f.chance.Reorder), f.draw(f.chance.Corrupt)
	if damage && len(p) > 0 {
		f.corrupted.Add(1)
		first := f.rand.IntN(8 * len(p))
		for i := range 1 + f.rand.IntN(maxInverted) {
			bit := (first + i) % (8 * len(p))
			p[bit/8] ^= 1 << (bit % 8)
		}
	}
	switch {
	case lose:
		f.lost.Add(1)
	case late && f.hold(p):
		f.reordered.Add(1)
	default:
		n := 0
		if twice {
			n = copy(f.spare, p)
		}
		f.inner.Commit()
		if twice && f.send(f.spare[:n]) {
			f.duplicated.Add(1)
		}
	}
	f.release(f.sent)
}

func (f *fault) draw(p float64) bool { return f.rand.Float64() < p }

// hold keeps a copy of a frame back, if there is room for it.
func (f *fault) hold(p []byte) bool {
	for i := range f.held {
		if h := &f.held[i]; h.due == 0 {
			h.n = copy(h.buf, p)
			h.due = f.sent + 1 + uint64(f.rand.IntN(maxHeld))
			f.waiting++
			return true
		}
	}
	return false
}

// release sends the held frames that are due once until frames have been sent.
// Those that the wire has no room for wait on. It reports whether it sent any.
func (f *fault) release(until uint64) bool {
	any := false
	for i := 0; i < len(f.held) && f.waiting > 0; i++ {
		if h := &f.held[i]; h.due != 0 && h.due <= until && f.send(h.buf[:h.n]) {
			h.due = 0
			f.waiting--
			any = true
		}
	}
	return any
}

func (f *fault) send(frame []byte) bool {
	q := f.inner.Reserve(len(frame))
	if q == nil {
		return false
	}
	copy(q, frame)
	f.inner.Commit()
	return true
}

// Receive is described at engine.Port.
func (f *fault) Receive() []byte {
	p := receiveWhole(f.inner, f.parts)
	if p == nil && f.waiting > 0 && f.frame == nil {
		if f.idle++; f.idle >= idleLooks {
			f.idle = 0
			if f.release(math.MaxUint64) {
				f.inner.Flush()
			}
		}
	}
	return p
}

// Claim is described at Claimer.
func (f *fault) Claim(mac datasheet.MAC) error { return claim(f.inner, mac) }

// Drained is described at Drainer.
func (f *fault) Drained() bool { return drained(f.inner) }

// Stats may be called from any goroutine.
func (f *fault) Stats() FaultStats {
	return FaultStats{Frames: f.frames.Load(), Lost: f.lost.Load(), Duplicated: f.duplicated.Load(),
		Reordered: f.reordered.Load(), Corrupted: f.corrupted.Load()}
}

// receiveWhole is Receive of a port for who does not know of parts: a frame that comes in parts
// comes when all of it is there. parts is the port, if it is engine.Progressive.
func receiveWhole(port Port, parts engine.Progressive) []byte {
	p := port.Receive()
	if p == nil || parts == nil {
		return p
	}
	n, aborted := parts.Arrived()
	switch {
	case aborted:
		port.Release()
		return nil
	case n < len(p):
		return nil
	}
	return p
}

// claim has a port make a claim, if it wants any.
func claim(port Port, mac datasheet.MAC) error {
	if c, ok := port.(Claimer); ok {
		return c.Claim(mac)
	}
	return nil
}

// drained asks a port whether it is drained, if it can tell.
func drained(port Port) bool {
	d, ok := port.(Drainer)
	return !ok || d.Drained()
}
