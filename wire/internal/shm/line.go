package shm

import (
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/atomicmem"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
)

// What follows is described at engine.Line: frames that stand in their slots cross without a
// call for each part of them.

// Line is described at engine.Lined.
func (p *Port) Line() engine.Line { return p }

// Put is described at engine.Line.
func (p *Port) Put(header uint64, b datasheet.ShortBeside, payload []byte, last bool) (mark uint32, ok bool) {
	if p.state.Load() != 0 || !p.tx.put(header, b, payload, last) {
		return p.put(header, b, payload, last)
	}
	if last {
		if p.tx.batch {
			p.tx.flush()
		}
		if !p.tx.light || atomic.LoadUint32(p.tx.asleep) != 0 {
			p.wakePeer()
		}
	}
	return p.tx.number, true
}

// put is Put for what is not as it mostly is.
func (p *Port) put(header uint64, b datasheet.ShortBeside, payload []byte, last bool) (mark uint32, ok bool) {
	if !p.SendShort(unpacked(header), b, payload, last) {
		return 0, false
	}
	return p.tx.number, true
}

// put is sendShort, which has the rules, for what most frames are. It returns false for others.
func (s *sender) put(header uint64, b datasheet.ShortBeside, payload []byte, last bool) bool {
	n, first := uint32(len(payload)), uint32(firstLine)
	if s.open || s.reserved || n > slotPayload || b > 1<<lengthBits-1 || s.number-s.taken > s.last {
		return false
	}
	to := s.slot(s.number)
	if n > first {
		if n <= lineSize {
			*(*[16]byte)(to.payload[n-16:]) = *(*[16]byte)(payload[n-16:])
		} else {
			copy(to.payload[firstLine:], payload[firstLine:])
		}
		*(*[firstLine]byte)(to.payload[:firstLine]) = *(*[firstLine]byte)(payload)
	} else {
		copy(to.payload[:firstLine], payload)
	}
	w := numberOf(s.number)<<numShift | (flagShort|flagEnded)<<flagShift | uint64(b)<<shownShift | uint64(n)
	to.header = header
	if last && !s.batch {
		atomicmem.Store64(&to.word, w)
	} else if s.batch {
		to.word = w
	} else {
		s.first, s.firstNumber, s.batch = w, s.number, true
	}
	s.number++
	return true
}

// Next is described at engine.Line.
func (p *Port) Next() (payload []byte, header uint64, b datasheet.ShortBeside, found engine.Found) {
	if p.state.Load() != 0 || p.borrowed {
		return nil, 0, 0, engine.FoundOther
	}
	s, w, found := p.rx.upcoming()
	if found != engine.FoundShort {
		if found == engine.FoundNone {
			if p.rx.number != p.rx.freedNumber {
				p.rx.free()
			}
			if p.wake.IsSet() {
				p.nothing()
			}
		}
		return nil, 0, 0, found
	}
	return s.payload[:w&lengthMask], atomic.LoadUint64(&s.header), datasheet.ShortBeside(w >> shownShift & lengthMask), engine.FoundShort
}

// upcoming looks at the slot of the next frame.
func (r *receiver) upcoming() (*slot, uint64, engine.Found) {
	s := r.slot(r.number)
	w := atomic.LoadUint64(&s.word)
	if uint32(w>>flagShift) == uint32(numberOf(r.number)<<(numShift-flagShift)|flagShort|flagEnded) && w&lengthMask <= slotPayload && !r.held {
		return s, w, engine.FoundShort
	}
	if w>>numShift != numberOf(r.number-r.count()) || r.held {
		return nil, 0, engine.FoundOther
	}
	// As none does: the second line is fetched at each look.
	atomicmem.Fetch(&s.payload[firstLine])
	return nil, 0, engine.FoundNone
}

// Pass is described at engine.Line.
func (p *Port) Pass(tell bool) {
	if p.rx.number++; tell || p.rx.number-p.rx.freedNumber >= p.rx.count()/8 {
		atomicmem.Store64(p.rx.freed, uint64(p.rx.number)<<32|uint64(p.rx.tail))
		p.rx.freedLast, p.rx.freedNumber = p.rx.tail, p.rx.number
	}
}

// Look is described at engine.Line.
func (p *Port) Look(urgent bool) uint32 {
	if p.state.Load() != 0 {
		return p.tx.taken
	}
	if p.tx.taken != p.tx.number {
		if p.tx.unlooked++; urgent || p.tx.unlooked >= p.tx.lookEvery {
			p.tx.unlooked, p.tx.lookEvery = 0, takenEvery
			if p.tx.look(); p.tx.fault != nil {
				p.drop(p.tx.fault)
			}
		}
	}
	return p.tx.taken
}

// Local is an end of a wire of which both ends are in this process: the same directions in other
// memory.
type Local struct {
	tx    sender
	rx    receiver
	slept atomic.Uint64
	// Down says, if it is not zero, that no frames pass; Wake is called for frames to the other end.
	Down *atomic.Uint32
	Wake *ends.Hook
}

// NewLocal makes both ends, with a ring of so many bytes each way, a power of two. mem is memory of LocalSize
// bytes, aligned to a line.
func NewLocal(mem []byte, ring, mtu int) (a, b *Local) {
	first, second := layHalves(mem, ring)
	first.prepare()
	second.prepare()
	a, b = &Local{}, &Local{}
	a.tx.half, b.rx.half, b.tx.half, a.rx.half = first, first, second, second
	for _, l := range []*Local{a, b} {
		l.rx.limit, l.rx.eighth, l.rx.slept = uint32(mtu), uint32(ring)/8, &l.slept
		l.tx.lookEvery = 1
	}
	return a, b
}

// NewLoop makes one end at which everything arrives again.
func NewLoop(mem []byte, ring, mtu int) *Local {
	first, _ := layHalves(mem, ring)
	first.prepare()
	a := &Local{}
	a.tx.half, a.rx.half = first, first
	a.rx.limit, a.rx.eighth, a.rx.slept, a.tx.lookEvery = uint32(mtu), uint32(ring)/8, &a.slept, 1
	return a
}

// LocalSize is the memory that both directions take.
func LocalSize(ring int) int { return fileSize(ring) }

// The methods that follow are those of Port, without a peer that may do anything.

func (l *Local) Reserve(n int) []byte { return l.tx.reserve(uint32(n)) }
func (l *Local) Unreserve()           { l.tx.reserved = false }
func (l *Local) Open() bool           { return l.tx.open }
func (l *Local) Finish()              { l.tx.finish() }
func (l *Local) Commit() {
	if l.tx.reserved {
		l.tx.commit()
	}
}
func (l *Local) Show(n int) bool { return l.tx.show(n) }
func (l *Local) Abort()          { l.tx.abort() }
func (l *Local) Flush() bool     { return l.tx.flush() }
func (l *Local) Mark() uint32    { return l.tx.number }

// Look is the mark up to which the other end has given frames back.
func (l *Local) Look(bool) uint32 {
	if l.tx.taken != l.tx.number {
		l.tx.look()
	}
	return l.tx.taken
}
func (l *Local) Take() []byte                   { return l.rx.take() }
func (l *Local) Skipped() bool                  { return l.rx.skipped }
func (l *Local) Progress() (n int, broken bool) { return l.rx.progress() }
func (l *Local) Whole() bool                    { return !l.rx.held || l.rx.ended }
func (l *Local) Release()                       { l.rx.release() }
func (l *Local) Free()                          { l.rx.free() }
func (l *Local) Pending() bool                  { return l.rx.number != l.rx.freedNumber }

// Discard drops what has arrived.
func (l *Local) Discard() {
	for l.rx.take() != nil {
		l.rx.release()
	}
}

// SendShort is described at engine.Slots.
func (l *Local) SendShort(h datasheet.ShortHeader, b datasheet.ShortBeside, payload []byte, last bool) bool {
	return l.tx.sendShort(packed(h), b, payload, last)
}

// Short is described at engine.Slots.
func (l *Local) Short() (h datasheet.ShortHeader, b datasheet.ShortBeside, ok bool) {
	if !l.rx.short || !l.rx.held {
		return h, 0, false
	}
	return unpacked(l.rx.header), l.rx.beside, true
}

// Put is described at engine.Line.
func (l *Local) Put(header uint64, b datasheet.ShortBeside, payload []byte, last bool) (mark uint32, ok bool) {
	if l.Down.Load() != 0 || !l.tx.put(header, b, payload, last) {
		if l.Down.Load() != 0 || len(payload) > int(l.rx.limit)-datasheet.HeaderSize || !l.tx.sendShort(header, b, payload, last) {
			return 0, false
		}
	}
	if last {
		if l.tx.batch {
			l.tx.flush()
		}
		l.Wake.Call()
	}
	return l.tx.number, true
}

// Next is described at engine.Line.
func (l *Local) Next() (payload []byte, header uint64, b datasheet.ShortBeside, found engine.Found) {
	if l.Down.Load() != 0 {
		return nil, 0, 0, engine.FoundOther
	}
	s, w, found := l.rx.upcoming()
	if found != engine.FoundShort {
		if found == engine.FoundNone && l.rx.number != l.rx.freedNumber {
			l.rx.free()
		}
		return nil, 0, 0, found
	}
	return s.payload[:w&lengthMask], s.header, datasheet.ShortBeside(w >> shownShift & lengthMask), engine.FoundShort
}

// Pass is described at engine.Line.
func (l *Local) Pass(tell bool) {
	if l.rx.number++; tell || l.rx.number-l.rx.freedNumber >= l.rx.count()/8 {
		atomicmem.Store64(l.rx.freed, uint64(l.rx.number)<<32|uint64(l.rx.tail))
		l.rx.freedLast, l.rx.freedNumber = l.rx.tail, l.rx.number
	}
}

// Fence has all processors that run this process execute a barrier.
func Fence() {
	if hasBarrier() {
		membarrier(barrierGlobalExpedited)
	}
}
