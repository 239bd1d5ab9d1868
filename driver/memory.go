package driver

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// MemoryAttributes are given when memory is registered. The zero value is
// memory with the NIC's default ptag for local use.
type MemoryAttributes struct {
	// Ptag of the region; nil is the NIC's default.
	Ptag *Ptag
	// RDMAWrite and RDMARead let remote NICs access the region through VIs that
	// have the same ptag and the same right.
	RDMAWrite, RDMARead bool
	// ReadOnly memory can be sent from, but the NIC never writes to it, a
	// descriptor's status included.
	ReadOnly bool
	// Eager memory has a copy on the NIC, so that a message is there before it is posted.
	// The zero value is ordinary memory, or what the NIC's options have said. SetAttributes leaves it
	// as it is.
	Eager EagerAttributes
}

// access has the rights as commands want them.
func (a MemoryAttributes) access() datasheet.Access {
	access := rights(a.RDMAWrite, a.RDMARead) | a.Eager.access()
	if a.ReadOnly {
		access |= datasheet.AccessReadOnly
	}
	return access
}

// rights are those of remote NICs, as commands want them.
func rights(write, read bool) (r datasheet.Access) {
	if write {
		r |= datasheet.AccessRDMAWrite
	}
	if read {
		r |= datasheet.AccessRDMARead
	}
	return r
}

// Memory is one registration of memory: a range of bytes that the NIC may
// touch, with a handle, a ptag and access rights. Descriptors name memory by
// address and handle; the NIC checks both at every use. Methods may be called from several
// goroutines.
type Memory struct {
	cached // if a RegistrationCache has made it: first, as a lookup there needs no more

	n          *NIC
	drop       func() error // ends the need for its memory
	bytes      []byte
	address    uint64
	handle     uint32
	attributes MemoryAttributes // guarded by the region table's lock
	writable   bool             // the device may write to it, as far as the mapping goes
	gone       atomic.Bool      // written with the region table's lock held
	eager      atomic.Pointer[Eager]
	alter      sync.Mutex // held while the attributes change, or the registration ends
}

// errNotWritable: memory is to be registered for writing that the device cannot be
// allowed to write.
var errNotWritable = fmt.Errorf("%w: it was allocated as ReadOnly, or the program itself may not write it", descriptors.ErrInvalidParameter)

// Bytes returns the memory; nil once it is deregistered or the NIC closed.
// Slices of it must not be used from then on.
func (m *Memory) Bytes() []byte {
	if m.gone.Load() {
		return nil
	}
	return m.bytes
}

// Address returns the application address of the first byte.
func (m *Memory) Address() uint64 { return m.address }

// NIC that the memory is registered with.
func (m *Memory) NIC() *NIC { return m.n }

// Handle returns the handle by which descriptors name the memory.
func (m *Memory) Handle() uint32 { return m.handle }

// Size returns the size in bytes.
func (m *Memory) Size() int { return len(m.bytes) }

// Attributes returns what the memory was registered with, or was given by SetAttributes.
func (m *Memory) Attributes() MemoryAttributes {
	m.n.regions.mu.RLock()
	defer m.n.regions.mu.RUnlock()
	return m.attributes
}

// SetAttributes gives the registration another ptag and other rights; address and handle
// stay. From its return on, every use is checked against them, also by what is posted
// already. It fails with ErrInvalidParameter if the memory was allocated, or may be used
// by the program, for reading only and a does not say ReadOnly, and as Register does.
// Then nothing has changed.
func (m *Memory) SetAttributes(ctx context.Context, a MemoryAttributes) error {
	const op = "set memory attributes"
	n := m.n
	if m.clock != nil {
		return n.Refuse(op, descriptors.ErrInvalidParameter, "make another cache for other attributes", "a cache has made the registration")
	}
	return n.do(ctx, op, func() error {
		m.alter.Lock()
		defer m.alter.Unlock()
		now := m.Attributes()
		a.Ptag, a.Eager = n.ptagOr(a.Ptag), now.Eager
		err := a.Ptag.usedFor(n, func() error { return m.change(ctx, a) })
		if err == nil {
			now.Ptag.leave()
		}
		return err
	})
}

func (m *Memory) change(ctx context.Context, a MemoryAttributes) error {
	switch {
	case m.gone.Load():
		return descriptors.ErrClosed
	case !m.writable && !a.ReadOnly:
		return errNotWritable
	}
	_, err := m.n.execute(ctx, newCommand(datasheet.OpModifyMemory,
		datasheet.ModifyMemoryBody{Handle: m.handle, Ptag: a.Ptag.Number(), Access: a.access()}))
	if err == nil {
		m.n.regions.change(m, a)
	}
	return err
}

// Close ends the registration: neither the NIC nor its peer touches the memory through this handle
// when it returns. Where share=write lends the memory, and the peer stands still within a write, that takes 2 s
// and a copy of the memory. Memory from Alloc is freed with its last registration. It fails with
// ErrInUse while a descriptor is posted that lies in the memory. A second call does nothing.
//
// Memory that posted descriptors only name may be closed. They complete with
// StatusProtectionError if the NIC has not finished with them.
func (m *Memory) Close(ctx context.Context) error {
	if m.clock != nil {
		return m.n.Refuse("close memory", descriptors.ErrInvalidParameter, "release it there", "a cache has made the registration")
	}
	return m.deregister(ctx)
}

// deregister is Close, for a cache too.
func (m *Memory) deregister(ctx context.Context) error {
	n := m.n
	return n.doClosing(ctx, "close memory", func() error {
		m.alter.Lock()
		defer m.alter.Unlock()
		if !n.regions.remove(m) {
			return nil
		}
		// From here on nothing new is posted out of it.
		for _, e := range n.present() {
			if e.queues.holds(m.handle) {
				n.regions.restore(m)
				return hinted(fmt.Errorf("%w: %s %d has descriptors posted that lie in it", ErrInUse, e.what, e.number),
					fmt.Sprintf("disconnect the %s and take its descriptors back first", e.what))
			}
		}
		_, err := n.execute(ctx, newCommand(datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: m.handle}))
		switch {
		case err == nil:
			m.attributes.Ptag.leave()
			return m.drop()
		case !outcomeUnknown(err):
			n.regions.restore(m)
		}
		return err
	})
}

// AddTo appends length bytes at offset of the memory to a descriptor, as one
// more data segment. On error the descriptor is unchanged. It allocates nothing
// unless it fails.
func (m *Memory) AddTo(d *descriptors.Descriptor, offset, length int) error {
	const op = "add segment"
	n := m.n
	switch size := m.Size(); {
	case d == nil:
		return n.Refuse(op, descriptors.ErrInvalidParameter, "", "the descriptor is nil")
	case n.closing.Load():
		return n.Refuse(op, descriptors.ErrClosed, "", "")
	case offset < 0 || length < 0 || offset > size || length > size-offset || uint64(length) > 1<<32-1:
		return n.Refuse(op, descriptors.ErrInvalidParameter, "", "%d bytes at offset %d of memory of %d bytes", length, offset, size)
	}
	if err := d.AddData(m.address+uint64(offset), m.handle, uint32(length)); err != nil {
		return n.Refuse(op, descriptors.ErrInvalidParameter, "", "%w", err)
	}
	return nil
}

// NewDescriptor lays a descriptor with room for segments data segments over the memory
// at offset, which must be a multiple of 64 and leave room for it. It is for
// programs that place their descriptors themselves; others use
// VI.NewDescriptors.
func (m *Memory) NewDescriptor(offset, segments int) (*descriptors.Descriptor, error) {
	return m.layDescriptor("new descriptor", offset, segments, descriptors.NewDescriptor)
}

// DescriptorAt returns the descriptor that stands in the memory at offset, a multiple of
// 64, and leaves it as it is. It is for what has been built without the methods of
// Descriptor, such as by a program in C; the NIC checks it as any other.
func (m *Memory) DescriptorAt(offset int) (*descriptors.Descriptor, error) {
	return m.layDescriptor("descriptor at", offset, 0, descriptors.DescriptorAt)
}

// layDescriptor calls lay for a descriptor with room for data segments at offset.
func (m *Memory) layDescriptor(op string, offset, segments int, lay func([]byte, uint64, uint32) (*descriptors.Descriptor, error)) (*descriptors.Descriptor, error) {
	n, b := m.n, m.Bytes()
	size := datasheet.ControlSegmentSize + segments*datasheet.DataSegmentSize
	switch limit := n.identity.MaxSegments + 1; {
	case n.closing.Load():
		return nil, n.Refuse(op, descriptors.ErrClosed, "", "")
	case segments < 0 || segments > limit:
		return nil, n.Refuse(op, descriptors.ErrInvalidParameter, "", "%d segments, the NIC takes 0 to %d", segments, limit)
	case offset < 0 || offset > len(b):
		return nil, n.Refuse(op, descriptors.ErrInvalidParameter, "", "offset %d of memory of %d bytes", offset, len(b))
	case len(b)-offset < size:
		return nil, n.Refuse(op, descriptors.ErrInvalidParameter, "", "%w: %d bytes, %d segments take %d", descriptors.ErrTooSmall, len(b)-offset, segments, size)
	}
	d, err := lay(b[offset:offset+size], m.address+uint64(offset), m.handle)
	if err != nil {
		return nil, n.Refuse(op, descriptors.ErrInvalidParameter, "", "%w", err)
	}
	return d, nil
}

// Eager returns the writer of the memory: an io.WriterAt with Push and Flush. Over memory that is not eager, or fell back since the NIC has no
// room, it only stores, so that a program need not know. All calls fail with ErrClosed once
// the memory has been deregistered, and with ErrInvalidParameter outside of it.
//
// Memory that has been pushed is changed through the writer only, or pushed again before it
// is sent: else the NIC sends what it was. What the NIC itself writes there is as any message
// that it receives.
func (m *Memory) Eager() *Eager {
	if e := m.eager.Load(); e != nil {
		return e
	}
	m.eager.CompareAndSwap(nil, m.n.newEager(m.bytes, m.address))
	e := m.eager.Load()
	if m.gone.Load() {
		e.close()
	}
	return e
}

// IsEager reports whether the device has memory for the blocks.
func (m *Memory) IsEager() bool {
	e := m.eager.Load()
	return e != nil && e.blocks != nil
}

// cached is a registration in a cache. Its range does not change.
type cached struct {
	first, end uint64
	// state has the number of its users, a bit that lets no new one
	// begin, and the number of uses so far.
	state atomic.Uint64
	used  atomic.Uint64  // tick of the last use
	clock *atomic.Uint64 // the cache's tick; nil if none has made it
}

const (
	oneUser  = 1
	users    = 1<<23 - 1
	retired  = 1 << 23
	oneUse   = 1 << 24
	maxCache = 1 << 24
)

// use counts one more user, unless e is retired.
func (e *cached) use() bool {
	// A call that has no use of it is not counted: the last user may have to end it.
	for s := e.state.Load(); ; s = e.state.Load() {
		if s&retired != 0 {
			return false
		}
		if e.state.CompareAndSwap(s, s+oneUser+oneUse) {
			break
		}
	}
	if now := e.clock.Load(); e.used.Load() != now {
		e.used.Store(now)
	}
	return true
}
