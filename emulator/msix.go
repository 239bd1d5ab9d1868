package emulator

import (
	"sync"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// MSI-X table entry (PCI 3.0, 6.8.2): address, data and vector control.
const (
	msixEntrySize  = 16
	msixAddressLow = 0x0
	msixControl    = 0xc
	// msixMask is the only writable bit of vector control.
	msixMask uint32 = 1
	// msixAddressAlign: the two lowest bits of an address are zero.
	msixAddressAlign uint32 = 3
)

// msixMessage is the address that a kernel on x86 puts into the table, that of the local
// APIC of processor 0 (Intel SDM vol. 3, 11.11.1). The emulator does not use it, since
// messages go to eventfds.
const msixMessage = 0xfee00000

// msix is the interrupt side of the device: table, pending bits and the
// eventfds that stand for the host's interrupt controller.
type msix struct {
	count func() // called for each message sent

	mu      sync.Mutex
	table   []msixEntry
	pending []uint64
	enabled bool // MSI-X enable of configuration space, and bus mastering
	masked  bool // function mask
}

type msixEntry struct {
	words [msixEntrySize / 4]uint32
	event trigger
}

func newMSIX(vectors int, count func()) *msix {
	m := &msix{count: count, table: make([]msixEntry, vectors), pending: make([]uint64, (vectors+63)/64)}
	m.reset()
	return m
}

// raise sends a vector's message, or notes it if the vector is masked.
func (m *msix) raise(vector uint16) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if int(vector) >= len(m.table) || !m.enabled {
		return
	}
	if m.masked || m.table[vector].words[msixControl/4]&msixMask != 0 {
		m.pending[vector/64] |= 1 << (vector % 64)
		return
	}
	m.send(int(vector))
}

// send sends a message. mu is held.
func (m *msix) send(vector int) {
	m.pending[vector/64] &^= 1 << (vector % 64)
	m.table[vector].event.signal()
	m.count()
}

// release sends the messages that are pending and no longer masked. mu is held.
func (m *msix) release() {
	if !m.enabled || m.masked {
		return
	}
	for v := range m.table {
		if m.pending[v/64]&(1<<(v%64)) != 0 && m.table[v].words[msixControl/4]&msixMask == 0 {
			m.send(v)
		}
	}
}

// control follows the enable and mask bits of configuration space.
func (m *msix) control(enabled, masked bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.enabled, m.masked = enabled, masked
	m.release()
}

// connect has vectors start and following signal triggers, which it then owns.
// As VFIO does for its user, it fills in the table and unmasks the connected
// ones. The vectors exist.
func (m *msix) connect(start int, events []trigger) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for i, t := range events {
		e := &m.table[start+i]
		e.event.close()
		e.event = t
		if t.connected() {
			e.words = [...]uint32{msixMessage, 0, uint32(start + i), 0}
		} else {
			e.words[msixControl/4] |= msixMask
		}
	}
	m.release()
}

// reset disconnects every vector and makes the table new.
func (m *msix) reset() {
	m.mu.Lock()
	defer m.mu.Unlock()
	for v := range m.table {
		m.table[v].event.close()
		m.table[v] = msixEntry{words: [4]uint32{3: msixMask}}
	}
	clear(m.pending)
}

// at reports whether an access of n bytes at an offset of BAR0 is one of 4 or 8 aligned
// bytes of the table or the pending bits.
func (m *msix) at(offset uint64, n int) bool {
	within := func(start, size int) bool { return offset >= uint64(start) && offset < uint64(start+size) }
	return (n == 4 || n == 8) && offset%uint64(n) == 0 &&
		(within(datasheet.MSIXTableOffset, len(m.table)*msixEntrySize) || within(datasheet.MSIXPBAOffset, len(m.pending)*8))
}

// read reads a word of the table or the pending bits, at an offset of BAR0.
func (m *msix) read(offset uint64) uint32 {
	m.mu.Lock()
	defer m.mu.Unlock()
	if offset >= datasheet.MSIXPBAOffset {
		offset -= datasheet.MSIXPBAOffset
		return uint32(m.pending[offset/8] >> (offset % 8 * 8))
	}
	offset -= datasheet.MSIXTableOffset
	return m.table[offset/msixEntrySize].words[offset%msixEntrySize/4]
}

// write writes a word of the table, at an offset of BAR0. It returns false for the
// pending bits, which are read only.
func (m *msix) write(offset uint64, v uint32) bool {
	if offset >= datasheet.MSIXPBAOffset {
		return false
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	offset -= datasheet.MSIXTableOffset
	e := &m.table[offset/msixEntrySize]
	switch at := offset % msixEntrySize; at {
	case msixAddressLow:
		e.words[0] = v &^ msixAddressAlign
	case msixControl:
		e.words[msixControl/4] = v & msixMask
		m.release()
	default:
		e.words[at/4] = v
	}
	return true
}

// The table fits between its place and that of the pending bits, these between
// theirs and the end of the BAR: else one of the lengths is negative.
var (
	_ [datasheet.MSIXPBAOffset - datasheet.MSIXTableOffset - datasheet.Vectors*msixEntrySize]struct{}
	_ [datasheet.BAR0Size - datasheet.MSIXPBAOffset - datasheet.Vectors/8]struct{}
)
