package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// eagerBits are the rights of a region that make it eager.
const eagerBits = datasheet.AccessEager | datasheet.AccessEagerWide

// eager is the device memory of an eager region (SPEC.md 9.1): what the host has pushed of
// it, in blocks, and which of them. The host writes both whenever it likes: what is taken is
// looked at once, and all of it is the region's own.
type eager struct {
	datasheet.Eager
	piece  span
	blocks []byte
	status []byte
	valid  datasheet.EagerStatus // status, as it is loaded
	tokens []datasheet.Token     // blocks, of a ring of tokens
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
func (m *regions) newEager(address, length uint64, log2 uint8) *eager {
	if length > uint64(len(m.sram.bytes)) {
		m.count(datasheet.CounterEagerRefused, 1)
		return nil
	}
	e := &eager{Eager: datasheet.EagerLayout(address, length, log2)}
	var ok bool
	if e.piece, ok = m.sram.alloc(e.BlockBytes()+e.StatusBytes(), 1<<log2); !ok {
		m.count(datasheet.CounterEagerRefused, 1)
		return nil
	}
	memory := m.sram.memory(e.piece)
	e.blocks, e.status = memory[:e.BlockBytes()], memory[e.BlockBytes():]
	e.valid = datasheet.EagerStatusAt(e.status)
	return e
}

// reply says where the device memory is.
func (e *eager) reply() datasheet.RegionReply {
	return datasheet.RegionReply{Blocks: uint32(e.piece.at), Status: uint32(e.piece.at + e.BlockBytes()), BlockLog2: e.Log2}
}

// pushRings takes device memory for the rings of tokens of an endpoint with EndpointEager,
// and says where it is. It returns false if there is no room for both.
func (m *regions) pushRings(ep *endpoint) (reply datasheet.EndpointCreated, ok bool) {
	take := func(q *workQueue, at *uint32) bool {
		if q.source != nil {
			return true // its tokens are the engine's own
		}
		size := uint64(q.mask+1) * datasheet.TokenSize
		if q.pushed = m.newEager(q.iova, size, datasheet.EagerLog2); q.pushed == nil {
			return false
		}
		e := q.pushed
		e.tokens = datasheet.TokensAt(e.blocks[e.Lead:][:size])
		*at = uint32(e.piece.at)
		return true
	}
	if !take(&ep.send, &reply.Send) || !take(&ep.recv, &reply.Recv) {
		m.forgetRings(ep)
		return reply, false
	}
	return reply, true
}

// forgetRings gives back what pushRings has taken, if anything.
func (m *regions) forgetRings(ep *endpoint) {
	for _, q := range []*workQueue{&ep.send, &ep.recv} {
		if q.pushed != nil {
			m.sram.release(q.pushed.piece)
			q.pushed = nil
		}
	}
}

// pushedToken is token i of the ring from device memory, if its block is good. It is read
// once: the host may be writing.
func (m *regions) pushedToken(e *eager, i uint32) (t datasheet.Token, ok bool) {
	if ok = e.valid.Valid((e.Lead + uint64(i)*datasheet.TokenSize) >> e.Log2); !ok {
		m.count(datasheet.CounterEagerReads, 1)
		return t, false
	}
	m.count(datasheet.CounterEagerBlocks, 1)
	return e.tokens[i], true
}

// eagerWindow is window for an eager region. What is read is in device memory as far as the
// host has pushed it, from off on, and else in host memory as far as it has not. What is
// written is host memory: the blocks of it are no longer good.
func (m *regions) eagerWindow(r *region, off, n uint64, write bool) []byte {
	e := r.eager
	if write {
		w := m.window(r, off, n, true)
		e.void(off, uint64(len(w)))
		return w
	}
	if n == 0 {
		return m.window(r, off, 0, false)
	}
	n, blocks, pushed := e.run(off, n)
	if pushed {
		m.count(datasheet.CounterEagerBlocks, blocks)
		return e.blocks[e.Lead+off:][:n]
	}
	w := m.window(r, off, n, false)
	if len(w) > 0 {
		first, end := e.Span(off, uint64(len(w)))
		m.count(datasheet.CounterEagerReads, end-first)
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
func (m *regions) gatherEager(dst []byte, l *layout, offset uint32) {
	for len(dst) > 0 {
		at := l.pushedAt + uint64(offset)
		n, blocks, pushed := l.pushed.run(at, uint64(len(dst)))
		if pushed {
			m.count(datasheet.CounterEagerBlocks, blocks)
			copy(dst, l.pushed.blocks[l.pushed.Lead+at:][:n])
		} else {
			m.count(datasheet.CounterEagerReads, blocks)
			copy(dst, l.memory[offset:][:n])
		}
		dst, offset = dst[n:], offset+uint32(n)
	}
}

// unpushed is host memory of a message from offset on, nil if the host has pushed any of the n
// bytes, or if they are not in one piece.
func (m *regions) unpushed(l *layout, offset, n uint32) []byte {
	if !m.inOnePiece(l) || l.pushed == nil || n == 0 {
		return nil
	}
	size, blocks, pushed := l.pushed.run(l.pushedAt+uint64(offset), uint64(n))
	if pushed || size < uint64(n) {
		return nil
	}
	m.count(datasheet.CounterEagerReads, blocks)
	return l.memory[offset:][:n]
}

// void takes note that the device has changed n bytes of host memory from off on, of which
// the blocks know nothing: until the host pushes them again they are taken from there.
func (e *eager) void(off, n uint64) {
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

// lookedAt is at for what a peer wants to read. That is always host memory: the host does not
// know when, and pushes nothing for it.
func (m *regions) lookedAt(handle, tag uint32, address, n uint64) ([]byte, datasheet.Status) {
	if r, off := m.reach(handle, tag, address, n, false); r != nil {
		if w := m.window(r, off, n, false); len(w) > 0 {
			return w, 0
		}
	}
	return nil, datasheet.StatusProtectionError
}

// control is the control segment of a message at offset off of eager region r, where it is
// good.
func (m *regions) control(l *layout, r *region, off uint64) *datasheet.ControlSegment {
	l.eager |= eagerDescriptor
	l.described, l.describedAt = r.eager, off
	// It lies in one block, which is larger than it and has its alignment.
	return datasheet.ControlAt(m.eagerWindow(r, off, datasheet.ControlSegmentSize, false))
}

// found is the control segment of a message's descriptor in host memory, nil if it is out of
// reach by now.
func (m *regions) found(l *layout, tag uint32) *datasheet.ControlSegment {
	if l.descriptor != nil && l.stamp == m.stamp {
		return l.descriptor
	}
	r, off := m.reach(l.token.Handle, tag, l.token.Address, datasheet.ControlSegmentSize, true)
	if r == nil {
		return nil
	}
	return datasheet.ControlAt(m.window(r, off, datasheet.ControlSegmentSize, true))
}

// voidDescriptor is void for the control segment of a message's descriptor, before the device
// writes it.
func (m *regions) voidDescriptor(l *layout, tag uint32) {
	if l.described != nil && l.stamp == m.stamp {
		l.described.void(l.describedAt, datasheet.ControlSegmentSize)
	} else if r, off := m.reach(l.token.Handle, tag, l.token.Address, datasheet.ControlSegmentSize, true); r != nil && r.eager != nil {
		r.eager.void(off, datasheet.ControlSegmentSize)
	}
}

// advance tells the host that n more bytes of a message are in its memory, from byte offset
// of the message on, if they go on where the front of it ends. A message that is not whole in
// the end never takes another's place on a reliable VI, so that what was told stays true.
func (r *receiver) advance(offset, n uint32) {
	l := r.to
	if l.eager&eagerData == 0 || r.status != 0 || r.ep.flow == nil || r.receipt == nil || l != &r.receipt.layout ||
		offset > l.front || offset+n <= l.front {
		return
	}
	l.front = offset + n
	if seg := r.regions.found(l, r.ep.ptag); seg != nil && l.front < r.header.Extent {
		seg.StoreFront(l.front)
	}
}
