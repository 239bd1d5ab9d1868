package shm

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
	"github.com/trapeze-nic/trapeze/wire/internal/line"
)

// Port is one end of a wire between two processes. It implements wire.Port,
// engine.Progressive, engine.Lossless and engine.Lender. It lends memory if
// Options.Share is set.
//
// While no peer is connected the link is down. A port looks for a peer, or waits
// for one, until it is closed.
type Port struct {
	ends.CreditEnd // of the session

	// The data path's: one goroutine's at a time.
	line.Line
	session  *session // that the line belongs to; nil for none
	retired  *mapping // of a session before, in which a frame is still reserved
	borrowed bool     // bytes of the peer's memory are in use
	copies   uint32   // how often copying was written
	welcomes bool     // the peer may carry out operations

	// state says, if it is not zero, why the data path has to look up.
	state atomic.Uint32
	// fresh is a session that the data path has not turned to yet.
	fresh atomic.Pointer[session]

	options Options
	link    ends.Hook
	loan    loan
	table   directTable // ours; nothing is in it if there is none
	tableFD int         // for the peer; negative: there is none
	// theirTable is that of the last session that had one, nil for none.
	theirTable atomic.Pointer[directTable]
	counts     counts

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
	kept    error // described at Kept

	paused *session // between Pause and Resume; of the goroutine that keeps it, and then of who pauses
}

var (
	_ ends.Port          = (*Port)(nil)
	_ engine.Progressive = (*Port)(nil)
	_ engine.Lossless    = (*Port)(nil)
	_ engine.Lender      = (*Port)(nil)
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

	// With a plug out frames wait. With a bit of stateGone they are lost, since there is no
	// peer, or another one.
	statePlugs = statePulled | statePeerPulled
	stateDown  = stateLost | statePlugs | stateClosed
	stateGone  = stateLost | stateFresh | stateClosed
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
	return p, nil
}

// newPort makes a port without a peer.
func newPort(o Options) (*Port, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	p := &Port{options: o, offers: map[uint32]*export{}}
	p.loan.idle = make(chan struct{}, 1)
	p.loan.theirs.Store(new([]borrowed))
	p.loan.lent.Store(new([]lent))
	p.ctx, p.cancel = context.WithCancel(context.Background())
	p.state.Store(stateLost)
	p.makeTable()
	return p, nil
}

// complete ends the making of a port whose MTU is known.
func (p *Port) complete() {
	p.Line.Open(line.Options{Owner: p, State: &p.state, Gone: stateGone, MTU: p.options.MTU})
}

func (p *Port) Wire() uint32 {
	if p.state.Load()&(stateFresh|stateClosed) == stateFresh && !p.Rx.Held() {
		p.turn()
	}
	if p.session == nil || p.state.Load()&stateGone != 0 {
		return 0
	}
	return p.session.memory.number
}

// Break ends the session.
func (p *Port) Break() {
	if p.session != nil {
		p.abandon(ErrStuck)
		p.leave() // nothing is given back to the peer any more
	}
}

// Receive returns a frame in memory that the peer can write: a checker copies it first. What a peer has
// sent before it left arrives, unless another one has come meanwhile. Short frames are left to Next.
func (p *Port) Receive() []byte {
	if p.borrowed {
		p.giveBack()
	}
	return p.Line.Receive()
}

func (p *Port) Release() {
	if p.borrowed {
		p.giveBack()
	}
	p.Line.Release()
}

func (p *Port) Pass(tell bool) {
	if p.borrowed {
		p.giveBack()
	}
	p.Line.Pass(tell)
}

// LinkUp reports whether a peer is connected and both ends are plugged in.
func (p *Port) LinkUp() bool { return p.state.Load()&stateDown == 0 }

func (p *Port) OnLink(f func()) { p.link.Set(f) }
