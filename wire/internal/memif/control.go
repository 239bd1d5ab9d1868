package memif

import (
	"errors"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/wire/internal/ends"
)

const (
	// firstRetry and lastRetry bound the time between a client's attempts to
	// connect, which doubles with each that fails. A connection that ended
	// because the peer has gone or a plug was pulled is no failure.
	firstRetry = 20 * time.Millisecond
	lastRetry  = 500 * time.Millisecond
)

// run is the port's goroutine. It makes connections, one after the other, and
// looks after them.
func (p *Port) run() {
	defer close(p.stopped)
	retry := firstRetry
	for !p.isClosed() {
		t, err := p.meet()
		switch {
		case err != nil:
			p.note(p.fail("connect", "", err, ""))
		case t == nil:
			continue // the bell has rung
		case p.connection(t):
			retry = firstRetry
		}
		if p.options.Role == Client && p.plugged() {
			_ = p.await(nil, time.Now().Add(retry))
			retry = min(2*retry, lastRetry)
		}
	}
	p.mu.Lock()
	t := p.visitor
	p.mu.Unlock()
	if t != nil {
		t.disconnect(ErrUnplugged)
	}
}

// meet returns a peer to talk to; nil if there may be one later.
func (p *Port) meet() (*talk, error) {
	if p.options.Role == Client && p.plugged() {
		return p.dial()
	}
	p.mu.Lock()
	t := p.visitor
	p.visitor = nil
	p.mu.Unlock()
	if t == nil {
		_ = p.await(nil, time.Time{})
	}
	return t, nil
}

// connection makes a connection and looks after it until it ends. It reports
// whether it was made and neither side has done anything wrong.
func (p *Port) connection(t *talk) (well bool) {
	op, begin := "connect", t.greet
	if p.options.Role == Server {
		op, begin = "accept", t.welcome
	}
	s, err := begin()
	if err == nil {
		why := p.transfer(t, s)
		p.free()
		t.disconnect(why)
		p.note(p.fail("transfer", t.peer, why, ""))
		well = errors.Is(why, ends.ErrGone) || errors.Is(why, ErrRefused) || errors.Is(why, ErrUnplugged)
	} else {
		p.free()
		t.disconnect(err)
		p.note(p.fail(op, t.peer, err, hintFor(err)))
	}
	return well
}

// free lets the next client in, before this one is told that it is out.
func (p *Port) free() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.busy = false
}

func hintFor(err error) string {
	switch {
	case errors.Is(err, ErrRefused):
		return "check id, secret and number of queues at both ends"
	case errors.Is(err, unix.EMFILE), errors.Is(err, unix.ENFILE):
		return "check ulimit -n"
	}
	return ""
}

// transfer lets frames flow until the connection ends, and returns why it has.
func (p *Port) transfer(t *talk, s *session) error {
	defer p.link.Call()
	defer s.end()
	if !p.publish(s) {
		return ErrUnplugged
	}
	defer p.current.CompareAndSwap(s, nil)
	p.counters.connections.Add(1)
	p.link.Call()
	w := watch{port: p, session: s, talk: t}
	return w.run()
}
