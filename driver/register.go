package driver

import (
	"context"
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver/internal/dma"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// registerAs is register as a.Eager says.
func (n *NIC) registerAs(ctx context.Context, iova uint64, bytes []byte, a MemoryAttributes) (*Memory, error) {
	if err := a.Eager.check(); err != nil {
		return nil, err
	}
	if a.Eager.Mode == EagerOff {
		return n.register(ctx, iova, bytes, a)
	}
	return eagerly(ctx, n, a.Eager.NoRoom, fieldAccess, func(eager bool) (*Memory, error) {
		if !eager {
			a.Eager = EagerAttributes{}
		}
		return n.register(ctx, iova, bytes, a)
	})
}

// eagerAt makes the writer of m, whose device memory the reply names. It returns false if
// that is not memory of the device.
func (n *NIC) eagerAt(m *Memory, r *datasheet.RegionReply) (*Eager, bool) {
	log2 := uint8(datasheet.EagerLog2)
	if m.attributes.Eager.Wide {
		log2 = datasheet.EagerWideLog2
	}
	if r.BlockLog2 != log2 || r.Blocks%(1<<log2) != 0 || r.Status%4 != 0 {
		return nil, false
	}
	e := n.newEager(m.bytes, m.address)
	e.mode, e.holds = m.attributes.Eager.Mode, m.attributes.Eager.Receive == EagerHold
	return e, e.lay(log2, uint64(r.Blocks), uint64(r.Status))
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
		buf, err := n.space.Alloc(ctx, uint64(size), flags, vfio.MemoryOptions{})
		if err != nil {
			return nil, err
		}
		drop := n.space.Share(buf)
		m, err := n.registerAs(ctx, buf.IOVA, buf.Bytes()[:size:size], a)
		if err != nil {
			return nil, n.release(buf, err)
		}
		m.writable, m.drop = !a.ReadOnly, drop
		return m, nil
	})
}

// Register registers memory that is there already: a part of what Alloc returned, or
// memory of the program's own outside the Go heap, such as from mmap or, as a slice of
// it, from C. The same bytes may be registered any number of times, with other
// attributes; each registration of the program's own memory pins the pages once more, as the limit of locked memory
// counts. Memory of Alloc's is freed with its last registration. The program's
// own must not be unmapped before Memory.Close has returned, and is not freed by it. Only whole pages can be made
// accessible to a NIC, which then keeps to b.
//
// It fails with ErrNotSupported for memory of the Go heap, and of all memory but Alloc's
// if the NIC is in another process (vfio-user), which needs the file behind it, or has
// no IOMMU; and with ErrInvalidParameter for memory that the program may not read, or
// may not write and that is not registered as ReadOnly.
func (n *NIC) Register(ctx context.Context, b []byte, a MemoryAttributes) (*Memory, error) {
	return n.registered(ctx, "register memory", n.defaults(a), func(a MemoryAttributes) (*Memory, error) {
		if len(b) == 0 {
			return nil, hinted(fmt.Errorf("%w: no bytes", descriptors.ErrInvalidParameter), "give at least one byte")
		}
		r, err := n.space.Reach(ctx, b)
		if err != nil {
			return nil, err
		}
		if r.Foreign {
			n.regions.mark(unusualForeign)
		}
		var m *Memory
		if !r.Writable && !a.ReadOnly {
			err = errNotWritable
		} else {
			m, err = n.registerAs(ctx, r.IOVA, b[:len(b):len(b)], a)
		}
		if err != nil {
			if !outcomeUnknown(err) {
				err = errors.Join(err, r.Drop())
			}
			return nil, err
		}
		m.writable, m.drop = r.Writable, r.Drop
		return m, nil
	})
}

// defaults fills in what a does not say.
func (n *NIC) defaults(a MemoryAttributes) MemoryAttributes {
	a.Ptag = n.ptagOr(a.Ptag)
	if a.Eager == (EagerAttributes{}) && n.eager {
		a.Eager = EagerAttributes{Mode: EagerAtPost, NoRoom: NoRoomOrdinary}
	}
	return a
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

// register tells the device of bytes, which it reaches at iova.
func (n *NIC) register(ctx context.Context, iova uint64, bytes []byte, a MemoryAttributes) (*Memory, error) {
	address := dma.AddressOf(bytes)
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
