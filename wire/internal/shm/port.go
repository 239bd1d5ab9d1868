package shm

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
)

// Port is one end of a wire between two processes. It implements wire.Port,
// engine.Progressive, engine.Lossless, engine.Lender and engine.Direct. It lends memory if
// Options.Share is set.
//
// While no peer is connected the link is down. A port looks for a peer, or waits
// for one, until it is closed.
type Port struct {
	ends.CreditEnd // of the session

	// The data path's: one goroutine's at a time.
	tx       sender
	rx       receiver
	mtu      int
	session  *session // that tx and rx belong to; nil for none
	scratch  []byte   // takes frames that are lost
	retired  *mapping // of a session before, in which a frame is still reserved
	borrowed bool     // bytes of the peer's memory are in use
	copies   uint32   // how often copying was written
	welcomes bool     // the peer may carry out operations

	// state says, if it is not zero, why the data path has to look up.
	state atomic.Uint32
	// fresh is a session that the data path has not turned to yet.
	fresh atomic.Pointer[session]

	options Options
	wake    ends.Hook
	link    ends.Hook
	loan    loan
	table   directTable // ours; nothing is in it if there is none
	tableFD int         // for the peer; negative: there is none
	// theirTable is that of the last session that had one, nil for none.
	theirTable atomic.Pointer[directTable]
	counts     counts
	maps       *mappings

	ctx      context.Context // over when the port is closed
	cancel   context.CancelFunc
	listener *listener // nil for who connects
	running  sync.WaitGroup
	closing  sync.Once

	plugMu sync.Mutex // of SetLink
	plug   uint32     // number of the last change

	mu      sync.Mutex
	live    *session // that is connected
	offers  map[uint32]*export
	lastID  uint32
	lastErr error

	paused *session // between Pause and Resume; of the goroutine that keeps it, and then of who pauses
}

var (
	_ ends.Port          = (*Port)(nil)
	_ engine.Progressive = (*Port)(nil)
	_ engine.Lossless    = (*Port)(nil)
	_ engine.Slots       = (*Port)(nil)
	_ engine.Lender      = (*Port)(nil)
	_ engine.Direct      = (*Port)(nil)
)

// Bits of Port.state.
const (
	// stateLost: there is no peer.
	stateLost uint32 = 1 << iota
	// stateFresh: there is a session that the data path has not turned to.
	stateFresh
	// statePulled and statePeerPulled: a plug is out.
	statePulled
	statePeerPulled
	// stateClosed: Close was called.
	stateClosed
	// stateRetired: there is memory to give back with the next Reserve.
	stateRetired

	// With a plug out frames wait. With any other bit they are lost, since there is no
	// peer, or another one.
	statePlugs = statePulled | statePeerPulled
	stateDown  = stateLost | statePlugs | stateClosed
)

// New opens one end of a wire. It returns once the socket is made, or, if
// there is a listener already, once the link is up; else the link comes up
// later, see OnLink. Errors are *Error, or wrap ends.ErrOptions. The context
// bounds New only.
func New(ctx context.Context, o Options) (*Port, error) {
	p, err := newPort(o)
	if err != nil {
		return nil, err
	}
	if err := p.open(ctx); err != nil {
		p.discard()
		return nil, err
	}
	p.makeScratch()
	return p, nil
}

// newPort makes a port without a peer.
func newPort(o Options) (*Port, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	p := &Port{options: o, mtu: o.MTU, offers: map[uint32]*export{}, maps: &mappings{}}
	p.loan.idle = make(chan struct{}, 1)
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.state.Store(stateLost)
	p.makeTable()
	return p, nil
}

// makeScratch ends the making of a port whose MTU is known.
func (p *Port) makeScratch() {
	p.scratch = make([]byte, p.mtu+lineSize)
	p.scratch = p.scratch[toLine(p.scratch):]
	// What the data path holds when the port is closed cannot be unmapped under
	// it. It is when no caller can reach the port any more.
	runtime.AddCleanup(p, func(m *mappings) { m.unmapAll() }, p.maps)
}

// MTU returns the largest frame in bytes.
func (p *Port) MTU() int { return p.mtu }

// Checksum returns false: memory does not damage frames.
func (p *Port) Checksum() bool { return false }

// Reserve is described at engine.Port. With a plug out there is no room; while there is
// no peer it gives memory from which nothing is sent.
func (p *Port) Reserve(n int) []byte {
	if uint(n) > uint(p.mtu) {
		p.tx.abort()
		return nil
	}
	if p.state.Load() != 0 && !p.settleSend() {
		if p.state.Load()&^statePlugs == 0 {
			return nil
		}
		return p.scratch[:n:n]
	}
	b := p.tx.reserve(uint32(n))
	if b == nil && p.tx.fault != nil {
		p.drop(p.tx.fault)
	}
	return b
}

// Commit is described at engine.Port.
func (p *Port) Commit() {
	switch {
	case p.tx.open:
		if p.state.Load()&^statePlugs != 0 {
			p.tx.abort()
		} else {
			p.tx.finish()
		}
		p.notify()
	case !p.tx.reserved:
	case p.state.Load()&^statePlugs != 0:
		p.tx.reserved = false
	default:
		p.tx.commit()
	}
}

// Wire is described at engine.Lossless.
func (p *Port) Wire() uint32 {
	if p.state.Load()&(stateFresh|stateClosed) == stateFresh && !p.rx.held {
		p.turn()
	}
	if p.session == nil || p.state.Load()&^statePlugs != 0 {
		return 0
	}
	return p.session.memory.number
}

// Mark is described at engine.Lossless.
func (p *Port) Mark() uint32 { return p.tx.number }

// SendShort is described at engine.Slots.
func (p *Port) SendShort(h datasheet.ShortHeader, b datasheet.ShortBeside, payload []byte, last bool) bool {
	if p.state.Load() != 0 || len(payload) > p.mtu-datasheet.HeaderSize {
		return false
	}
	if !p.tx.sendShort(packed(h), b, payload, last) {
		if p.tx.fault != nil {
			p.drop(p.tx.fault)
		}
		return false
	}
	if last {
		p.tx.flush()
		p.shown()
	}
	return true
}

// Short is described at engine.Slots.
func (p *Port) Short() (h datasheet.ShortHeader, b datasheet.ShortBeside, ok bool) {
	if !p.rx.short || !p.rx.held {
		return h, 0, false
	}
	return unpacked(p.rx.header), p.rx.beside, true
}

// Fill returns the memory for frames that the peer has not released: size bytes, of which those from
// freed to head are used. Positions are free-running, as Mark's. size is 0 without a peer.
func (p *Port) Fill() (freed, head, size uint32) {
	if p.state.Load()&^statePlugs != 0 {
		return 0, 0, 0
	}
	if p.tx.look(); p.tx.fault != nil {
		p.drop(p.tx.fault)
		return 0, 0, 0
	}
	return p.tx.freedSeen, p.tx.head, uint32(len(p.tx.frames))
}

// Taken is described at engine.Lossless.
func (p *Port) Taken() uint32 { return p.tx.sure }

// Hurry is described at engine.Lossless.
func (p *Port) Hurry() { p.tx.lookEvery = 1 }

// Break is described at engine.Lossless: it ends the session.
func (p *Port) Break() {
	if p.session != nil {
		p.abandon(ErrStuck)
		p.leave() // nothing is given back to the peer any more
	}
}

// takenEvery is the number of calls of Receive to each look at what the peer has
// taken, since the word that says it is on a cache line that the peer writes: about as
// many rounds of an engine as that takes from core to core.
const takenEvery = 16

// takenAnswered is the same since a frame has come: that has acknowledged what was sent before. Each look takes
// the line away from the peer, whose next answer waits until it has come back.
const takenAnswered = 64

// Flush is described at engine.Port.
func (p *Port) Flush() {
	if p.tx.flush() {
		p.shown()
	}
}

// shown follows what has shown the peer frames that were committed.
func (p *Port) shown() {
	if p.tx.heard != p.rx.number {
		p.tx.answer(p.rx.number)
	}
	p.notify()
}

// Publish is described at engine.Progressive.
func (p *Port) Publish(n int) {
	if p.state.Load()&^statePlugs != 0 {
		p.Abort()
		return
	}
	if p.tx.show(n) {
		p.notify()
	}
}

// Abort is described at engine.Progressive. It also gives up a frame that is
// only reserved.
func (p *Port) Abort() {
	told := p.tx.open
	p.tx.abort()
	if told {
		p.notify()
	}
}

// Receive is described at engine.Port. The frame is memory that the peer can
// write: a checker copies it first. What a peer has sent before it left
// arrives, unless another one has come meanwhile.
func (p *Port) Receive() []byte {
	if p.borrowed {
		p.giveBack()
	}
	if p.state.Load() != 0 && !p.settleReceive() {
		return nil
	}
	if p.tx.taken != p.tx.number {
		if p.tx.unlooked++; p.tx.unlooked >= p.tx.lookEvery {
			p.tx.unlooked, p.tx.lookEvery = 0, takenEvery
			if p.tx.look(); p.tx.fault != nil {
				p.drop(p.tx.fault)
			}
		}
	}
	sure := p.tx.taken // before the look for frames
	f := p.rx.take()
	if f == nil {
		if !p.rx.skipped {
			p.tx.sure = sure
		}
		p.nothing()
	} else {
		p.tx.lookEvery = takenAnswered
	}
	return f
}

// Arrived is described at engine.Progressive. A frame that has not arrived whole
// when the peer leaves never will.
func (p *Port) Arrived() (n int, aborted bool) {
	n, aborted = p.rx.progress()
	if p.rx.fault != nil {
		p.drop(p.rx.fault)
	}
	return n, aborted || p.rx.held && !p.rx.ended && p.state.Load()&(stateLost|stateClosed) != 0
}

// Release is described at engine.Port.
func (p *Port) Release() {
	if p.borrowed {
		p.giveBack()
	}
	p.rx.release()
}

// Free is described at engine.Lossless.
func (p *Port) Free() { p.rx.free() }

// LinkUp reports whether a peer is connected and both ends are plugged in.
func (p *Port) LinkUp() bool { return p.state.Load()&stateDown == 0 }

// OnLink is described at wire.Port.
func (p *Port) OnLink(f func()) { p.link.Set(f) }
