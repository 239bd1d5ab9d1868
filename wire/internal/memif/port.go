package memif

import (
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/wire/internal/ends"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/protocol"
)

// Port is one end of a memif connection, a wire.Port. Reserve, Commit and Flush
// may be used by one goroutine while another uses Receive and Release.
type Port struct {
	ends.Base
	options Options

	// current is the connection through which frames go; nil while the link is
	// down. Only the port's goroutine sets one; any goroutine ends it.
	current atomic.Pointer[session]

	_  [apart]byte
	tx transmitter
	_  [apart]byte
	rx receiver
	_  [apart]byte

	counters counters
	// interrupts: the peer shall interrupt us when a ring has been idle, and
	// masked: it was told not to for now.
	interrupts, masked atomic.Bool

	// bell calls the port's goroutine.
	bell     *event
	stopped  chan struct{}
	listener *protocol.Listener // of a server

	mu sync.Mutex
	// pulled and closed: SetLink(false) and Close were called.
	pulled, closed bool

	peerName, peerInterface string
	lastError               *ends.Error
}

var (
	_ ends.Port    = (*Port)(nil)
	_ ends.Drainer = (*Port)(nil)
)

// New makes a port. It connects as soon as there is a peer, and again whenever
// the connection has ended: until then the link is down. Errors wrap
// ends.ErrOptions, or are those of the operating system about the socket.
func New(o Options) (_ *Port, err error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	p := &Port{Base: ends.Base{Longest: o.MTU}, options: o, stopped: make(chan struct{})}
	p.tx.init()
	p.rx.init()
	if p.bell, err = newEvent(); err != nil {
		return nil, p.fail("open", "", err, hintFor(err))
	}
	if o.Role == Server {
		if p.listener, err = protocol.Listen(o.Socket); err != nil {
			p.bell.close()
			return nil, p.fail("listen", "", err, hintFor(err))
		}
	}
	k := &keeper{port: p, listener: p.listener, retry: firstRetry}
	go k.run()
	return p, nil
}

// LinkUp reports whether there is a peer.
func (p *Port) LinkUp() bool { return p.current.Load() != nil }

// SetWake: while a function is set, the peer is asked
// for interrupts when no frames come, unless Options.Polling is set.
func (p *Port) SetWake(f func()) {
	p.Wake.Set(f)
	p.interrupts.Store(f != nil && !p.options.Polling)
	p.bell.signal()
}

// SetLink unplugs the port, which ends its connection; once it is plugged in again the link is up as soon as there is a
// new one.
func (p *Port) SetLink(up bool) {
	p.mu.Lock()
	p.pulled = !up
	if !up {
		p.current.Store(nil)
	}
	p.mu.Unlock()
	p.bell.signal()
	p.Link.Call()
}

// Close ends the connection and waits until the port's goroutine has ended. A
// frame that is reserved or held stays readable and writable.
func (p *Port) Close() error {
	p.Wake.Set(nil)
	p.Link.Set(nil)
	p.mu.Lock()
	first := !p.closed
	p.closed = true
	p.current.Store(nil)
	p.mu.Unlock()
	p.bell.signal()
	<-p.stopped
	if !first {
		return nil
	}
	p.bell.close()
	if p.listener != nil {
		if err := p.listener.Close(); err != nil {
			return p.fail("close", "", err, "")
		}
	}
	return nil
}

func (p *Port) plugged() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.pulled && !p.closed
}

func (p *Port) isClosed() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.closed
}

// publish lets frames flow through s, unless the plug was pulled meanwhile.
func (p *Port) publish(s *session, peerName, peerInterface string) bool {
	p.masked.Store(true) // as all rings begin
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pulled || p.closed {
		return false
	}
	p.peerName, p.peerInterface = peerName, peerInterface
	p.current.Store(s)
	return true
}

// broken ends s because of what was found in its memory. It is called by those
// who send and receive.
func (p *Port) broken(s *session, err error) {
	if s.failure.CompareAndSwap(nil, &err) {
		p.current.CompareAndSwap(s, nil)
		p.bell.signal()
	}
}

// guard runs f, which touches memory of s that may have vanished. It reports
// whether all was well.
func (p *Port) guard(s *session, f func()) bool {
	if err := s.careful(f); err != nil {
		p.broken(s, err)
		return false
	}
	return true
}
