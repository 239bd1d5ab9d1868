package shm

import (
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
	"github.com/trapeze-nic/trapeze/wire/internal/line"
)

// The state of the link is changed by the goroutines that keep the connection,
// and by the owner of the plug. The data path looks at one word, and acts on
// what it says when it holds no frame: nothing is unmapped under its hands.

func (p *Port) SettleReceive() bool {
	state := p.state.Load()
	for state&stateFresh != 0 && state&stateClosed == 0 {
		p.turn()
		state = p.state.Load()
	}
	switch {
	case state&stateLost != 0 && state&stateClosed == 0 && p.session != nil && !p.session.broken() && (p.Rx.Held() && p.Rx.Whole() || p.Rx.Late()): // Next may have found one
		return true
	case state&(stateLost|stateClosed) != 0:
		p.leave()
		if state&stateClosed != 0 {
			p.dropTable()
		}
		return false
	case state&statePlugs != 0:
		return false
	}
	return true
}

func (p *Port) SettleSend() bool {
	state := p.state.Load()
	if state&stateRetired != 0 {
		p.state.And(^stateRetired)
		p.retired.unmap()
		p.retired = nil
	}
	// A frame that was received from the old session may still be in use.
	if state&stateFresh != 0 && state&stateClosed == 0 && !p.Rx.Held() {
		p.turn()
	}
	return p.state.Load() == 0
}

// turn makes the data path use the fresh session.
func (p *Port) turn() {
	p.state.And(^stateFresh)
	s := p.fresh.Swap(nil)
	if s == nil {
		return // it has ended meanwhile
	}
	p.leave()
	p.session, p.Pair, p.CreditEnd = s, s.Pair, s.credits
	p.openTable()
}

// leave gives up the memory of a session that has ended. A frame that is held is
// lost.
func (p *Port) leave() {
	s := p.session
	if s == nil {
		return
	}
	s.void() // it cannot be told later
	if s.shared {
		p.closeTable()
		p.settle(s, p.Rx.Copying)
	}
	if p.Tx.Held() {
		// A goroutine may be writing into it.
		p.retired = s.memory
		p.state.Or(stateRetired)
	} else {
		s.unmap()
	}
	p.counts.aborted.Add(p.Rx.Aborted())
	p.session, p.Pair, p.CreditEnd = nil, line.Pair{}, ends.CreditEnd{}
}

// Broke ends the session that the data path uses.
func (p *Port) Broke(why *PeerError) { p.abandon(why) }

func (p *Port) WakePeer() {
	switch p.TakeAsleep() {
	case 0:
	case line.AsleepMark:
		p.session.markSelf()
	default:
		p.session.markSelf()
		p.session.bell.ring()
		p.counts.wakes.Add(1)
	}
}

// abandon ends the session that the data path uses.
func (p *Port) abandon(why error) {
	s := p.session
	p.mu.Lock()
	if p.live == s {
		p.state.Or(stateLost)
	}
	p.mu.Unlock()
	s.end(why)
}

// enter makes s the session that is connected.
func (p *Port) enter(s *session) {
	p.mu.Lock()
	p.live = s
	p.fresh.Store(s)
	for {
		// In one step: the link must not seem to be up without a session.
		old := p.state.Load()
		if p.state.CompareAndSwap(old, old&^(stateLost|statePeerPulled)|stateFresh) {
			break
		}
	}
	p.mu.Unlock()
	p.counts.sessions.Add(1)
}

// lose ends the use of s, which has ended.
func (p *Port) lose(s *session) {
	s.void()
	p.mu.Lock()
	p.live = nil
	p.lastErr = s.cause()
	p.state.Or(stateLost)
	p.mu.Unlock()
	if p.fresh.CompareAndSwap(s, nil) {
		s.unmap() // the data path has not come to it
	}
}

// SetWake sets what wakes. Frames that came before it returns do not: look once more after it. f is called for the first frame that comes
// then, and for the first after 64 looks in vain, in a row, so that a thread that
// looks for a while before it sleeps need not say so. Any other caller calls SetWake
// again, even if there was nothing: f may be called late for a frame before.
func (p *Port) SetWake(f func()) {
	p.Wake.Set(f)
	p.mu.Lock()
	s := p.live
	p.mu.Unlock()
	if s != nil {
		s.memory.use(func() { s.SetAsleep(f != nil) })
	}
}

// SetLink pulls this end's plug or puts it in: either end's takes the link down for
// both. It returns when the peer knows, or has not answered for a second.
func (p *Port) SetLink(up bool) {
	p.plugMu.Lock()
	defer p.plugMu.Unlock()
	if !up {
		p.state.Or(statePulled)
	}
	p.mu.Lock()
	s := p.live
	p.mu.Unlock()
	if s != nil {
		p.plug++
		m := message{kind: kindLink, id: p.plug}
		if up {
			m.a = 1
		}
		// Whatever goes wrong, it is no use to wait longer.
		_ = s.ask(m, plugTime)
	}
	if up {
		p.state.And(^statePulled)
	}
	p.link.Call()
	if up {
		p.Wake.Call() // for frames that have waited
	}
}

// Close ends the port. The memory in which the data path may be
// working stays until its next Reserve and, after that, Receive; or until no call
// can reach the port any more.
func (p *Port) Close() error {
	p.closing.Do(func() {
		p.state.Or(stateClosed)
		p.Wake.Set(nil)
		p.link.Set(nil)
		p.cancel()
		p.mu.Lock()
		l := p.listener
		p.mu.Unlock()
		if l != nil {
			// What cannot be removed says nothing about the port.
			_ = l.Close()
		}
	})
	p.running.Wait()
	if s := p.paused; s != nil {
		p.paused = nil
		p.finish(s, vfio.ErrClosed)
	}
	p.closeOffers()
	return nil
}

// Err says why the link went down last, or why it could not be set up; nil if
// nothing has gone wrong yet.
func (p *Port) Err() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lastErr
}
