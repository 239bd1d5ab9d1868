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

// MemoryAttributes of a registration.
type MemoryAttributes struct {
	Ptag uint32
	// Access holds the Access bits of package descriptors. Memory allocated with
	// AccessReadOnly can never be written by the device.
	Access datasheet.Access
	// Eager memory has a copy on the device. A registration keeps it: SetAttributes leaves
	// it as it is.
	Eager EagerAttributes
}

// Memory is registered memory: the device knows it under a handle. Descriptors
// and buffers lie in such memory. Methods may be called from several
// goroutines.
type Memory struct {
	n          *NIC
	drop       func() error // ends the need for its memory
	bytes      []byte
	address    uint64
	handle     uint32
	attributes MemoryAttributes // guarded by the region table's lock
	writable   bool             // the device may write to it, as far as the mapping goes
	gone       atomic.Bool      // written with the region table's lock held
	eager      atomic.Pointer[Eager]
	closing    sync.Mutex // held by Close
}

// AllocMemory allocates size bytes of zeroed memory that the device can reach,
// and registers it. Size is 1 to 2^56.
func (n *NIC) AllocMemory(ctx context.Context, size int, a MemoryAttributes) (*Memory, error) {
	return get(ctx, n.do, "allocate memory", func() (*Memory, error) {
		if size <= 0 {
			return nil, hinted(fmt.Errorf("%w: %d bytes", descriptors.ErrInvalidParameter, size), "ask for at least one byte")
		}
		flags := vfio.DMARead | vfio.DMAWrite
		if a.Access&datasheet.AccessReadOnly != 0 {
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

// RegisterMemory registers memory that is there already. Of memory from AllocMemory b
// may be any part; b and the memory that it is a part of are freed when both have been
// deregistered. Other memory must lie outside the Go heap, and stays the program's: it
// must stay mapped, with the pages that it has, until it has been deregistered. Only
// whole pages can be made accessible to a device, which then keeps to b. A page that is
// registered twice is mapped for the device, and so pinned, once.
//
// It fails with ErrNotDMAMemory for the Go heap, with ErrInvalidParameter for memory
// that the program may not read, or may not write and a does not say AccessReadOnly,
// and with ErrNotSupported where the device cannot be given such memory: in another
// process, and without an IOMMU.
func (n *NIC) RegisterMemory(ctx context.Context, b []byte, a MemoryAttributes) (*Memory, error) {
	return get(ctx, n.do, "register memory", func() (*Memory, error) {
		if len(b) == 0 {
			return nil, hinted(fmt.Errorf("%w: no bytes", descriptors.ErrInvalidParameter), "give at least one byte")
		}
		iova, writable, drop, err := n.reach(ctx, b)
		if err != nil {
			return nil, err
		}
		var m *Memory
		if !writable && a.Access&datasheet.AccessReadOnly == 0 {
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

// errNotWritable: memory is to be registered for writing that the device cannot be
// allowed to write.
var errNotWritable = fmt.Errorf("%w: it was allocated with AccessReadOnly, or the program itself may not write it", descriptors.ErrInvalidParameter)

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
		Address: address, Length: uint64(len(bytes)), IOVA: iova, Ptag: a.Ptag, Access: a.Access | a.Eager.access(),
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

// SetAttributes gives the registration another ptag and other rights; its handle stays.
// It fails with what RegisterMemory fails with, and then changes nothing. What is posted
// is checked against the attributes of the moment.
func (m *Memory) SetAttributes(ctx context.Context, a MemoryAttributes) error {
	n := m.n
	return n.do(ctx, "set memory attributes", func() error {
		switch {
		case m.gone.Load():
			return descriptors.ErrClosed
		case a.Access&eagerBits != 0:
			return hinted(fmt.Errorf("%w: rights that Eager stands for", descriptors.ErrInvalidParameter), "register the memory anew")
		case !m.writable && a.Access&datasheet.AccessReadOnly == 0:
			return errNotWritable
		}
		a.Eager = m.Attributes().Eager
		_, err := n.execute(ctx, newCommand(datasheet.OpModifyMemory,
			datasheet.ModifyMemoryBody{Handle: m.handle, Ptag: a.Ptag, Access: a.Access | a.Eager.access()}))
		if err != nil {
			return err
		}
		n.regions.change(m, a)
		return nil
	})
}

// Close ends the registration: the device forgets the memory. What AllocMemory has
// allocated is freed with its last registration. Close fails with ErrInUse while a
// descriptor that lies in the memory is posted. A descriptor that only names the memory
// completes with a protection error. A second call does nothing.
func (m *Memory) Close(ctx context.Context) error {
	n := m.n
	return n.doClosing(ctx, "close memory", func() error {
		m.closing.Lock()
		defer m.closing.Unlock()
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
			return m.drop()
		case !outcomeUnknown(err):
			n.regions.restore(m)
		}
		return err
	})
}
