package wire

import (
	"fmt"
	"math"
	"math/rand/v2"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/wire/internal/line"
)

// FaultOptions are probabilities, from 0 (never) to 1 (always), that are drawn
// for each frame sent. The tags are those of addresses, see package option.
type FaultOptions struct {
	// Loss drops the frame.
	Loss float64 `option:"loss" range:"0..1"`
	// Duplicate sends it twice.
	Duplicate float64 `option:"duplicate" range:"0..1"`
	// Reorder holds it back until 1 to 8 later frames have been sent.
	Reorder float64 `option:"reorder" range:"0..1"`
	// Corrupt inverts 1 to 3 adjacent bits of it.
	Corrupt float64 `option:"corrupt" range:"0..1"`
	// Seed chooses the faults. The same seed does the same to the same sequence
	// of frames.
	Seed uint64 `option:"seed"`
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
	filter
	chance FaultOptions
	rand   *rand.Rand

	committed uint64 // frames, lost ones included
	looks     int    // in vain, in a row
	held      [maxHeld]heldFrame
	waiting   int // held frames

	lost, duplicated, reordered, corrupted, frames atomic.Uint64
}

type heldFrame struct {
	buf []byte
	n   int
	due uint64 // goes out once so many frames are committed; zero: none is held
}

// NewFault makes a wire do wrong what a wire can do wrong, to the frames that are sent through this
// end. It owns the wire then; on error the caller keeps it. The port's [Stats] are [FaultyStats].
func NewFault(of Port, o FaultOptions) (Port, error) {
	if err := o.validate(); err != nil {
		return nil, err
	}
	f := &fault{filter: newFilter(of), chance: o,
		// The second word only has to differ from the first now and then.
		rand: rand.New(rand.NewPCG(o.Seed, ^o.Seed))}
	f.space, f.sent = line.Aligned(of.MTU()), f.tamper
	for i := range f.held {
		f.held[i].buf = make([]byte, of.MTU())
	}
	return f, nil
}

// Checksum returns true: frames may be damaged.
func (f *fault) Checksum() bool { return true }

// tamper sends a frame, or does something else; without a frame nothing has come.
func (f *fault) tamper(p []byte) {
	if p == nil {
		if f.looks++; f.looks >= idleLooks {
			f.looks = 0
			f.release(math.MaxUint64)
		}
		return
	}
	f.looks = 0
	f.committed++
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
		f.send(p)
		if twice {
			f.send(p)
			f.duplicated.Add(1)
		}
	}
	f.release(f.committed)
}

func (f *fault) draw(p float64) bool { return f.rand.Float64() < p }

// hold keeps a copy of a frame back, if there is room for it.
func (f *fault) hold(p []byte) bool {
	for i := range f.held {
		if h := &f.held[i]; h.due == 0 {
			h.n = copy(h.buf, p)
			h.due = f.committed + 1 + uint64(f.rand.IntN(maxHeld))
			f.waiting++
			return true
		}
	}
	return false
}

// release sends the held frames that are due once until frames have been committed.
func (f *fault) release(until uint64) {
	for i := 0; i < len(f.held) && f.waiting > 0; i++ {
		if h := &f.held[i]; h.due != 0 && h.due <= until {
			f.send(h.buf[:h.n])
			h.due = 0
			f.waiting--
		}
	}
}

// Stats may be called from any goroutine.
func (f *fault) Stats() FaultStats {
	return FaultStats{Frames: f.frames.Load(), Lost: f.lost.Load(), Duplicated: f.duplicated.Load(),
		Reordered: f.reordered.Load(), Corrupted: f.corrupted.Load()}
}
