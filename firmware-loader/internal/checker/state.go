package checker

import (
	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker/internal/scalar"
)

type state struct {
	regs  [registers]register
	slots [slotCount]slot
	depth int // slots beyond were never written
}

// view is a state to compare with, without the slots that were never written.
type view struct {
	regs  *[registers]register
	slots []slot
}

func (s *state) view() view { return view{&s.regs, s.slots[:s.depth]} }

// keep returns a copy of what s is now.
func (s *state) keep() view {
	regs := s.regs
	return view{&regs, append([]slot(nil), s.slots[:s.depth]...)}
}

func (v view) slot(k int) *slot {
	if k < len(v.slots) {
		return &v.slots[k]
	}
	return new(slot)
}

func entryState() state {
	var s state
	s.regs[1] = pointer(kindContext)
	s.regs[frame] = pointer(kindStack)
	return s
}

// forEach calls f for each register and for a copy of each spilled one, which is
// spilled in its place if f reports a change.
func (s *state) forEach(f func(*register) (changed bool)) {
	for i := range s.regs {
		f(&s.regs[i])
	}
	for k := range s.slots[:s.depth] {
		if s.slots[k].spilled == nil {
			continue
		}
		if kept := *s.slots[k].spilled; f(&kept) {
			s.slots[k].spilled = &kept
		}
	}
}

// spread enters what is known of the number in a register in all others that are known
// to hold the same one, or one at a known distance. It reports whether there are any.
func (s *state) spread(n uint8) (shared bool) {
	from := s.regs[n]
	if from.id == 0 {
		return false
	}
	s.forEach(func(r *register) bool {
		if r.kind != kindNumber || r.id != from.id || r == &s.regs[n] || r.moved|from.moved == movedWide|movedHalf {
			return false
		}
		shared = true
		distance := scalar.Const(uint64(int64(r.off) - int64(from.off)))
		switch {
		case r.off == from.off:
			r.num = from.num
		case r.moved == movedHalf || from.moved == movedHalf:
			r.num = scalar.Compute32(asm.Add, from.num, distance)
		default:
			r.num = scalar.Compute(asm.Add, from.num, distance)
		}
		return true
	})
	return shared
}

// maxRelated bounds how many registers a comparison says something of, as
// LINKED_REGS_MAX does in the kernel (kernel/bpf/verifier.c).
const maxRelated = 6

// limitRelated forgets of the registers that hold the same number as the operands of a
// comparison those beyond the first maxRelated. Of the registers, only those that are
// read later count.
func (s *state) limitRelated(live uint16, ids ...uint32) {
	room := maxRelated
	related := func(r *register, id uint32) bool { return r.kind == kindNumber && r.id == id }
	for _, id := range ids {
		if id == 0 {
			continue
		}
		for i := range s.regs {
			switch r := &s.regs[i]; {
			case live>>i&1 == 0 || !related(r, id):
			case room > 0:
				room--
			default:
				r.forget()
			}
		}
		for k := range s.slots[:s.depth] {
			switch at := &s.slots[k]; {
			case at.spilled == nil || !related(at.spilled, id):
			case room > 0:
				room--
			default:
				kept := *at.spilled
				kept.forget()
				at.spilled = &kept
			}
		}
	}
}

// resolveNull enters whether the answer of a lookup is null.
func (s *state) resolveNull(id uint32, null bool) {
	s.forEach(func(r *register) bool {
		if r.kind != kindValueOrNull || r.id != id {
			return false
		}
		if null {
			*r = number(scalar.Const(0))
		} else {
			r.kind, r.id = kindValue, 0
		}
		return true
	})
}

// verify enters that so many bytes from the variable part of packet addresses with
// that id lie in the frame.
func (s *state) verify(id uint32, bytes int32) {
	s.forEach(func(r *register) bool {
		if r.kind != kindPacket || r.id != id || r.verified >= bytes {
			return false
		}
		r.verified = bytes
		return true
	})
}
