package wire

import (
	"math/bits"
	"slices"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// hostLooks says which members a port looks at for frames. Most of a wire with many members say
// nothing for long: those mark themselves with the next frame (shm.Marks).
type hostLooks struct {
	known     *[]*hostMember // as members was at the last look.
	at        []*hostMember  // are looked at.
	marked    []*hostMember  // by number, those that mark themselves.
	held      *hostMember    // whose frame Receive or Next has returned.
	whole     []byte         // that frame; nil if it is a short one
	uplink    *hostMember    // of known, nil if there is none
	turn      int            // of at
	other     int            // of known, to be looked at in turn though it is idle
	idleLooks int            // calls in vain, in a row
	all       atomic.Bool    // look at all of them
}

const (
	// A member is asked to mark itself after hostIdle looks in vain, in a row. One that answers at once
	// does not come to that.
	hostIdle = 8
	// hostOther counts the calls in vain to each look at an idle member.
	hostOther = 4
	// hostKeep members are looked at in any case: few looks cost less than a mark.
	hostKeep = 4
	// After hostRest calls of Receive in vain, in a row, an owner that can be woken may be going to sleep.
	// With the looks of a shm wire behind them, they are fewer than an engine's thread makes.
	hostRest = 64
)

// Receive takes turns at the ports.
func (p *host) Receive() []byte {
	l := &p.looks
	if l.held != nil {
		return l.whole // a member that has gone gives a frame once
	}
	if !p.looks.begin(p) {
		return nil
	}
	if len(l.at) < len(*l.known) {
		p.lookAtMarked()
	}
	for left := len(l.at); left > 0; left-- {
		m := l.next()
		if f := p.receive(m); f != nil {
			m.idleLooks, l.idleLooks = 0, 0
			return f
		}
		if m.idleLooks++; m.idleLooks >= hostIdle && p.mayIdle(m) || m.over {
			p.lookAway(l.turn)
			l.turn--
		}
	}
	return p.receiveOther()
}

// begin reports whether frames may be received, once it is known who the members are.
func (l *hostLooks) begin(p *host) bool {
	if p.pulled.Load() {
		return false
	}
	if l.known != p.members.Load() || l.all.Load() {
		p.lookAtAll()
	}
	return true
}

// next is the member whose turn it is.
func (l *hostLooks) next() *hostMember {
	if l.turn++; l.turn >= len(l.at) {
		l.turn = 0
	}
	return l.at[l.turn]
}

func (p *host) From() engine.Lossless {
	if m := p.looks.held; m != nil {
		return m
	}
	return nil
}

func (p *host) Pass(tell bool) {
	if m := p.looks.held; m != nil {
		m.Lossless.Pass(tell)
		p.looks.held, m.held = nil, false
	}
}

// Next leaves it to Receive which members are looked at.
func (p *host) Next() (payload []byte, header uint64, b datasheet.ShortBeside, found engine.Found) {
	l := &p.looks
	if m := l.held; m != nil {
		if l.whole != nil {
			return nil, 0, 0, engine.FoundOther
		}
		return m.Lossless.Next()
	}
	if !l.begin(p) {
		return nil, 0, 0, engine.FoundNone
	}
	for range l.at {
		m := l.next()
		if m.Lossless == nil {
			if p.receive(m) != nil {
				return nil, 0, 0, engine.FoundOther
			}
			continue
		}
		switch payload, header, b, found = m.Lossless.Next(); {
		case found == engine.FoundShort:
			l.held, m.held, m.idleLooks, l.idleLooks = m, true, 0, 0
			return payload, header, b, found
		case found == engine.FoundOther && p.receive(m) != nil:
			return nil, 0, 0, engine.FoundOther
		}
	}
	return nil, 0, 0, engine.FoundNone
}

// mayIdle reports whether a member need not be looked at all the time. Of itself a port knows when it
// has sent, and an uplink is looked at often all the same.
func (p *host) mayIdle(m *hostMember) bool {
	l := &p.looks
	return m.self || !p.resting() && (m.many || len(l.at) > hostKeep && m.mark >= 0 && m.shared.Idle())
}

// resting reports whether the port's owner may be going to sleep until it is woken. Each member is looked
// at then, as often as a shm wire takes to ask its peer for that.
func (p *host) resting() bool { return p.looks.idleLooks >= hostRest && p.Wake.IsSet() }

// receive takes a frame of a member.
func (p *host) receive(m *hostMember) []byte {
	for {
		f := receiveWhole(m.wire, m.parts)
		if f == nil || m.many || len(f) >= ethernetHeader && datasheet.MAC(f[6:]) == m.mac {
			if f != nil {
				p.looks.held, p.looks.whole, m.held = m, f, true
			}
			return f
		}
		p.forged.Add(1)
		m.wire.Release()
	}
}

func (p *host) Release() {
	if m := p.looks.held; m != nil {
		m.wire.Release()
		p.looks.held, p.looks.whole, m.held = nil, nil, false
	}
}

// receiveOther looks at one of the members that are idle, or has all of them looked at.
func (p *host) receiveOther() []byte {
	l := &p.looks
	if l.idleLooks++; p.resting() {
		for _, m := range *l.known {
			if !m.looked && !m.self {
				p.look(m)
			}
		}
		return nil
	}
	if l.idleLooks%hostOther != 0 || len(l.at) == len(*l.known) {
		return nil
	}
	if l.other++; l.other >= len(*l.known) {
		l.other = 0
	}
	m := (*l.known)[l.other]
	if l.idleLooks%(2*hostOther) == 0 && l.uplink != nil {
		m = l.uplink
	}
	if m.looked || m.mark >= 0 && m.shared.Idle() {
		return nil
	}
	f := p.receive(m)
	if f != nil || m.short() {
		l.idleLooks = 0
		p.look(m)
	}
	return f
}

// short reports whether a short frame is the next one of a member.
func (m *hostMember) short() bool {
	if m.Lossless == nil {
		return false
	}
	_, _, _, found := m.Lossless.Next()
	return found == engine.FoundShort
}

// look has frames of a member be looked for.
func (p *host) look(m *hostMember) {
	if m.idleLooks = 0; !m.looked {
		m.looked = true
		p.looks.at = append(p.looks.at, m)
	}
}

// lookAway ends that for the member at a place.
func (p *host) lookAway(i int) {
	l := &p.looks
	m := l.at[i]
	l.at = slices.Delete(l.at, i, i+1)
	if m.looked = false; m.over {
		m.over = false
		close(m.drained)
	}
}

// lookAtMarked looks at the members that have marked themselves.
func (p *host) lookAtMarked() {
	l := &p.looks
	for i := 0; i < len(l.marked); i += 64 {
		for marks := p.marks.Take(i / 64); marks != 0; marks &= marks - 1 {
			if n := i + bits.TrailingZeros64(marks); n < len(l.marked) && l.marked[n] != nil {
				p.look(l.marked[n])
			}
		}
	}
}

// lookAtAll looks at all members, after some have come or gone. Of one that has gone frames may
// be there still, which say why.
func (p *host) lookAtAll() {
	l := &p.looks
	l.all.Store(false)
	old, now := l.known, p.members.Load()
	l.known = now
	clear(l.marked)
	l.marked, l.uplink = l.marked[:0], nil
	for _, m := range *now {
		if p.look(m); m.many {
			l.uplink = m
		}
		if m.mark >= 0 {
			for len(l.marked) <= m.mark {
				l.marked = append(l.marked, nil)
			}
			l.marked[m.mark] = m
		}
	}
	for _, m := range *old {
		if !slices.Contains(*now, m) {
			m.over = true
			p.look(m)
		}
	}
}
