// Package line is one end of a wire of two rings of frames, one each way, in memory that both ends share. The
// documentation of package shm says what is in that memory. The other end may be hostile: what it can write is read
// once and checked, and where a frame lies is computed here.
package line

import (
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/atomicmem"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
)

// Pair has both directions as one end sees them.
type Pair struct {
	Tx    Sender
	Rx    Receiver
	Light bool           // a receiver makes the barriers that its sleep takes
	Slept *atomic.Uint64 // how often this end has asked to be woken
}

// NewPair makes one for frames of up to limit bytes from the other end.
func NewPair(to, from Half, limit int, light bool) Pair {
	return Pair{Tx: Sender{Half: to}, Rx: NewReceiver(from, limit), Light: light, Slept: new(atomic.Uint64)}
}

// Line is the data path of a port: one goroutine's at a time, but for Wake. Its methods are described at
// engine.Port, engine.Progressive and engine.Lossless.
type Line struct {
	Pair
	Wake ends.Hook // for frames that come

	owner Owner
	state *atomic.Uint32
	gone  uint32
	mtu   int
	local bool

	unlooked  uint32 // calls of Look since the last look at what the peer has released
	lookEvery uint32 // calls to the next one
	idle      uint32 // looks in vain since frame number asked
	asked     uint32
	scratch   []byte // takes frames that are lost
}

// Owner is the port of a line.
type Owner interface {
	// SettleSend and SettleReceive are called while the state is not zero. They report whether frames can be
	// sent, or received.
	SettleSend() bool
	SettleReceive() bool
	// WakePeer wakes the other end, which wants to be woken.
	WakePeer()
	// Broke says that the other end has broken the rules.
	Broke(why *PeerError)
}

// Options of a line.
type Options struct {
	Owner Owner
	// State says, if it is not zero, why the data path has to look up. With a bit of Gone frames are lost, and one that has
	// not arrived whole never will; with others frames wait.
	State *atomic.Uint32
	Gone  uint32
	MTU   int
	// Local says that the other end is in this process: looks at what it has released are not rare then.
	Local bool
}

// Open begins. Pair is the owner's to set.
func (l *Line) Open(o Options) {
	l.owner, l.state, l.gone, l.mtu, l.scratch, l.local = o.Owner, o.State, o.Gone, o.MTU, Aligned(o.MTU), o.Local
}

// takenEvery is the number of calls of Look to each look at what the peer has
// taken, since the word that says it is on a cache line that the peer writes: about as
// many rounds of an engine as that takes from core to core.
const takenEvery = 16

// takenAnswered is the same since a frame has come: that has acknowledged what was sent before. Each look takes
// the line away from the peer, whose next answer waits until it has come back.
const takenAnswered = 64

// MTU returns the largest frame in bytes.
func (l *Line) MTU() int { return l.mtu }

// Checksum returns false: memory does not damage frames.
func (l *Line) Checksum() bool { return false }

func (l *Line) Put(header uint64, b datasheet.ShortBeside, payload []byte, last bool) (mark uint32, ok bool) {
	if l.state.Load() != 0 || !l.Tx.put(header, b, payload, last) {
		return l.PutPair(header, b, payload, nil, last)
	}
	if last {
		if l.Tx.batch {
			l.Tx.Flush()
		}
		if !l.Light || atomic.LoadUint32(l.Tx.asleep) != 0 {
			l.notify()
		}
	}
	return l.Tx.number, true
}

func (l *Line) PutPair(header uint64, b datasheet.ShortBeside, first, second []byte, last bool) (mark uint32, ok bool) {
	if l.state.Load() != 0 || len(first)+len(second) > l.mtu-datasheet.HeaderSize {
		return 0, false
	}
	if !l.Tx.sendShort(header, b, first, second, last) {
		l.broke()
		return 0, false
	}
	if last {
		l.Tx.Flush()
		l.shown()
	}
	return l.Tx.number, true
}

func (l *Line) Next() (payload []byte, header uint64, b datasheet.ShortBeside, found engine.Found) {
	if l.state.Load() != 0 {
		return l.nextAny()
	}
	r := &l.Rx
	s := r.slot(r.number)
	w := atomic.LoadUint64(&s.word)
	if uint32(w>>flagShift) == uint32(numberOf(r.number)<<(numShift-flagShift)|flagShort|flagEnded) && w&lengthMask <= slotPayload && !r.held {
		r.out = true
		return s.payload[:w&lengthMask], atomic.LoadUint64(&s.header), datasheet.ShortBeside(w >> shownShift & lengthMask), engine.FoundShort
	}
	if w>>numShift != numberOf(r.number-r.count()) || r.held {
		return l.nextAny()
	}
	// In most looks no frame is there: the second line is fetched at each look.
	atomicmem.Fetch(&s.payload[firstLine])
	if r.number != r.freedNumber {
		r.Free()
	}
	if l.Wake.IsSet() {
		l.nothing()
	}
	return nil, 0, 0, engine.FoundNone
}

// nextAny is Next in any case.
func (l *Line) nextAny() (payload []byte, header uint64, b datasheet.ShortBeside, found engine.Found) {
	r := &l.Rx
	switch {
	case !r.held && l.state.Load() != 0 && !l.owner.SettleReceive():
	case !r.find():
		l.nothing()
	case r.short:
		return r.current(), r.header, r.beside, engine.FoundShort
	default:
		return nil, 0, 0, engine.FoundOther
	}
	return nil, 0, 0, engine.FoundNone
}

func (l *Line) Pass(tell bool) {
	r := &l.Rx
	if !r.out {
		if r.Release(); tell {
			r.Free()
		}
		return
	}
	r.out = false
	if r.number++; tell || r.number-r.freedNumber >= r.count()/8 {
		atomicmem.Store64(r.freed, uint64(r.number)<<32|uint64(r.tail))
		r.freedLast, r.freedNumber = r.tail, r.number
	}
}

func (l *Line) Look(urgent bool) uint32 {
	if l.Tx.taken != l.Tx.number && l.state.Load() == 0 {
		if l.unlooked++; urgent || l.local || l.unlooked >= l.lookEvery {
			l.unlooked, l.lookEvery = 0, takenEvery
			l.Tx.look()
			l.broke()
		}
	}
	return l.Tx.taken
}

// broke tells the owner if the peer has broken the rules.
func (l *Line) broke() bool {
	why := l.Tx.fault
	if why == nil {
		why = l.Rx.fault
	}
	if why != nil {
		l.Tx.fault, l.Rx.fault = nil, nil
		l.owner.Broke(why)
	}
	return why != nil
}

// Reserve has no room while frames wait; while they are lost it gives memory
// from which nothing is sent.
func (l *Line) Reserve(n int) []byte {
	if uint(n) > uint(l.mtu) {
		l.Tx.Abort()
		return nil
	}
	if l.state.Load() != 0 {
		if l.Tx.Abort(); !l.owner.SettleSend() {
			if l.state.Load()&l.gone == 0 {
				return nil
			}
			return l.scratch[:n:n]
		}
	}
	b := l.Tx.Reserve(n)
	if b == nil {
		l.broke()
	}
	return b
}

// lost reports whether what is sent does not arrive.
func (l *Line) lost() bool { return l.state.Load()&l.gone != 0 }

func (l *Line) Commit() {
	switch {
	case l.Tx.open:
		if l.lost() {
			l.Tx.Abort()
		} else {
			l.Tx.Finish()
		}
		l.notify()
	case l.lost():
		l.Tx.reserved = false
	case l.Tx.reserved:
		l.Tx.Commit()
	}
}

func (l *Line) Publish(n int) {
	if l.lost() {
		l.Abort()
	} else if l.Tx.Show(n) {
		l.notify()
	}
}

// Abort also gives up a frame that is only reserved.
func (l *Line) Abort() {
	told := l.Tx.open
	if l.Tx.Abort(); told {
		l.notify()
	}
}

func (l *Line) Flush() {
	if l.Tx.Flush() {
		l.shown()
	}
}

// shown follows what has shown the peer frames that were committed.
func (l *Line) shown() {
	if !l.local && l.Tx.heard != l.Rx.number {
		l.Tx.answer(l.Rx.number)
	}
	l.notify()
}

// Receive returns a frame in memory that the peer can write: a checker copies it first. Short frames are left to Next.
func (l *Line) Receive() []byte {
	if l.state.Load() != 0 && !l.owner.SettleReceive() {
		return nil
	}
	sure := l.Look(false) // before the look for frames
	if !l.Rx.find() {
		if !l.Rx.skipped {
			l.Tx.sure = sure
		}
		l.nothing()
		return nil
	}
	if l.lookEvery = takenAnswered; l.Rx.short {
		return nil
	}
	return l.Rx.current()
}

// Arrived: a frame that has not arrived whole when the peer leaves never will.
func (l *Line) Arrived() (n int, aborted bool) {
	n, aborted = l.Rx.Progress()
	l.broke()
	return n, aborted || !l.Rx.Whole() && l.lost()
}

func (l *Line) Release() { l.Rx.Release() }

func (l *Line) Free() { l.Rx.Free() }

func (l *Line) Mark() uint32 { return l.Tx.number }

func (l *Line) Taken() uint32 { return l.Tx.sure }

func (l *Line) AwaitTaken() { l.lookEvery = 1 }

// Room returns the position up to which the peer has released all frames, as Mark counts, and the bytes of the
// ring: 0 while frames are lost. There are slots for a frame in each 256 of them.
func (l *Line) Room() (taken, size uint32) {
	if l.lost() {
		return 0, 0
	}
	if l.Tx.look(); l.broke() {
		return 0, 0
	}
	return l.Tx.taken, uint32(len(l.Tx.frames))
}

// Idle says with AskMark that this end looks no more. It returns false if a frame is there. Else Taken is up
// to date.
func (l *Line) Idle() bool {
	if l.Look(true); l.state.Load() != 0 {
		return false
	}
	// A frame that was sent before is there to be seen, or is marked.
	l.AskMark()
	if l.Rx.find() || l.Rx.skipped || l.Rx.fault != nil {
		return false
	}
	l.Tx.sure = l.Tx.taken
	return true
}
