package core

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// restingSlots is the number of free slots of the region table that rest before one is
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
	Device  bool // it is device memory, not the host's
	// Whole is the region's memory if it is contiguous for us, nil if not, looked up
	// once for each value of regions.epoch.
	Whole []byte
	Epoch uint64
	Eager *eager // nil if it is not an eager region
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
	Users int
}

// Regions is host memory as endpoints may use it: what is registered, on behalf of
// whom, and the windows into it.
type Regions struct {
	*counters
	bus    Memory
	Limits Limits
	Epoch  uint64 // of the windows; never zero
	// Stamp changes whenever a window or a region ceases to be: what was found with the
	// same stamp need not be looked for again. It is never zero.
	Stamp uint64

	table []region
	free  []uint32 // slots of table, oldest first
	ptags []ptag
	SRAM  sram

	Direct direct
}

// clear takes back all registrations.
func (m *Regions) clear() {
	m.table, m.free, m.ptags = nil, nil, []ptag{{live: true}}
	m.SRAM.Clear()
	m.Direct.clear()
	m.Renew()
}

// Renew forgets the windows of an older generation of the bus.
func (m *Regions) Renew() {
	m.Stamp++
	if epoch := m.bus.Generation() + 1; epoch != m.Epoch {
		m.Epoch = epoch
		m.republish()
	}
}

// CreatePtag makes a new protection tag; its command has no body.
func (m *Regions) CreatePtag(*datasheet.PtagBody) (datasheet.PtagBody, Refusal) {
	i := 1
	for i < len(m.ptags) && m.ptags[i].live {
		i++
	}
	if i == len(m.ptags) {
		if uint32(i) >= m.Limits.Ptags {
			return datasheet.PtagBody{}, Refusal{datasheet.ResultResource, 0}
		}
		m.ptags = append(m.ptags, ptag{})
	}
	t := &m.ptags[i]
	t.live = true
	t.value = (t.value&^ptagIndexMask + 1<<ptagIndexBits) | uint32(i)
	return datasheet.PtagBody{Ptag: t.value}, Refusal{}
}

// Ptag finds a live protection tag.
func (m *Regions) Ptag(value uint32) *ptag {
	i := value & ptagIndexMask
	if int(i) >= len(m.ptags) || !m.ptags[i].live || m.ptags[i].value != value {
		return nil
	}
	return &m.ptags[i]
}

func (m *Regions) DestroyPtag(b *datasheet.PtagBody) Refusal {
	t := m.Ptag(b.Ptag)
	switch {
	case t == nil || b.Ptag == 0:
		return Refusal{datasheet.ResultInvalidPtag, Field(b, &b.Ptag)}
	case t.Users > 0:
		return Refusal{datasheet.ResultResource, Field(b, &b.Ptag)}
	}
	t.live = false
	return Refusal{}
}

func (m *Regions) Register(b *datasheet.RegisterMemoryBody) (reply datasheet.RegionReply, why Refusal) {
	t := m.Ptag(b.Ptag)
	why = FirstOf([]Check{
		{b.Length == 0 || b.Address+b.Length < b.Address, datasheet.ResultInvalidParameter, Field(b, &b.Length)},
		{b.IOVA+b.Length < b.IOVA || b.IOVA%datasheet.PageSize != b.Address%datasheet.PageSize, datasheet.ResultInvalidParameter, Field(b, &b.IOVA)},
		{t == nil, datasheet.ResultInvalidPtag, Field(b, &b.Ptag)},
		{b.Access&datasheet.AccessReserved != 0, datasheet.ResultInvalidParameter, Field(b, &b.Access)},
		{b.Access&datasheet.AccessPageList != 0 || b.Access&eagerBits != 0 && m.SRAM.Bytes == nil, datasheet.ResultNotSupported, Field(b, &b.Access)},
		{b.Access&datasheet.AccessReadOnly != 0 && b.Access&datasheet.AccessRDMAWrite != 0 || unsound(b.Access), datasheet.ResultInvalidParameter, Field(b, &b.Access)},
	})
	if why != (Refusal{}) {
		return reply, why
	}
	r := m.enter()
	if r == nil {
		return reply, Refusal{datasheet.ResultResource, 0}
	}
	if b.Access&datasheet.AccessEager != 0 {
		if r.Eager = m.newEager(b.Address, b.Length, blockLog2(b.Access)); r.Eager == nil {
			m.leave(r)
			return reply, Refusal{datasheet.ResultResource, Field(b, &b.Access)}
		}
		r.Eager.lands, r.Eager.holds = b.Access&datasheet.AccessEagerLands != 0, b.Access&datasheet.AccessEagerHeld != 0
		r.Eager.iova, r.Eager.length = b.IOVA, b.Length
		at := r.Eager.piece.At
		reply = datasheet.RegionReply{Blocks: uint32(at), Status: uint32(at + r.Eager.BlockBytes()), BlockLog2: r.Eager.Log2}
	}
	r.ptag, r.address, r.length, r.iova, r.access = b.Ptag, b.Address, b.Length, b.IOVA, b.Access
	t.Users++
	m.publish(r)
	reply.Handle = r.handle
	return reply, Refusal{}
}

// enter takes a slot of the region table and gives it a handle, nil if the table is full.
func (m *Regions) enter() *region {
	var i uint32
	switch full := uint32(len(m.table)) == m.Limits.Regions; {
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

// Hosts finds a region that the host has registered: others go with what they are for.
func (m *Regions) Hosts(handle uint32) (*region, Refusal) {
	i := handle & RegionIndexMask
	if int(i) >= len(m.table) || m.table[i].handle != handle || handle == 0 {
		return nil, Refusal{datasheet.ResultInvalidParameter, fieldHandle}
	}
	if m.table[i].Device {
		return nil, Refusal{datasheet.ResultResource, fieldHandle}
	}
	return &m.table[i], Refusal{}
}

// Deregister ends the region handle, which is there.
func (m *Regions) Deregister(handle uint32) {
	r := &m.table[handle&RegionIndexMask]
	m.Ptag(r.ptag).Users--
	if r.Eager != nil {
		m.writeBack(r.Eager, 0, r.length)
		m.SRAM.Release(r.Eager.piece)
	}
	m.Stamp++
	m.leave(r)
}

// leave gives back the slot of the region table that enter took.
func (m *Regions) leave(r *region) {
	m.withdraw(r.handle)
	i := r.handle & RegionIndexMask
	*r = region{last: r.last}
	m.free = append(m.free, i)
}

// publish tells the peer of a region, if it may read it or write to it.
func (m *Regions) publish(r *region) {
	if m.Direct.Port == nil || r.handle == 0 || r.Device || r.Eager != nil || r.access&(datasheet.AccessRDMAWrite|datasheet.AccessRDMARead) == 0 {
		return
	}
	w := m.contiguous(r)
	if m.Direct.show(datasheet.DirectRegion{Handle: r.handle, Access: r.access, Ptag: r.ptag, Address: r.address, Length: r.length}, w) {
		r.shown = w
	}
}

// withdraw takes a region back, and waits until the peer does not use it any more.
func (m *Regions) withdraw(handle uint32) {
	if m.Direct.hide(handle) {
		m.Direct.Port.Settle()
	}
}

// republish brings what the peer is told up to date with the bus.
func (m *Regions) republish() {
	if m.Direct.table() == nil {
		return
	}
	hidden := false
	for i := range m.table {
		if r := &m.table[i]; r.handle != 0 && r.shown != nil {
			if w := m.contiguous(r); w == nil || &w[0] != &r.shown[0] {
				r.shown, hidden = nil, m.Direct.hide(r.handle) || hidden
			}
		}
	}
	if hidden {
		m.Direct.Port.Settle()
	}
	for i := range m.table {
		if r := &m.table[i]; r.handle != 0 && r.shown == nil {
			m.publish(r)
		}
	}
}

// contiguous is the memory of a region of the host's, nil if it is not in one piece for us.
// The bus must let us do all that the region's rights allow.
func (m *Regions) contiguous(r *region) []byte {
	w, err := m.bus.Window(r.iova, r.length, false)
	if err == nil && r.access&datasheet.AccessReadOnly == 0 {
		w, err = m.bus.Window(r.iova, uint64(len(w)), true)
	}
	if err != nil || uint64(len(w)) < r.length {
		return nil
	}
	return w[:r.length:r.length]
}

// Reach finds the n bytes at application address in region handle on behalf of
// an endpoint with protection tag tag. It checks handle, tag, bounds and
// rights, and returns nil if any of them says no.
func (m *Regions) Reach(handle, tag uint32, address, n uint64, write bool) (*region, uint64) {
	i := handle & RegionIndexMask
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

// Target is the n bytes that a peer may write to, if their region is in one piece of the host's memory; else nil.
func (m *Regions) Target(handle, tag uint32, address, n uint64) []byte {
	r, off := m.Reach(handle, tag, address, n, true)
	if r == nil || !r.grants(true) || r.Eager != nil || r.Device || r.Epoch != m.Epoch && m.Window(r, off, n, true) == nil || r.Whole == nil {
		return nil
	}
	return r.Whole[off : off+n]
}

// At returns the memory that reach finds, n bytes or as many as are contiguous. It is
// nil if reach or the bus says no.
func (m *Regions) At(handle, tag uint32, address, n uint64, write bool) []byte {
	r, off := m.Reach(handle, tag, address, n, write)
	if r == nil {
		m.Count(datasheet.CounterProtectionErrors, 1)
		return nil
	}
	if r.Eager != nil {
		return m.eagerWindow(r, off, n, write)
	}
	return m.Window(r, off, n, write)
}

// Window returns the memory of r from offset off on, n bytes of it or as many
// as are contiguous. It returns nil if the bus refuses.
func (m *Regions) Window(r *region, off, n uint64, write bool) []byte {
	if r.Epoch == m.Epoch && r.Whole != nil {
		return r.Whole[off : off+n]
	}
	return m.resolve(r, off, n, write)
}

// resolve does what window does for a region whose memory is not known to be contiguous.
func (m *Regions) resolve(r *region, off, n uint64, write bool) []byte {
	if r.Device {
		r.Epoch, r.Whole = m.Epoch, m.SRAM.Memory(Span{r.iova, r.length})
		return r.Whole[off : off+n]
	}
	if r.Epoch != m.Epoch {
		if r.Epoch, r.Whole = m.Epoch, m.contiguous(r); r.Whole != nil {
			return r.Whole[off : off+n]
		}
	}
	w, err := m.bus.Window(r.iova+off, n, write)
	if err != nil {
		m.Count(datasheet.CounterDMAFaults, 1)
		return nil
	}
	return w[:min(uint64(len(w)), n)]
}

// whole returns the n bytes at bus address iova, or nil if they are not contiguous.
func (m *Regions) whole(iova, n uint64, write bool) []byte {
	w, err := m.bus.Window(iova, n, write)
	if err != nil || uint64(len(w)) < n {
		m.Count(datasheet.CounterDMAFaults, 1)
		return nil
	}
	return w[:n]
}

// reachable reports whether all n bytes from bus address iova on can be written, in however
// many pieces.
func (m *Regions) reachable(iova, n uint64) bool {
	for n > 0 {
		w, err := m.bus.Window(iova, n, true)
		if err != nil || len(w) == 0 {
			m.Count(datasheet.CounterDMAFaults, 1)
			return false
		}
		done := min(uint64(len(w)), n)
		iova, n = iova+done, n-done
	}
	return true
}

// Modify gives a region another tag and other rights: those of a registration of the
// same memory, which takes its place under the old handle.
func (m *Regions) Modify(b *datasheet.ModifyMemoryBody) Refusal {
	at, why := m.Hosts(b.Handle)
	if why != (Refusal{}) {
		return why
	}
	i, old := b.Handle&RegionIndexMask, *at
	switch {
	case (b.Access^old.access)&eagerBits != 0:
		return Refusal{datasheet.ResultNotSupported, Field(b, &b.Access)}
	case unsound(b.Access):
		return Refusal{datasheet.ResultInvalidParameter, Field(b, &b.Access)}
	}
	reply, why := m.Register(&datasheet.RegisterMemoryBody{Address: old.address, Length: old.length, IOVA: old.iova, Ptag: b.Ptag, Access: b.Access &^ eagerBits})
	if why != (Refusal{}) {
		return why
	}
	j := reply.Handle & RegionIndexMask
	m.withdraw(reply.Handle)
	m.withdraw(old.handle)
	r := m.table[j]
	r.handle, r.last = old.handle, old.last
	r.access, r.Eager, r.shown = b.Access, old.Eager, nil
	m.table[i] = r
	m.publish(&m.table[i])
	m.table[j] = region{last: reply.Handle}
	m.free = append(m.free, j)
	m.Ptag(old.ptag).Users--
	m.Stamp++
	return Refusal{}
}

// RegisterDevice registers a piece of device memory that was given out, as register does
// host memory: its application addresses are its offsets in BAR4. t is live.
func (m *Regions) RegisterDevice(p Span, tag uint32, access datasheet.Access) (handle uint32, ok bool) {
	r := m.enter()
	if r == nil {
		return 0, false
	}
	r.ptag, r.address, r.length, r.iova, r.access, r.Device = tag, p.At, p.size, p.At, access, true
	m.Ptag(tag).Users++
	return r.handle, true
}
