package checker

type cover struct {
	ids  [][2]uint32 // ids of the old state, and of the new one in the same place
	work int         // registers and slots compared so far
}

// covers reports whether everything that may happen from the new state on may also
// happen from the old one, as far as needs says that it matters. Then, if the old
// state is safe, so is the new one, and no longer on its way.
func (c *cover) covers(old, new view, needs *needs) bool {
	c.ids = c.ids[:0]
	for r := range old.regs {
		if needs.live>>r&1 == 0 {
			continue
		}
		c.work++
		if !c.coversRegister(&old.regs[r], &new.regs[r], needs.exact>>r&1 != 0) {
			return false
		}
	}
	for k := range old.slots {
		if needs.liveSlots>>k&1 == 0 {
			continue
		}
		c.work++
		if !c.coversSlot(&old.slots[k], new.slot(k), needs.exactSlots>>k&1 != 0) {
			return false
		}
	}
	return true
}

func (c *cover) coversRegister(old, new *register, exact bool) bool {
	if old.kind == kindNone {
		return true
	}
	if old.kind != new.kind {
		return false
	}
	if old.kind == kindNumber && !exact {
		return true
	}
	related := old.kind != kindNumber || old.id != 0
	if old.mapIndex != new.mapIndex || related && (old.off != new.off || old.moved != new.moved) {
		return false
	}
	switch old.kind {
	case kindNumber:
		return new.num.Within(old.num) && c.sameID(old.id, new.id)
	case kindValueOrNull:
		return c.sameID(old.id, new.id)
	case kindPacket:
		return new.verified >= old.verified && new.num.Within(old.num) &&
			(old.id == 0) == (new.id == 0) && c.sameID(old.id, new.id)
	}
	return new.num.Within(old.num)
}

func (c *cover) coversSlot(old, new *slot, exact bool) bool {
	if old.written&^new.written != 0 {
		return false
	}
	if old.holdsPointer() {
		return new.holdsPointer() && c.coversRegister(old.spilled, new.spilled, true)
	}
	if new.holdsPointer() {
		return old.written == 0
	}
	if old.spilled == nil || !exact {
		return true
	}
	return new.spilled != nil && old.width == new.width && c.coversRegister(old.spilled, new.spilled, true)
}

// sameID reports whether registers that belong together in the old state, which the
// ids say, do so in the new one.
func (c *cover) sameID(old, new uint32) bool {
	if old == 0 {
		return true
	}
	for _, pair := range c.ids {
		if pair[0] == old {
			return pair[1] == new && new != 0
		}
	}
	c.ids = append(c.ids, [2]uint32{old, new})
	return true
}
