package core

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// eagerBits are the rights of a region that make it eager.
const eagerBits = datasheet.AccessEager | datasheet.AccessEagerWide | datasheet.AccessEagerLands | datasheet.AccessEagerHeld

// eager is the device memory of an eager region (SPEC.md 9.1): what the host has pushed of
// it, in blocks, and which of them. The host writes both whenever it likes: what is taken is
// looked at once, and all of it is the region's own.
type eager struct {
	datasheet.Eager
	piece  Span
	blocks []byte
	status []byte
	valid  datasheet.EagerStatus // status, as it is loaded
	tokens []datasheet.Token     // blocks, of a ring of tokens

	// lands says that messages land in the blocks, holds that they stay there. iova and length are the region's.
	lands, holds bool
	iova, length uint64
}

// unsound reports whether rights contradict each other in what they say of eager memory. A peer does not find what is held.
func unsound(a datasheet.Access) bool {
	const remote = datasheet.AccessRDMAWrite | datasheet.AccessRDMARead
	lands, held := a&datasheet.AccessEagerLands != 0, a&datasheet.AccessEagerHeld != 0
	return a&eagerBits != 0 && a&datasheet.AccessEager == 0 || lands && a&datasheet.AccessReadOnly != 0 || held && (!lands || a&remote != 0)
}

// parts of a message that lie in eager regions.
type parts uint8

const (
	eagerDescriptor parts = 1 << iota
	eagerData
)

// blockLog2 is the size of the blocks of a region with these rights.
func blockLog2(a datasheet.Access) uint8 {
	if a&datasheet.AccessEagerWide != 0 {
		return datasheet.EagerWideLog2
	}
	return datasheet.EagerLog2
}

// newEager takes device memory for length bytes at an application address, in blocks of
// 2^log2. It returns nil, and counts, if there is no room for it.
func (m *Regions) newEager(address, length uint64, log2 uint8) *eager {
	if length > uint64(len(m.SRAM.Bytes)) {
		m.Count(datasheet.CounterEagerRefused, 1)
		return nil
	}
	e := &eager{Eager: datasheet.EagerLayout(address, length, log2)}
	var ok bool
	if e.piece, ok = m.SRAM.Alloc(e.BlockBytes()+e.StatusBytes(), 1<<log2); !ok {
		m.Count(datasheet.CounterEagerRefused, 1)
		return nil
	}
	memory := m.SRAM.Memory(e.piece)
	e.blocks, e.status = memory[:e.BlockBytes()], memory[e.BlockBytes():]
	e.valid = datasheet.EagerStatusAt(e.status)
	return e
}

// PushRings takes device memory for the rings of tokens of an endpoint with EndpointEager,
// and says where it is. It returns false if there is no room for both.
func (m *Regions) PushRings(ep *Endpoint) (reply datasheet.EndpointCreated, ok bool) {
	take := func(q *WorkQueue, at *uint32) bool {
		if q.Source != nil {
			return true // its tokens are the engine's own
		}
		size := uint64(q.Mask+1) * datasheet.TokenSize
		if q.Pushed = m.newEager(q.IOVA, size, datasheet.EagerLog2); q.Pushed == nil {
			return false
		}
		e := q.Pushed
		e.tokens = datasheet.TokensAt(e.blocks[e.Lead:][:size])
		*at = uint32(e.piece.At)
		return true
	}
	if !take(&ep.Send, &reply.Send) || !take(&ep.Recv, &reply.Recv) {
		m.ForgetRings(ep)
		return reply, false
	}
	return reply, true
}

// ForgetRings gives back what pushRings has taken, if anything.
func (m *Regions) ForgetRings(ep *Endpoint) {
	for _, q := range []*WorkQueue{&ep.Send, &ep.Recv} {
		if q.Pushed != nil {
			m.SRAM.Release(q.Pushed.piece)
			q.Pushed = nil
		}
	}
}

// pushedToken is token i of the ring from device memory, if its block is good. It is read
// once: the host may be writing.
func (m *Regions) pushedToken(e *eager, i uint32) (t datasheet.Token, ok bool) {
	if ok = e.valid.Valid((e.Lead + uint64(i)*datasheet.TokenSize) >> e.Log2); !ok {
		m.Count(datasheet.CounterEagerReads, 1)
		return t, false
	}
	m.Count(datasheet.CounterEagerBlocks, 1)
	return e.tokens[i], true
}

// eagerWindow is window for an eager region. What is read is in device memory as far as the
// host has pushed it, from off on, and else in host memory as far as it has not. What is
// written is host memory: the blocks of it are no longer good.
func (m *Regions) eagerWindow(r *region, off, n uint64, write bool) []byte {
	e := r.Eager
	if write {
		w := m.Window(r, off, n, true)
		m.void(e, off, uint64(len(w)))
		return w
	}
	if n == 0 {
		return m.Window(r, off, 0, false)
	}
	m.writeBack(e, off, n)
	n, blocks, pushed := e.run(off, n)
	if pushed {
		m.Count(datasheet.CounterEagerBlocks, blocks)
		return e.blocks[e.Lead+off:][:n]
	}
	w := m.Window(r, off, n, false)
	if len(w) > 0 {
		first, end := e.Span(off, uint64(len(w)))
		m.Count(datasheet.CounterEagerReads, end-first)
	}
	return w
}

// run looks at the status of the blocks from off on, once, up to the first that differs from
// those before it: how many of n bytes, at least one, lie in them, how many blocks that are,
// and whether the host has pushed them.
func (e *eager) run(off, n uint64) (size, blocks uint64, pushed bool) {
	first, end := e.Span(off, n)
	pushed, next := e.valid.Valid(first), first+1
	alike := uint32(0)
	if pushed {
		alike = datasheet.EagerFourValid
	}
	for next < end {
		switch {
		case next%4 == 0 && end-next >= 4 && e.valid.Four(next) == alike:
			next += 4
			continue
		case e.valid.Valid(next) == pushed:
			next++
			continue
		}
		break
	}
	return min(n, next<<e.Log2-e.Lead-off), next - first, pushed
}

// gatherEager is gather for a message in one piece of an eager region.
func (m *Regions) gatherEager(dst []byte, l *Layout, offset uint32) {
	for len(dst) > 0 {
		at := l.PushedAt + uint64(offset)
		m.writeBack(l.Pushed, at, uint64(len(dst)))
		n, blocks, pushed := l.Pushed.run(at, uint64(len(dst)))
		if pushed {
			m.Count(datasheet.CounterEagerBlocks, blocks)
			copy(dst, l.Pushed.blocks[l.Pushed.Lead+at:][:n])
		} else {
			m.Count(datasheet.CounterEagerReads, blocks)
			copy(dst, l.Memory[offset:][:n])
		}
		dst, offset = dst[n:], offset+uint32(n)
	}
}

// unpushed is host memory of a message from offset on, nil if the host has pushed any of the n
// bytes, or if they are not in one piece.
func (m *Regions) unpushed(l *Layout, offset, n uint32) []byte {
	if !m.InOnePiece(l) || l.Pushed == nil || n == 0 {
		return nil
	}
	m.writeBack(l.Pushed, l.PushedAt+uint64(offset), uint64(n))
	size, blocks, pushed := l.Pushed.run(l.PushedAt+uint64(offset), uint64(n))
	if pushed || size < uint64(n) {
		return nil
	}
	m.Count(datasheet.CounterEagerReads, blocks)
	return l.Memory[offset:][:n]
}

// Void takes note that the device has changed n bytes of host memory from off on, of which
// the blocks know nothing: until the host pushes them again they are taken from there.
func (e *eager) Void(off, n uint64) {
	if n == 0 {
		return
	}
	for b, end := e.Span(off, n); b < end; {
		if b%4 == 0 && end-b >= 4 && e.valid.Four(b) == 0 {
			b += 4
			continue
		}
		if e.status[b] != 0 {
			e.status[b] = 0
		}
		b++
	}
}

// void is Void where the host may lose what is held: that is written back first.
func (m *Regions) void(e *eager, off, n uint64) {
	m.writeBack(e, off, n)
	e.Void(off, n)
}

// land places a piece of a message that is in one piece of an eager region. The blocks that it covers land in device memory, and are
// written back unless they are held. What covers a block in part goes to host memory.
func (m *Regions) land(src []byte, l *Layout, offset uint32) (landed bool) {
	e, at, host := l.Pushed, l.PushedAt+uint64(offset), l.Memory[offset:]
	n, size := uint64(min(len(src), len(host))), uint64(1)<<e.Log2
	first, end := (e.Lead+at+size-1)>>e.Log2, (e.Lead+at+n)>>e.Log2
	head, tail := n, n
	if first < end {
		head, tail = first<<e.Log2-e.Lead-at, end<<e.Log2-e.Lead-at
		e.Void(at+head, tail-head)
		blocks, status := e.blocks[first<<e.Log2:end<<e.Log2], datasheet.EagerHeld
		copy(blocks, src[head:])
		if m.Count(datasheet.CounterEagerLanded, end-first); !e.holds {
			status = datasheet.EagerLanded
			copy(host[head:], blocks)
			m.Count(datasheet.CounterEagerWrittenBack, end-first)
		}
		for b := first; b < end; b++ {
			e.status[b] = status
		}
	}
	for _, part := range [2][2]uint64{{0, head}, {tail, n}} {
		if from, to := part[0], part[1]; from < to {
			m.void(e, at+from, to-from)
			copy(host[from:to], src[from:to])
			b, end := e.Span(at+from, to-from)
			m.Count(datasheet.CounterEagerWrittenBack, end-b)
		}
	}
	return n > 0
}

// writeBack writes those of the blocks of n bytes from off on to host memory that are held. The host may say of any block that it is:
// only whole ones are.
func (m *Regions) writeBack(e *eager, off, n uint64) {
	if !e.holds || n == 0 {
		return
	}
	for b, end := e.Span(off, n); b < end; b++ {
		if e.status[b] != datasheet.EagerHeld {
			continue
		}
		e.status[b] = 0
		at, size := b<<e.Log2-e.Lead, uint64(1)<<e.Log2
		if b<<e.Log2 < e.Lead || at+size > e.length {
			continue
		}
		block := e.blocks[b<<e.Log2:][:size]
		for len(block) > 0 {
			w, err := m.bus.Window(e.iova+at, uint64(len(block)), true)
			if err != nil || len(w) == 0 {
				m.Count(datasheet.CounterDMAFaults, 1)
				break
			}
			moved := copy(w, block)
			block, at = block[moved:], at+uint64(moved)
		}
		if len(block) == 0 {
			e.status[b] = datasheet.EagerLanded
			m.Count(datasheet.CounterEagerWrittenBack, 1)
		}
	}
}

// Control is the control segment of a message at offset off of eager region r, where it is
// good.
func (m *Regions) Control(l *Layout, r *region, off uint64) *datasheet.ControlSegment {
	l.Eager |= eagerDescriptor
	l.Described, l.describedAt = r.Eager, off
	// It lies in one block, which is larger than it and has its alignment.
	return datasheet.ControlAt(m.eagerWindow(r, off, datasheet.ControlSegmentSize, false))
}

// found is the control segment of a message's descriptor in host memory, nil if it is out of
// reach by now.
func (m *Regions) found(l *Layout, tag uint32) *datasheet.ControlSegment {
	if l.Descriptor != nil && l.Stamp == m.Stamp {
		return l.Descriptor
	}
	return m.controlAt(l.Token, tag, true)
}

// voidDescriptor is void for the control segment of a message's descriptor, before the device
// writes it.
func (m *Regions) voidDescriptor(l *Layout, tag uint32) {
	if l.Described != nil && l.Stamp == m.Stamp {
		m.void(l.Described, l.describedAt, datasheet.ControlSegmentSize)
	} else if r, off := m.Reach(l.Token.Handle, tag, l.Token.Address, datasheet.ControlSegmentSize, true); r != nil && r.Eager != nil {
		m.void(r.Eager, off, datasheet.ControlSegmentSize)
	}
}

// advance tells the host that n more bytes of a message are in its memory, from byte offset
// of the message on, if they go on where the front of it ends. A message that is not whole in
// the end never takes another's place on a reliable VI, so that what was told stays true.
func (r *Receiver) advance(offset, n uint32) {
	l := r.To
	if l.Eager&eagerData == 0 || r.Status != 0 || r.ep.Flow == nil || r.Receipt == nil || l != &r.Receipt.Layout ||
		offset > l.Front || offset+n <= l.Front {
		return
	}
	l.Front = offset + n
	if seg := r.Regions.found(l, r.ep.Ptag); seg != nil && l.Front < r.Header.Extent {
		seg.StoreFront(l.Front)
	}
}
