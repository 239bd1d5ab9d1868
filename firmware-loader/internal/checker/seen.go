package checker

import (
	"iter"
	"math/bits"
)

// seen has the states that were met at one join. Loops that count give many that
// differ in known numbers only, so states are found by these.
type seen struct {
	groups []group
}

// group has the states of which the same registers and slots, as far as their exact
// value matters, hold a known number.
type group struct {
	known   places
	byValue map[uint64][]*node // by a hash of the known numbers
}

type places struct {
	regs  uint16
	slots uint64
}

// knownPlaces returns where s holds known numbers that matter.
func knownPlaces(s view, needs *needs) places {
	var p places
	for r := range s.regs {
		if needs.exact>>r&1 != 0 && isKnown(&s.regs[r]) {
			p.regs |= 1 << r
		}
	}
	for k := range s.slots {
		if needs.exactSlots>>k&1 != 0 && s.slots[k].spilled != nil && isKnown(s.slots[k].spilled) {
			p.slots |= 1 << k
		}
	}
	return p
}

func isKnown(r *register) bool {
	_, ok := r.num.Const()
	return ok && r.kind == kindNumber
}

// hash returns a hash of the known numbers in these places; ok is false if one of
// them is not known in s.
func (p places) hash(s view) (h uint64, ok bool) {
	// The offset basis and prime of the 64-bit FNV hash (RFC 9923).
	h = 0xcbf29ce484222325
	add := func(r *register) bool {
		if r == nil || !isKnown(r) {
			return false
		}
		v, _ := r.num.Const()
		h = (h ^ v ^ v>>32) * 0x100000001b3
		return true
	}
	for r := range s.regs {
		if p.regs>>r&1 != 0 && !add(&s.regs[r]) {
			return 0, false
		}
	}
	for slots := p.slots; slots != 0; slots &= slots - 1 {
		if !add(s.slot(bits.TrailingZeros64(slots)).spilled) {
			return 0, false
		}
	}
	return h, true
}

// candidates returns lists of states that may cover s, in each the oldest first.
func (l *seen) candidates(s view) iter.Seq[[]*node] {
	return func(yield func([]*node) bool) {
		for i := range l.groups {
			g := &l.groups[i]
			if h, ok := g.known.hash(s); ok && !yield(g.byValue[h]) {
				return
			}
		}
	}
}

func (l *seen) add(n *node, needs *needs) {
	known := knownPlaces(n.state, needs)
	h, _ := known.hash(n.state)
	for i := range l.groups {
		if l.groups[i].known == known {
			l.groups[i].byValue[h] = append(l.groups[i].byValue[h], n)
			return
		}
	}
	l.groups = append(l.groups, group{known, map[uint64][]*node{h: {n}}})
}
