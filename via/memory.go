package via

import "context"

// Memory is one registration of memory: a range of bytes that the NIC may
// touch, with a handle, a ptag and access rights. Descriptors name memory by
// address and handle; the NIC checks both at every use.
type Memory struct {
	object
	p          ProviderMemory
	attributes MemoryAttributes
	address    uint64
	handle     uint32
	size       int
}

// Alloc returns size bytes of zeroed memory that the NIC can reach, registered
// with the given attributes. It does not lie in the Go heap: it is freed by
// Deregister or by closing the NIC, and must not be touched afterwards.
func (n *NIC) Alloc(ctx context.Context, size int, a MemoryAttributes) (*Memory, error) {
	const op = "allocate memory"
	if err := n.check(ctx, op); err != nil {
		return nil, err
	}
	if size <= 0 {
		return nil, n.refuse(op, ErrInvalidParameter, "", "size of %d bytes", size)
	}
	return n.register(ctx, op, a, func(ptag *Ptag) (ProviderMemory, error) {
		return n.provider.AllocMemory(ctx, size, ptag.number, a.access())
	})
}

// Register registers b again or, where the provider can pin it, for the first
// time. The same bytes may be registered any number of times, with other
// attributes. A part of what Alloc returned always works; for other memory a
// provider may answer with ErrNotSupported, and for Go heap memory it does.
func (n *NIC) Register(ctx context.Context, b []byte, a MemoryAttributes) (*Memory, error) {
	const op = "register memory"
	if err := n.check(ctx, op); err != nil {
		return nil, err
	}
	if len(b) == 0 {
		return nil, n.refuse(op, ErrInvalidParameter, "", "no bytes to register")
	}
	return n.register(ctx, op, a, func(ptag *Ptag) (ProviderMemory, error) {
		return n.provider.RegisterMemory(ctx, b, ptag.number, a.access())
	})
}

// register makes a Memory of what the provider returns, counting a use of the
// ptag.
func (n *NIC) register(ctx context.Context, op string, a MemoryAttributes, f func(*Ptag) (ProviderMemory, error)) (*Memory, error) {
	a.Ptag = n.ptagOr(a.Ptag)
	if err := n.acquire(op, &a.Ptag.object); err != nil {
		return nil, err
	}
	p, err := f(a.Ptag)
	if err != nil {
		n.release(&a.Ptag.object)
		return nil, n.fail(op, err)
	}
	return &Memory{object: object{nic: n}, p: p, attributes: a, address: p.Address(), handle: p.Handle(), size: len(p.Bytes())}, nil
}

// Deregister is m.Deregister. It refuses nil and memory of another NIC with
// ErrInvalidParameter.
func (n *NIC) Deregister(ctx context.Context, m *Memory) error {
	const op = "deregister memory"
	if m == nil || m.nic != n {
		return n.refuse(op, ErrInvalidParameter, "", "not memory of this NIC")
	}
	return m.Deregister(ctx)
}

// Deregister ends the registration: the NIC no longer touches the memory
// through this handle when it returns. Memory from Alloc is freed with its last
// registration. It fails with ErrResource while a descriptor is posted that lies
// in the memory.
//
// Memory that posted descriptors only name may be deregistered. They complete
// with StatusProtectionError if the NIC has not finished with them.
func (m *Memory) Deregister(ctx context.Context) error {
	const op = "deregister memory"
	if err := m.retire(ctx, op, ErrResource, ""); err != nil {
		return err
	}
	n := m.nic
	if err := m.p.Deregister(ctx); err != nil {
		m.revive()
		return n.fail(op, err)
	}
	n.release(&m.attributes.Ptag.object)
	return nil
}

// Bytes is the memory itself; nil once it is deregistered.
func (m *Memory) Bytes() []byte { return m.p.Bytes() }

// Address by which descriptors name the first byte.
func (m *Memory) Address() uint64 { return m.address }

// Handle by which descriptors name the registration.
func (m *Memory) Handle() uint32 { return m.handle }

// Size in bytes.
func (m *Memory) Size() int { return m.size }

// Attributes of the registration.
func (m *Memory) Attributes() MemoryAttributes { return m.attributes }

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
	if offset < 0 || length < 0 || offset > m.size || length > m.size-offset || uint64(length) > 1<<32-1 {
		return m.nic.refuse(op, ErrInvalidParameter, "", "%d bytes at offset %d of memory of %d bytes", length, offset, m.size)
	}
	if err := d.AddData(m.address+uint64(offset), m.handle, uint32(length)); err != nil {
		return m.nic.refuse(op, ErrInvalidParameter, "", "%w", err)
	}
	return nil
}

// NewDescriptor lays a descriptor with room for n data segments over the memory
// at offset, which must be a multiple of 64 and leave room for it. It is for
// programs that place their descriptors themselves; others use
// VI.NewDescriptors.
func (m *Memory) NewDescriptor(offset, n int) (*Descriptor, error) {
	const op = "new descriptor"
	if m.nic.closed.Load() {
		return nil, m.nic.refuse(op, ErrClosed, "", "")
	}
	if n < 0 || n > m.nic.attributes.MaxSegments {
		return nil, m.nic.refuse(op, ErrInvalidParameter, "", "%d segments, the NIC takes 0 to %d", n, m.nic.attributes.MaxSegments)
	}
	b := m.Bytes()
	if offset < 0 || offset > len(b) {
		return nil, m.nic.refuse(op, ErrInvalidParameter, "", "offset %d of memory of %d bytes", offset, len(b))
	}
	end := min(len(b), offset+descriptorSize(n))
	d, err := layDescriptor(b[offset:end], m.address+uint64(offset), m.handle, n)
	if err != nil {
		return nil, m.nic.refuse(op, ErrInvalidParameter, "", "%w", err)
	}
	return d, nil
}
