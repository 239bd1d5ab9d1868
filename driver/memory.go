package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
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

// Alloc returns size bytes of zeroed memory that the NIC can reach, 1 to 2^56, registered
// with the given attributes. It does not lie in the Go heap: it is freed by
// Close or by closing the NIC, and must not be touched afterwards.
func (n *NIC) Alloc(ctx context.Context, size int, a MemoryAttributes) (*Memory, error) {
	return n.registered(ctx, "allocate memory", n.defaults(a), func(a MemoryAttributes) (*Memory, error) {
		if size <= 0 {
			return nil, hinted(fmt.Errorf("%w: %d bytes", descriptors.ErrInvalidParameter, size), "ask for at least one byte")
		}
		flags := vfio.DMARead | vfio.DMAWrite
		if a.ReadOnly {
			flags = vfio.DMARead
		}
		buf, err := n.newDMA(ctx, uint64(size), flags, vfio.MemoryOptions{})
		if err != nil {
			return nil, err
		}
		n.mu.Lock()
		buf.refs = 1
		n.mu.Unlock()
		m, err := n.registerAs(ctx, buf.iova, buf.mem.Bytes()[:size:size], a)
		if err != nil {
			return nil, n.release(buf, err)
		}
		m.writable, m.drop = flags&vfio.DMAWrite != 0, func() error { return n.drop(buf) }
		return m, nil
	})
}

// Register registers memory that is there already: a part of what Alloc returned, or
// memory of the program's own outside the Go heap, such as from mmap or, as a slice of
// it, from C. The same bytes may be registered any number of times, with other
// attributes; their pages are pinned once. Memory of Alloc's is freed with its last registration. The program's
// own must not be unmapped before Memory.Close has returned, and is not freed by it. Only whole pages can be made
// accessible to a NIC, which then keeps to b.
//
// It fails with ErrNotSupported for memory of the Go heap, and of all memory but Alloc's
// if the NIC is in another process (vfio-user), which needs the file behind it, or has
// no IOMMU; and with ErrInvalidParameter for memory that the program may not read, or
// may not write and that is not registered as ReadOnly.
func (n *NIC) Register(ctx context.Context, b []byte, a MemoryAttributes) (*Memory, error) {
	return n.registerOrdinary(ctx, b, n.defaults(a))
}

// defaults fills in what a does not say.
func (n *NIC) defaults(a MemoryAttributes) MemoryAttributes {
	a.Ptag = n.ptagOr(a.Ptag)
	if a.Eager == (EagerAttributes{}) && n.eager {
		a.Eager = EagerAttributes{Mode: EagerAtPost, NoRoom: NoRoomOrdinary}
	}
	return a
}

// registerOrdinary is Register without defaults.
func (n *NIC) registerOrdinary(ctx context.Context, b []byte, a MemoryAttributes) (*Memory, error) {
	return n.registered(ctx, "register memory", a, func(a MemoryAttributes) (*Memory, error) {
		if len(b) == 0 {
			return nil, hinted(fmt.Errorf("%w: no bytes", descriptors.ErrInvalidParameter), "give at least one byte")
		}
		iova, writable, drop, err := n.reach(ctx, b)
		if err != nil {
			return nil, err
		}
		var m *Memory
		if !writable && !a.ReadOnly {
			err = errNotWritable
		} else {
			m, err = n.registerAs(ctx, iova, b[:len(b):len(b)], a)
		}
		if err != nil {
			if !outcomeUnknown(err) {
				err = errors.Join(err, drop())
			}
			return nil, err
		}
		m.writable, m.drop = writable, drop
		return m, nil
	})
}

// registered calls f and counts a use of the ptag.
func (n *NIC) registered(ctx context.Context, op string, a MemoryAttributes, f func(MemoryAttributes) (*Memory, error)) (m *Memory, err error) {
	err = n.do(ctx, op, func() error {
		return a.Ptag.usedFor(n, func() (err error) {
			m, err = f(a)
			return err
		})
	})
	return m, err
}

// errNotWritable: memory is to be registered for writing that the device cannot be
// allowed to write.
var errNotWritable = fmt.Errorf("%w: it was allocated as ReadOnly, or the program itself may not write it", descriptors.ErrInvalidParameter)

// reach makes sure that the device reaches b until drop is called, and returns its bus
// address, and whether the device may write there.
func (n *NIC) reach(ctx context.Context, b []byte) (iova uint64, writable bool, drop func() error, err error) {
	// Before the address is looked at: pages around an object of the heap say nothing.
	if vfio.OnGoHeap(b) {
		return 0, false, nil, fmt.Errorf("%w: %w", ErrNotDMAMemory, vfio.ErrGoHeap)
	}
	buf, err := n.hold(addressOf(b), uint64(len(b)))
	switch {
	case err != nil:
		return 0, false, nil, err
	case buf == nil:
		n.regions.mark(unusualForeign)
		return n.holdForeign(ctx, b)
	}
	return buf.iova + (addressOf(b) - buf.mem.Address()), buf.flags&vfio.DMAWrite != 0, func() error { return n.drop(buf) }, nil
}

// hold finds the buffer that all of the given range lies in, and keeps it from
// being freed. It returns nil if no part of the range lies in memory of this driver's.
func (n *NIC) hold(address, size uint64) (*dmaBuffer, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for b := range n.buffers {
		first := b.mem.Address()
		switch {
		case address >= first+b.mem.Size() || address+size <= first:
		case b.refs > 0 && address >= first && size <= b.mem.Size()-(address-first):
			b.refs++
			return b, nil
		default:
			return nil, fmt.Errorf("%w: %#x bytes at %#x are in part memory of the driver's own", descriptors.ErrInvalidParameter, size, address)
		}
	}
	return nil, nil
}

// drop undoes hold, and frees the buffer if that was the last hold.
func (n *NIC) drop(b *dmaBuffer) error {
	n.mu.Lock()
	b.refs--
	last := b.refs == 0
	n.mu.Unlock()
	if !last {
		return nil
	}
	return n.freeDMA(b)
}

// register tells the device of bytes, which it reaches at iova.
func (n *NIC) register(ctx context.Context, iova uint64, bytes []byte, a MemoryAttributes) (*Memory, error) {
	address := addressOf(bytes)
	reply, err := n.execute(ctx, newCommand(datasheet.OpRegisterMemory, datasheet.RegisterMemoryBody{
		Address: address, Length: uint64(len(bytes)), IOVA: iova, Ptag: a.Ptag.Number(), Access: a.access(),
	}))
	if err != nil {
		return nil, err
	}
	where := datasheet.Reply[datasheet.RegionReply](reply)
	m := &Memory{n: n, bytes: bytes, address: address, attributes: a, handle: where.Handle}
	if a.Eager.Mode != EagerOff {
		e, ok := n.eagerAt(m, where)
		if !ok {
			err := fmt.Errorf("%w: eager memory at %#x and %#x of its SRAM", ErrProtocol, where.Blocks, where.Status)
			return nil, &unknownOutcome{n.fail(err)}
		}
		m.eager.Store(e)
		n.regions.mark(unusualEager)
	}
	if !n.regions.add(m) {
		err := fmt.Errorf("%w: it gave out memory handle %#x twice", ErrProtocol, m.handle)
		return nil, &unknownOutcome{n.fail(err)}
	}
	return m, nil
}

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
	if m.cache != nil {
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
	if m.cache != nil {
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
