package via

import (
	"context"
	"sync"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Memory is one registration of memory: a range of bytes that the NIC may
// touch, with a handle, a ptag and access rights. Descriptors name memory by
// address and handle; the NIC checks both at every use.
type Memory struct {
	cached // if a RegistrationCache has made it: first, as who looks it up needs no more

	nic *NIC
	d   *driver.Memory
	// address and handle are d's: they do not change.
	address uint64
	handle  uint32

	alter      sync.Mutex       // held while the attributes change, or the registration ends
	closed     bool             // guarded by alter
	attributes MemoryAttributes // guarded by the NIC's mutex
}

// Alloc returns size bytes of zeroed memory that the NIC can reach, registered
// with the given attributes. It does not lie in the Go heap: it is freed by
// Close or by closing the NIC, and must not be touched afterwards.
func (n *NIC) Alloc(ctx context.Context, size int, a MemoryAttributes) (*Memory, error) {
	return n.register("allocate memory", a, n.eagerOr(a.Eager), func(a driver.MemoryAttributes) (*driver.Memory, error) {
		return n.d.AllocMemory(ctx, size, a)
	})
}

// Register registers memory that is there already: a part of what Alloc returned, or
// memory of the program's own outside the Go heap, such as from mmap or, as a slice of
// it, from C. The same bytes may be registered any number of times, with other
// attributes; their pages are pinned once. The program's own memory must not be unmapped
// before Memory.Close has returned, and is not freed by it.
//
// It fails with ErrNotSupported for memory of the Go heap, and of all memory but Alloc's
// if the NIC is in another process (vfio-user), which needs the file behind it, or has
// no IOMMU; and with ErrInvalidParameter for memory that the program may not read, or
// may not write and that is not registered as ReadOnly.
func (n *NIC) Register(ctx context.Context, b []byte, a MemoryAttributes) (*Memory, error) {
	return n.registerAs(ctx, b, a, n.eagerOr(a.Eager))
}

// registerAs is Register as eager says, whatever a does.
func (n *NIC) registerAs(ctx context.Context, b []byte, a MemoryAttributes, eager EagerAttributes) (*Memory, error) {
	return n.register("register memory", a, eager, func(a driver.MemoryAttributes) (*driver.Memory, error) {
		return n.d.RegisterMemory(ctx, b, a)
	})
}

// register makes a Memory of what f returns, counting a use of the ptag.
func (n *NIC) register(op string, a MemoryAttributes, eager EagerAttributes, f func(driver.MemoryAttributes) (*driver.Memory, error)) (*Memory, error) {
	a.Ptag = n.ptagOr(a.Ptag)
	if err := n.acquire(op, &a.Ptag.object); err != nil {
		return nil, err
	}
	d, err := f(driver.MemoryAttributes{Ptag: a.Ptag.number, Access: a.access(), Eager: eager})
	if err != nil {
		n.release(&a.Ptag.object)
		return nil, err
	}
	return &Memory{nic: n, d: d, address: d.Address(), handle: d.Handle(), attributes: a}, nil
}

// Close ends the registration: neither the NIC nor its peer touches the memory through this handle
// when it returns. Where share=write lends the memory, and the peer stands still within a write, that takes 2 s
// and a copy of the memory. Memory from Alloc is freed with its last registration. It fails with
// ErrResource while a descriptor is posted that lies in the memory.
//
// Memory that posted descriptors only name may be closed. They complete with
// StatusProtectionError if the NIC has not finished with them.
func (m *Memory) Close(ctx context.Context) error {
	if m.cache != nil {
		return m.nic.refuse("close memory", ErrInvalidParameter, "release it there", "a cache has made the registration")
	}
	return m.deregister(ctx)
}

// deregister is Close, for a cache too.
func (m *Memory) deregister(ctx context.Context) error {
	m.alter.Lock()
	defer m.alter.Unlock()
	if m.closed {
		return nil
	}
	if err := m.d.Close(ctx); err != nil {
		return err
	}
	m.closed = true
	m.nic.release(&m.Attributes().Ptag.object)
	return nil
}

// Bytes is the memory itself; nil once it is closed.
func (m *Memory) Bytes() []byte { return m.d.Bytes() }

// Address by which descriptors name the first byte.
func (m *Memory) Address() uint64 { return m.address }

// Handle by which descriptors name the registration.
func (m *Memory) Handle() uint32 { return m.handle }

// Size in bytes.
func (m *Memory) Size() int { return m.d.Size() }

// Attributes of the registration.
func (m *Memory) Attributes() MemoryAttributes {
	m.nic.mu.Lock()
	defer m.nic.mu.Unlock()
	return m.attributes
}

// SetAttributes gives the registration another ptag and other rights; address and handle
// stay. From its return on, every use is checked against them, also by what is posted
// already. It fails with ErrInvalidParameter if the memory was allocated, or may be used
// by the program, for reading only and a does not say ReadOnly, and as Register does.
// Then nothing has changed.
func (m *Memory) SetAttributes(ctx context.Context, a MemoryAttributes) error {
	const op = "set memory attributes"
	n := m.nic
	if m.cache != nil {
		return n.refuse(op, ErrInvalidParameter, "make another cache for other attributes", "a cache has made the registration")
	}
	m.alter.Lock()
	defer m.alter.Unlock()
	a.Ptag = n.ptagOr(a.Ptag)
	if err := n.acquire(op, &a.Ptag.object); err != nil {
		return err
	}
	unused := a.Ptag
	a.Eager = m.Attributes().Eager
	err := m.d.SetAttributes(ctx, driver.MemoryAttributes{Ptag: a.Ptag.number, Access: a.access()})
	if err == nil {
		unused = m.Attributes().Ptag
		n.mu.Lock()
		m.attributes = a
		n.mu.Unlock()
	}
	n.release(&unused.object)
	return err
}

// AddTo appends length bytes at offset of the memory to a descriptor, as one
// more data segment. On error the descriptor is unchanged. It allocates nothing
// unless it fails.
func (m *Memory) AddTo(d *Descriptor, offset, length int) error {
	const op = "add segment"
	if d == nil {
		return m.nic.refuse(op, ErrInvalidParameter, "", "the descriptor is nil")
	}
	if m.nic.closed.Load() {
		return m.nic.refuse(op, ErrClosed, "", "")
	}
	size := m.Size()
	if offset < 0 || length < 0 || offset > size || length > size-offset || uint64(length) > 1<<32-1 {
		return m.nic.refuse(op, ErrInvalidParameter, "", "%d bytes at offset %d of memory of %d bytes", length, offset, size)
	}
	if err := d.AddData(m.Address()+uint64(offset), m.Handle(), uint32(length)); err != nil {
		return m.nic.refuse(op, ErrInvalidParameter, "", "%w", err)
	}
	return nil
}

// NewDescriptor lays a descriptor with room for n segments over the memory
// at offset, which must be a multiple of 64 and leave room for it. It is for
// programs that place their descriptors themselves; others use
// VI.NewDescriptors.
func (m *Memory) NewDescriptor(offset, n int) (*Descriptor, error) {
	return m.layDescriptor("new descriptor", offset, n, descriptors.NewDescriptor)
}

// DescriptorAt returns the descriptor that stands in the memory at offset, a multiple of
// 64, and leaves it as it is. It is for what has been built without the methods of
// Descriptor, such as by a program in C; the NIC checks it as any other.
func (m *Memory) DescriptorAt(offset int) (*Descriptor, error) {
	return m.layDescriptor("descriptor at", offset, 0, descriptors.DescriptorAt)
}

// layDescriptor has lay make a descriptor with room for n data segments at offset.
func (m *Memory) layDescriptor(op string, offset, n int, lay func([]byte, uint64, uint32) (*Descriptor, error)) (*Descriptor, error) {
	if m.nic.closed.Load() {
		return nil, m.nic.refuse(op, ErrClosed, "", "")
	}
	if limit := m.nic.attributes.MaxSegments + 1; n < 0 || n > limit {
		return nil, m.nic.refuse(op, ErrInvalidParameter, "", "%d segments, the NIC takes 0 to %d", n, limit)
	}
	b := m.Bytes()
	if offset < 0 || offset > len(b) {
		return nil, m.nic.refuse(op, ErrInvalidParameter, "", "offset %d of memory of %d bytes", offset, len(b))
	}
	size := datasheet.ControlSegmentSize + n*datasheet.DataSegmentSize
	if len(b)-offset < size {
		return nil, m.nic.refuse(op, ErrInvalidParameter, "", "%w: %d bytes, %d segments take %d", descriptors.ErrTooSmall, len(b)-offset, n, size)
	}
	d, err := lay(b[offset:offset+size], m.Address()+uint64(offset), m.Handle())
	if err != nil {
		return nil, m.nic.refuse(op, ErrInvalidParameter, "", "%w", err)
	}
	return d, nil
}
