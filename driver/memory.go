package driver

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/vfio"
)

// MemoryAttributes of a registration.
type MemoryAttributes struct {
	Ptag uint32
	// Access holds the Access bits of package descriptors. Memory allocated with
	// AccessReadOnly can never be written by the device.
	Access descriptors.Access
}

// Memory is registered memory: the device knows it under a handle. Descriptors
// and buffers lie in such memory. Methods may be called from several
// goroutines.
type Memory struct {
	n          *NIC
	buf        *dmaBuffer
	bytes      []byte
	address    uint64
	handle     uint32
	attributes MemoryAttributes
	gone       atomic.Bool // written with the region table's lock held
}

// AllocMemory allocates size bytes of zeroed memory that the device can reach,
// and registers it. Size is 1 to 2^56.
func (n *NIC) AllocMemory(ctx context.Context, size int, a MemoryAttributes) (*Memory, error) {
	const op = "allocate memory"
	if err := n.begin(ctx, op); err != nil {
		return nil, err
	}
	defer n.end()
	if size <= 0 {
		return nil, n.refuse(op, fmt.Errorf("%w: %d bytes", ErrInvalidParameter, size), "ask for at least one byte")
	}
	flags := vfio.DMARead | vfio.DMAWrite
	if a.Access&descriptors.AccessReadOnly != 0 {
		flags = vfio.DMARead
	}
	buf, err := n.newDMA(ctx, uint64(size), flags, vfio.MemoryOptions{})
	if err != nil {
		return nil, n.error(op, err)
	}
	n.mu.Lock()
	buf.refs = 1
	n.mu.Unlock()
	m, err := n.register(ctx, buf, buf.mem.Bytes()[:size:size], a)
	if err != nil {
		return nil, n.error(op, n.release(buf, err))
	}
	return m, nil
}

// RegisterMemory registers a part of memory from AllocMemory once more, with
// other attributes. Memory from elsewhere is refused with ErrNotDMAMemory: the
// device cannot reach it. b and the memory that it is a part of are freed when
// both have been deregistered.
func (n *NIC) RegisterMemory(ctx context.Context, b []byte, a MemoryAttributes) (*Memory, error) {
	const op = "register memory"
	if err := n.begin(ctx, op); err != nil {
		return nil, err
	}
	defer n.end()
	if len(b) == 0 {
		return nil, n.refuse(op, fmt.Errorf("%w: no bytes", ErrInvalidParameter), "give at least one byte")
	}
	buf := n.hold(addressOf(b), uint64(len(b)))
	if buf == nil {
		return nil, n.refuse(op, ErrNotDMAMemory, "use memory that this NIC has allocated, or copy into it")
	}
	var m *Memory
	var err error
	if buf.flags&vfio.DMAWrite == 0 && a.Access&descriptors.AccessReadOnly == 0 {
		err = fmt.Errorf("%w: the memory was allocated with AccessReadOnly", ErrInvalidParameter)
	} else {
		m, err = n.register(ctx, buf, b[:len(b):len(b)], a)
	}
	if err != nil && !outcomeUnknown(err) {
		err = errors.Join(err, n.drop(buf))
	}
	if err != nil {
		return nil, n.error(op, err)
	}
	return m, nil
}

// hold finds the buffer that all of the given range lies in, and keeps it from
// being freed.
func (n *NIC) hold(address, size uint64) *dmaBuffer {
	n.mu.Lock()
	defer n.mu.Unlock()
	for b := range n.buffers {
		first := b.mem.Address()
		if b.refs > 0 && address >= first && address-first < b.mem.Size() && size <= b.mem.Size()-(address-first) {
			b.refs++
			return b
		}
	}
	return nil
}

// drop undoes hold, and frees the buffer if nobody else holds it.
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

// register tells the device of bytes, a part of buf.
func (n *NIC) register(ctx context.Context, buf *dmaBuffer, bytes []byte, a MemoryAttributes) (*Memory, error) {
	address := addressOf(bytes)
	reply, err := n.execute(ctx, newCommand(descriptors.OpRegisterMemory, descriptors.RegisterMemoryBody{
		Address: address, Length: uint64(len(bytes)), IOVA: buf.iova + (address - buf.mem.Address()), Ptag: a.Ptag, Access: a.Access,
	}))
	if err != nil {
		return nil, err
	}
	m := &Memory{n: n, buf: buf, bytes: bytes, address: address, attributes: a,
		handle: descriptors.Reply[descriptors.MemoryBody](reply).Handle}
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

// Attributes returns what the memory was registered with.
func (m *Memory) Attributes() MemoryAttributes { return m.attributes }

// Deregister makes the device forget the memory and, if it is registered under
// no other handle, frees it. It fails with ErrInUse while a descriptor that
// lies in the memory is posted, and with ErrClosed if it was called before.
// Buffers of posted descriptors are not looked after: those descriptors
// complete with a protection error.
func (m *Memory) Deregister(ctx context.Context) error {
	const op = "deregister memory"
	n := m.n
	if err := n.begin(ctx, op); err != nil {
		return err
	}
	defer n.end()
	if !n.regions.remove(m) {
		return n.error(op, ErrClosed)
	}
	// From here on nothing new is posted out of it.
	if v := n.postedIn(m.handle); v != nil {
		n.regions.restore(m)
		return n.refuse(op, fmt.Errorf("%w: VI %d has descriptors posted that lie in it", ErrInUse, v.number),
			"disconnect the VI and take its descriptors back first")
	}
	_, err := n.execute(ctx, newCommand(descriptors.OpDeregisterMemory, descriptors.MemoryBody{Handle: m.handle}))
	switch {
	case err == nil:
		return n.error(op, n.drop(m.buf))
	case !outcomeUnknown(err):
		n.regions.restore(m)
	}
	return n.error(op, err)
}

// postedIn returns a VI with a posted descriptor in the region handle, or nil.
func (n *NIC) postedIn(handle uint32) *VI {
	for i := range n.vis {
		if v := n.vis[i].Load(); v != nil && (v.send.holds(handle) || v.recv.holds(handle)) {
			return v
		}
	}
	return nil
}
