package engine

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// restingSlots is how many free slots of the region table rest before one is
// used again. With 12 bits of generation a handle comes back after a million
// registrations at the earliest, as long as the table is not full.
const restingSlots = 256

// region is one registered piece of host memory, or of device memory.
type region struct {
	handle  uint32 // zero: free
	last    uint32 // handle that this slot had last
	ptag    uint32
	address uint64
	length  uint64
	iova    uint64 // of device memory: offset in BAR4
	access  datasheet.Access
	device  bool // it is device memory, not the host's
	// whole is the region's memory if it is contiguous for us, nil if not, looked up
	// once for each value of regions.epoch.
	whole []byte
	epoch uint64
	eager *eager // nil if it is not an eager region
	shown []byte // the memory that the peer has been told of; nil for none
}

// grants reports whether a peer may write to the region, or read it.
func (r *region) grants(write bool) bool {
	if write {
		return r.access&datasheet.AccessRDMAWrite != 0
	}
	return r.access&datasheet.AccessRDMARead != 0
}

// ptag is one protection tag; tag 0 always exists.
type ptag struct {
	value uint32
	live  bool
	users int
}

// regions is host memory as endpoints may use it: what is registered, on behalf of
// whom, and the windows into it.
type regions struct {
	*counters
	bus    Memory
	limits Limits
	epoch  uint64 // of the windows; never zero
	// stamp changes whenever a window or a region ceases to be: what was found with the
	// same stamp need not be looked for again. It is never zero.
	stamp uint64

	table []region
	free  []uint32 // slots of table, oldest first
	ptags []ptag
	sram  sram

	direct direct
}

// clear takes back all registrations.
func (m *regions) clear() {
	m.table, m.free, m.ptags = nil, nil, []ptag{{live: true}}
	m.sram.clear()
	m.direct.clear()
	m.renew()
}

// renew forgets the windows of an older generation of the bus.
func (m *regions) renew() {
	m.stamp++
	if epoch := m.bus.Generation() + 1; epoch != m.epoch {
		m.epoch = epoch
		m.republish()
	}
}

// createPtag makes a new protection tag; its command has no body.
func (m *regions) createPtag(*datasheet.PtagBody) (datasheet.PtagBody, refusal) {
	i := 1
	for i < len(m.ptags) && m.ptags[i].live {
		i++
	}
	if i == len(m.ptags) {
		if uint32(i) >= m.limits.Ptags {
			return datasheet.PtagBody{}, refusal{datasheet.ResultResource, 0}
		}
		m.ptags = append(m.ptags, ptag{})
	}
	t := &m.ptags[i]
	t.live = true
	t.value = (t.value&^ptagIndexMask + 1<<ptagIndexBits) | uint32(i)
	return datasheet.PtagBody{Ptag: t.value}, refusal{}
}

// ptag finds a live protection tag.
func (m *regions) ptag(value uint32) *ptag {
	i := value & ptagIndexMask
	if int(i) >= len(m.ptags) || !m.ptags[i].live || m.ptags[i].value != value {
		return nil
	}
	return &m.ptags[i]
}

func (m *regions) destroyPtag(b *datasheet.PtagBody) refusal {
	t := m.ptag(b.Ptag)
	switch {
	case t == nil || b.Ptag == 0:
		return refusal{datasheet.ResultInvalidPtag, fieldPtag}
	case t.users > 0:
		return refusal{datasheet.ResultResource, fieldPtag}
	}
	t.live = false
	return refusal{}
}

func (m *regions) register(b *datasheet.RegisterMemoryBody) (reply datasheet.RegionReply, why refusal) {
	t := m.ptag(b.Ptag)
	switch {
	case b.Length == 0 || b.Address+b.Length < b.Address:
		return reply, refusal{datasheet.ResultInvalidParameter, fieldRegionLength}
	case b.IOVA+b.Length < b.IOVA || b.IOVA%datasheet.PageSize != b.Address%datasheet.PageSize:
		return reply, refusal{datasheet.ResultInvalidParameter, fieldRegionIOVA}
	case t == nil:
		return reply, refusal{datasheet.ResultInvalidPtag, fieldRegionPtag}
	case b.Access&datasheet.AccessReserved != 0:
		return reply, refusal{datasheet.ResultInvalidParameter, fieldRegionAccess}
	case b.Access&datasheet.AccessPageList != 0, b.Access&eagerBits != 0 && m.sram.bytes == nil:
		return reply, refusal{datasheet.ResultNotSupported, fieldRegionAccess}
	case b.Access&datasheet.AccessReadOnly != 0 && b.Access&datasheet.AccessRDMAWrite != 0, b.Access&eagerBits == datasheet.AccessEagerWide:
		return reply, refusal{datasheet.ResultInvalidParameter, fieldRegionAccess}
	}
	r := m.enter()
	if r == nil {
		return reply, refusal{datasheet.ResultResource, 0}
	}
	if b.Access&datasheet.AccessEager != 0 {
		if r.eager = m.newEager(b.Address, b.Length, blockLog2(b.Access)); r.eager == nil {
			m.leave(r)
			return reply, refusal{datasheet.ResultResource, fieldRegionAccess}
		}
		reply = r.eager.reply()
	}
	r.ptag, r.address, r.length, r.iova, r.access = b.Ptag, b.Address, b.Length, b.IOVA, b.Access
	t.users++
	m.publish(r)
	reply.Handle = r.handle
	return reply, refusal{}
}

// enter takes a slot of the region table and gives it a handle, nil if the table is full.
func (m *regions) enter() *region {
	var i uint32
	switch full := uint32(len(m.table)) == m.limits.Regions; {
	case len(m.free) > restingSlots, full && len(m.free) > 0:
		i = m.free[0]
		m.free = m.free[1:]
	case full:
		return nil
	default:
		i = uint32(len(m.table))
		m.table = append(m.table, region{})
	}
	r := &m.table[i]
	generation := r.last>>regionIndexBits + 1
	if generation>>(32-regionIndexBits) != 0 {
		generation = 1
	}
	handle := generation<<regionIndexBits | i
	*r = region{handle: handle, last: handle}
	return r
}

// hosts finds a region that the host has registered: others go with what they are for.
func (m *regions) hosts(handle uint32) (*region, refusal) {
	i := handle & regionIndexMask
	if int(i) >= len(m.table) || m.table[i].handle != handle || handle == 0 {
		return nil, refusal{datasheet.ResultInvalidParameter, fieldHandle}
	}
	if m.table[i].device {
		return nil, refusal{datasheet.ResultResource, fieldHandle}
	}
	return &m.table[i], refusal{}
}

// deregister ends the region handle, which is there.
func (m *regions) deregister(handle uint32) {
	i := handle & regionIndexMask
	r := &m.table[i]
	m.ptag(r.ptag).users--
	if r.eager != nil {
		m.sram.release(r.eager.piece)
	}
	m.stamp++
	m.leave(r)
}

// leave gives back the slot of the region table that enter took.
func (m *regions) leave(r *region) {
	m.withdraw(r.handle)
	i := r.handle & regionIndexMask
	*r = region{last: r.last}
	m.free = append(m.free, i)
}

// publish tells the peer of a region, if it may read it or write to it.
func (m *regions) publish(r *region) {
	if m.direct.port == nil || r.handle == 0 || r.device || r.eager != nil || r.access&(datasheet.AccessRDMAWrite|datasheet.AccessRDMARead) == 0 {
		return
	}
	w := m.contiguous(r)
	if m.direct.show(datasheet.DirectRegion{Handle: r.handle, Access: r.access, Ptag: r.ptag, Address: r.address, Length: r.length}, w) {
		r.shown = w
	}
}

// withdraw takes a region back, and waits until the peer does not use it any more.
func (m *regions) withdraw(handle uint32) {
	if m.direct.hide(handle) {
		m.direct.port.Settle()
	}
}

// republish brings what the peer is told up to date with the bus.
func (m *regions) republish() {
	if m.direct.table() == nil {
		return
	}
	hidden := false
	for i := range m.table {
		if r := &m.table[i]; r.handle != 0 && r.shown != nil {
			if w := m.contiguous(r); w == nil || &w[0] != &r.shown[0] {
				r.shown, hidden = nil, m.direct.hide(r.handle) || hidden
			}
		}
	}
	if hidden {
		m.direct.port.Settle()
	}
	for i := range m.table {
		if r := &m.table[i]; r.handle != 0 && r.shown == nil {
			m.publish(r)
		}
	}
}

// contiguous is the memory of a region of the host's, nil if it is not in one piece for us.
// The bus must let us do all that the region's rights allow.
func (m *regions) contiguous(r *region) []byte {
	w, err := m.bus.Window(r.iova, r.length, false)
	if err == nil && r.access&datasheet.AccessReadOnly == 0 {
		w, err = m.bus.Window(r.iova, uint64(len(w)), true)
	}
	if err != nil || uint64(len(w)) < r.length {
		return nil
	}
	return w[:r.length]
}

// reach finds the n bytes at application address in region handle on behalf of
// an endpoint with protection tag tag. It checks handle, tag, bounds and
// rights, and returns nil if any of them says no.
func (m *regions) reach(handle, tag uint32, address, n uint64, write bool) (*region, uint64) {
	i := handle & regionIndexMask
	if int(i) >= len(m.table) {
		return nil, 0
	}
	r := &m.table[i]
	off := address - r.address
	if r.handle != handle || handle == 0 || r.ptag != tag || off > r.length || n > r.length-off ||
		write && r.access&datasheet.AccessReadOnly != 0 {
		return nil, 0
	}
	return r, off
}

// near is a region in which something of a queue was found, good as long as stamp is that of the
// regions.
type near struct {
	stamp   uint64
	handle  uint32
	write   bool // it may be written to
	address uint64
	memory  []byte
}

// near is the n bytes that reach finds, if they are in one piece of the host's memory of which that
// is known; else nil. It looks at the region in which it found some last before it looks for another.
func (m *regions) near(last *near, handle, tag uint32, address, n uint64, write bool) []byte {
	if last.handle != handle || last.stamp != m.stamp {
		r, _ := m.reach(handle, tag, address, n, write)
		if r == nil || r.eager != nil || r.device || r.epoch != m.epoch || r.whole == nil {
			return nil
		}
		*last = near{m.stamp, handle, r.access&datasheet.AccessReadOnly == 0, r.address, r.whole}
	}
	off := address - last.address
	if size := uint64(len(last.memory)); off > size || n > size-off || write && !last.write {
		return nil
	}
	return last.memory[off : off+n]
}

// at returns the memory that reach finds, n bytes or as many as are contiguous. It is
// nil if reach or the bus says no.
func (m *regions) at(handle, tag uint32, address, n uint64, write bool) []byte {
	r, off := m.reach(handle, tag, address, n, write)
	if r == nil {
		m.count(datasheet.CounterProtectionErrors, 1)
		return nil
	}
	if r.eager != nil {
		return m.eagerWindow(r, off, n, write)
	}
	return m.window(r, off, n, write)
}

// window returns the memory of r from offset off on, n bytes of it or as many
// as are contiguous. It returns nil if the bus refuses.
func (m *regions) window(r *region, off, n uint64, write bool) []byte {
	if r.epoch == m.epoch && r.whole != nil {
		return r.whole[off : off+n]
	}
	return m.resolve(r, off, n, write)
}

// resolve does what window does for a region whose memory is not known to be contiguous.
func (m *regions) resolve(r *region, off, n uint64, write bool) []byte {
	if r.device {
		r.epoch, r.whole = m.epoch, m.sram.memory(span{r.iova, r.length})
		return r.whole[off : off+n]
	}
	if r.epoch != m.epoch {
		if r.epoch, r.whole = m.epoch, m.contiguous(r); r.whole != nil {
			return r.whole[off : off+n]
		}
	}
	w, err := m.bus.Window(r.iova+off, n, write)
	if err != nil {
		m.count(datasheet.CounterDMAFaults, 1)
		return nil
	}
	if uint64(len(w)) > n {
		w = w[:n]
	}
	return w
}

// whole returns the n bytes at bus address iova, or nil if they are not contiguous.
func (m *regions) whole(iova, n uint64, write bool) []byte {
	w, err := m.bus.Window(iova, n, write)
	if err != nil || uint64(len(w)) < n {
		m.count(datasheet.CounterDMAFaults, 1)
		return nil
	}
	return w[:n]
}

// reachable reports whether all n bytes from bus address iova on can be written, in however
// many pieces.
func (m *regions) reachable(iova, n uint64) bool {
	for n > 0 {
		w, err := m.bus.Window(iova, n, true)
		if err != nil || len(w) == 0 {
			m.count(datasheet.CounterDMAFaults, 1)
			return false
		}
		done := min(uint64(len(w)), n)
		iova, n = iova+done, n-done
	}
	return true
}

// layout is the descriptor of one message and its local memory: the segments and where in
// them the last access ended, since most accesses go on from there.
type layout struct {
	token    datasheet.Token
	control  control
	status   datasheet.Status // non-zero: the message has failed on this side
	peer     bool             // the peer has named the memory
	discards bool             // the payload of a ring's message, or its rest, goes nowhere
	segments []segment
	total    uint32
	place    uint32 // where the payload of a ring's message goes: RingSlot.Place
	eager    parts
	front    uint32 // of a receive: bytes from the front of the message that have landed
	at       int    // segment of the last access
	base     uint32 // message offset at which that segment starts

	// What was found when the descriptor was fetched, good as long as stamp is that of
	// the regions: the descriptor, and the memory of the message if it is in one piece.
	stamp      uint64
	descriptor *datasheet.ControlSegment
	memory     []byte
	// Of an eager region, whose memory stands in memory: what the host has pushed of it, and
	// the offset there of the first byte of the message. And the same of the descriptor.
	pushed      *eager
	pushedAt    uint64
	described   *eager
	describedAt uint64
}

// inOnePiece reports whether the memory of the message is known and may be used.
func (m *regions) inOnePiece(l *layout) bool { return l.stamp == m.stamp && l.memory != nil }

// check looks at every segment before any byte moves.
func (m *regions) check(l *layout, tag uint32, write bool) datasheet.Status {
	if l.memory, l.pushed = nil, nil; l.stamp != m.stamp {
		l.stamp, l.descriptor, l.described = m.stamp, nil, nil
	}
	l.eager &^= eagerData
	for i := range l.segments {
		s := &l.segments[i]
		r, off := m.reach(s.handle, tag, s.address, uint64(s.length), write)
		if r == nil || l.peer && !r.grants(write) {
			m.count(datasheet.CounterProtectionErrors, 1)
			return datasheet.StatusProtectionError
		}
		if r.eager != nil {
			l.eager |= eagerData
			if l.peer {
				continue // what a peer reads is always host memory
			}
		}
		if len(l.segments) == 1 && r.epoch == m.epoch && r.whole != nil {
			l.memory, l.pushed, l.pushedAt = r.whole[off:off+uint64(s.length)], r.eager, off
		}
	}
	return 0
}

// permit looks at one segment on behalf of protection tag tag.
func (m *regions) permit(s *segment, tag uint32, write bool) datasheet.Status {
	if r, _ := m.reach(s.handle, tag, s.address, uint64(s.length), write); r == nil {
		m.count(datasheet.CounterProtectionErrors, 1)
		return datasheet.StatusProtectionError
	}
	return 0
}

// next returns the memory of a message from offset on: n bytes, or as many as are
// contiguous. It checks them again: what check saw may have been deregistered.
func (m *regions) next(l *layout, offset uint32, n int, tag uint32, write bool) ([]byte, datasheet.Status) {
	if offset < l.base {
		l.at, l.base = 0, 0
	}
	for l.at < len(l.segments) && offset-l.base >= l.segments[l.at].length {
		l.base += l.segments[l.at].length
		l.at++
	}
	if l.at >= len(l.segments) {
		return nil, datasheet.StatusLengthError
	}
	s, skip := &l.segments[l.at], uint64(offset-l.base)
	at, size := s.address+skip, min(uint64(s.length)-skip, uint64(n))
	if l.peer {
		if m.check(l, tag, write) != 0 {
			return nil, datasheet.StatusProtectionError
		}
		if !write {
			return m.lookedAt(s.handle, tag, at, size)
		}
	}
	w := m.at(s.handle, tag, at, size, write)
	if len(w) == 0 {
		return nil, datasheet.StatusProtectionError
	}
	return w, 0
}

// gather copies len(dst) bytes of a message from host memory, from offset on.
func (m *regions) gather(dst []byte, l *layout, offset uint32, tag uint32) datasheet.Status {
	if m.inOnePiece(l) {
		if l.pushed == nil {
			copy(dst, l.memory[offset:])
		} else {
			m.gatherEager(dst, l, offset)
		}
		return 0
	}
	for len(dst) > 0 {
		w, st := m.next(l, offset, len(dst), tag, false)
		if st != 0 {
			return st
		}
		copy(dst, w)
		dst, offset = dst[len(w):], offset+uint32(len(w))
	}
	return 0
}

// scatter copies src into a message's host memory, from offset on. landed says
// whether any byte of it was written.
func (m *regions) scatter(src []byte, l *layout, offset uint32, tag uint32) (landed bool, st datasheet.Status) {
	if m.inOnePiece(l) {
		if l.pushed != nil {
			l.pushed.void(l.pushedAt+uint64(offset), uint64(min(len(src), len(l.memory)-int(offset))))
		}
		return copy(l.memory[offset:], src) > 0, 0
	}
	for len(src) > 0 {
		w, st := m.next(l, offset, len(src), tag, true)
		if st != 0 {
			return landed, st
		}
		copy(w, src)
		landed = true
		src, offset = src[len(w):], offset+uint32(len(w))
	}
	return landed, 0
}

// control is what we keep of a control segment.
type control struct {
	bits      datasheet.Control
	immediate uint32
}

// modify gives a region another tag and other rights: those of a registration of the
// same memory, which takes its place under the old handle.
func (m *regions) modify(b *datasheet.ModifyMemoryBody) refusal {
	at, why := m.hosts(b.Handle)
	if why != (refusal{}) {
		return why
	}
	i, old := b.Handle&regionIndexMask, *at
	if (b.Access^old.access)&eagerBits != 0 {
		return refusal{datasheet.ResultNotSupported, fieldRegionAccess}
	}
	reply, why := m.register(&datasheet.RegisterMemoryBody{Address: old.address, Length: old.length, IOVA: old.iova, Ptag: b.Ptag, Access: b.Access &^ eagerBits})
	if why != (refusal{}) {
		return why
	}
	j := reply.Handle & regionIndexMask
	m.withdraw(reply.Handle)
	m.withdraw(old.handle)
	r := m.table[j]
	r.handle, r.last = old.handle, old.last
	r.access, r.eager, r.shown = b.Access, old.eager, nil
	m.table[i] = r
	m.publish(&m.table[i])
	m.table[j] = region{last: reply.Handle}
	m.free = append(m.free, j)
	m.ptag(old.ptag).users--
	m.stamp++
	return refusal{}
}
