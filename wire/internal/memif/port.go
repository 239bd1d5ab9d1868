package memif

import (
	"crypto/subtle"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/wire/internal/ends"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/protocol"
)

// Port is one end of a memif connection, a wire.Port. Reserve, Commit and Flush
// may be used by one goroutine while another uses Receive and Release.
type Port struct {
	options Options
	mtu     int

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

	wake, link ends.Hook
	// bell calls the port's goroutine.
	bell    *event
	stopped chan struct{}
	server  *server // of the Server role

	mu sync.Mutex
	// pulled and closed: SetLink(false) and Close were called.
	pulled, closed bool
	// visitor is a client that the server has let in, for the port's goroutine
	// to pick up; busy from then on until its connection has ended.
	visitor *talk
	busy    bool

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
	p := &Port{options: o, mtu: o.MTU, stopped: make(chan struct{})}
	p.tx.init()
	p.rx.init()
	if p.bell, err = newEvent(); err != nil {
		return nil, p.fail("open", "", err, "check ulimit -n")
	}
	if o.Role == Server {
		if p.server, err = serve(p); err != nil {
			p.bell.close()
			return nil, err
		}
	}
	go p.run()
	return p, nil
}

// MTU returns the largest frame that can be sent, in bytes.
func (p *Port) MTU() int { return p.mtu }

// Checksum returns false: memory does not damage frames.
func (p *Port) Checksum() bool { return false }

// LinkUp reports whether there is a peer.
func (p *Port) LinkUp() bool { return p.current.Load() != nil }

// SetWake is described at wire.Port. While a function is set, the peer is asked
// for interrupts when no frames come, unless Options.Polling is set.
func (p *Port) SetWake(f func()) {
	p.wake.Set(f)
	p.interrupts.Store(f != nil && !p.options.Polling)
	p.bell.signal()
}

// OnLink is described at wire.Port.
func (p *Port) OnLink(f func()) { p.link.Set(f) }

// SetLink is described at wire.Port. A port that is unplugged ends its
// connection; once it is plugged in again the link is up as soon as there is a
// new one.
func (p *Port) SetLink(up bool) {
	p.mu.Lock()
	p.pulled = !up
	if !up {
		p.current.Store(nil)
	}
	p.mu.Unlock()
	p.bell.signal()
	p.link.Call()
}

// Close ends the connection and waits until the port's goroutine has ended. A
// frame that is reserved or held stays readable and writable.
func (p *Port) Close() error {
	p.wake.Set(nil)
	p.link.Set(nil)
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
	if p.server != nil {
		return p.server.leave(p)
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
func (p *Port) publish(s *session) bool {
	p.masked.Store(true) // as all rings begin
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.pulled || p.closed {
		return false
	}
	p.peerName, p.peerInterface = s.peerName, s.peerInterface
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

// letIn takes a client that wants to talk to this port. It returns why not,
// empty if it does.
func (p *Port) letIn(t *talk, init protocol.Init) (why string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.pulled || p.closed:
		return "interface is down"
	case p.busy:
		return "already connected"
	case init.Mode != protocol.ModeEthernet:
		return "only Ethernet mode"
	case p.options.Secret != "" && init.Secret == "":
		return "secret required"
	case p.options.Secret != "" && !same(p.options.Secret, init.Secret):
		return "incorrect secret"
	}
	p.busy, p.visitor = true, t
	p.bell.signal()
	return ""
}

// same compares secrets in a time that does not depend on what is in them.
func same(a, b string) bool { return subtle.ConstantTimeCompare([]byte(a), []byte(b)) == 1 }
