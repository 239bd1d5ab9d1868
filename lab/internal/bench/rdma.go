package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// rdma holds what an end has besides for the tests Put and Get: memory that the other end writes
// to or reads from, and where the other end has its own.
type rdma struct {
	read   bool // rather than write
	target *via.Memory
	// word is the last one of the target with the last byte of a message in it, which
	// has the number of the write.
	word  *uint32
	shift int
	// address and handle of the other end's target.
	address uint64
	handle  uint32
	// written and landed are the numbers of the latest writes of this end and of the
	// other one, modulo 256. Memory that was never written to has number 0.
	written, landed byte
	// other is the other end where this process has both.
	other *end
}

// tellSize is the number of bytes that one end tells the other one about its target: the address
// and the handle.
const tellSize = 12

// mark is the last byte of what is read.
const mark = 0xA5

// newRDMA makes the target of an end.
func (s *Spec) newRDMA(ctx context.Context, nic *via.NIC) (*rdma, error) {
	const word = 4
	m, err := nic.Alloc(ctx, (s.Bytes+word-1)&^(word-1), via.MemoryAttributes{RDMAWrite: s.Test == Put, RDMARead: s.Test == Get})
	if err != nil {
		return nil, err
	}
	last := s.Bytes - 1
	r := &rdma{read: s.Test == Get, target: m, word: datasheet.IndexAt(m.Bytes()[last&^(word-1):]), shift: 8 * (last % word)}
	if r.read {
		m.Bytes()[last] = mark
	}
	return r, nil
}

// tell sends the other end where this one's target is.
func (e *end) tell() error {
	buf, err := e.TryAcquire()
	if err != nil {
		return err
	}
	binary.LittleEndian.PutUint64(buf, e.rdma.target.Address())
	binary.LittleEndian.PutUint32(buf[8:], e.rdma.target.Handle())
	d := e.send[0]
	d.Prepare()
	if err := errors.Join(e.memory.AddTo(d, 0, tellSize), e.vi.PostSend(d)); err != nil {
		return err
	}
	e.posted++
	e.Poll()
	return nil
}

// learn waits for what the other end tells.
func (e *end) learn(ctx context.Context) error {
	d, err := e.vi.RecvWait(ctx)
	if err != nil {
		return lost(err)
	}
	if d.Length() != tellSize {
		return fmt.Errorf("the other end tells of its memory in %d bytes, not %d", d.Length(), tellSize)
	}
	told := e.memory.Bytes()[e.recvOffset(e.taken):]
	e.rdma.address, e.rdma.handle = binary.LittleEndian.Uint64(told), binary.LittleEndian.Uint32(told[8:])
	return e.Release()
}

// describeRDMA makes the descriptor of operation i one of n bytes.
func (e *end) describeRDMA(i uint, n int) (*via.Descriptor, error) {
	d := e.send[i%uint(len(e.send))]
	d.Prepare()
	if err := e.memory.AddTo(d, e.sendOffset(i), n); err != nil {
		return nil, err
	}
	if e.rdma.read {
		return d, d.SetRDMARead(e.rdma.address, e.rdma.handle)
	}
	return d, d.SetRDMAWrite(e.rdma.address, e.rdma.handle)
}

// hasLanded reports whether the other end's next write is there.
func (r *rdma) hasLanded() bool { return byte(atomic.LoadUint32(r.word)>>r.shift) == r.landed+1 }

// look has an inline NIC make progress, with that of the other end where this process
// has it, and fails if the connection has ended, which memory does not tell.
func (e *end) look() error {
	if e.rdma.other != nil {
		e.rdma.other.Poll()
	}
	m, err := e.TryReceive()
	if m != nil {
		return fmt.Errorf("a message of %d bytes that was not asked for", len(m))
	}
	return err
}

// acquireFor waits for a buffer for an operation of n bytes.
func (e *end) acquireFor(ctx context.Context, n int) ([]byte, error) {
	for looks, since := checkEvery, (time.Time{}); ; looks-- {
		buf, err := e.TryAcquire()
		if buf != nil || err != nil {
			return buf, err
		}
		if err := e.look(); err != nil {
			return nil, err
		}
		if looks <= 0 {
			if looks, err = backOff(ctx, e.vi.NIC(), n, &since); err != nil {
				return nil, err
			}
		}
	}
}

// put writes n bytes to the other end, the last of which is the number of the write, as
// ucx_perftest has it in ucp_put_lat.
func put(ctx context.Context, e *end, n int) error {
	buf, err := e.acquireFor(ctx, n)
	if err != nil {
		return err
	}
	e.rdma.written++
	buf[n-1] = e.rdma.written
	if err := e.postRDMA(n); err != nil {
		return err
	}
	e.Poll() // an inline NIC finds what has arrived
	return e.reap()
}

// postRDMA posts an operation of n bytes.
func (e *end) postRDMA(n int) error {
	d, err := e.describeRDMA(e.posted, n)
	if err != nil {
		return err
	}
	if err := e.vi.PostSend(d); err != nil {
		return err
	}
	e.posted++
	return nil
}

// awaitPut polls memory until the other end's next write is there, and the NIC, which
// has a part in it.
func awaitPut(ctx context.Context, e *end, n int) (err error) {
	for looks, since := checkEvery, (time.Time{}); !e.rdma.hasLanded(); looks-- {
		if err := e.look(); err != nil {
			return err
		}
		if looks <= 0 && !e.rdma.hasLanded() { // else it would wait until after a nap
			if looks, err = backOff(ctx, e.vi.NIC(), n, &since); err != nil {
				return err
			}
		}
	}
	e.rdma.landed++
	return nil
}

// putRoundTrip writes to the other end, and waits until that has written back.
func putRoundTrip(ctx context.Context, e *end, n int) error {
	if err := put(ctx, e, n); err != nil {
		return err
	}
	if y := e.rdma.other; y != nil {
		if err := awaitPut(ctx, y, n); err != nil {
			return err
		}
		if err := put(ctx, y, n); err != nil {
			return err
		}
	}
	return awaitPut(ctx, e, n)
}

// get reads n bytes from the other end and waits until they are here, as ucx_perftest does
// in ucp_get with one operation under way.
func get(ctx context.Context, e *end, n int) error {
	buf, err := e.acquireFor(ctx, n)
	if err != nil {
		return err
	}
	buf[n-1] = ^byte(mark)
	if err := e.postRDMA(n); err != nil {
		return err
	}
	for looks, since := checkEvery, (time.Time{}); e.completed != e.posted; looks-- {
		done, err := e.takeSent()
		if err != nil {
			return err
		}
		if done {
			continue // it is the read, unless it was told before the first one
		}
		if e.rdma.other != nil {
			e.rdma.other.Poll()
		}
		if looks <= 0 {
			if looks, err = backOff(ctx, e.vi.NIC(), n, &since); err != nil {
				return err
			}
		}
	}
	if last := buf[n-1]; last != mark {
		return fmt.Errorf("a read of %d bytes ends with %#x, not %#x", n, last, mark)
	}
	return nil
}

// replyRDMA writes back if the other end has written, or has the NIC answer reads. It
// returns how many writes or answers there were.
func (s *Spec) replyRDMA(ctx context.Context, e *end, side *Side) (int, error) {
	if s.Test == Get && e.Poll() {
		return 1, nil
	}
	// What has landed after a look must not wait until after a nap.
	if err := e.look(); s.Test == Get || err != nil || !e.rdma.hasLanded() {
		return 0, err
	}
	e.rdma.landed++
	side.Messages++
	side.Bytes += uint64(s.Bytes)
	return 1, put(ctx, e, s.Bytes)
}
