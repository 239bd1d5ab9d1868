package bench

import (
	"context"
	"encoding/binary"
	"fmt"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// rdma holds what an end has besides for the tests Put and Get: memory that the other end writes
// to or reads from, and where the other end has its own.
type rdma struct {
	read   bool // rather than write
	bytes  int  // of an operation
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
}

// tellSize is the number of bytes that one end tells the other one about its target: the address
// and the handle.
const tellSize = 12

// mark is the last byte of what is read.
const mark = 0xA5

// newRDMA makes the target of an end.
func (p *part) newRDMA(ctx context.Context, nic *via.NIC) (*rdma, error) {
	const word = 4
	m, err := nic.Alloc(ctx, (p.Bytes+word-1)&^(word-1), via.MemoryAttributes{RDMAWrite: p.Test == Put, RDMARead: p.Test == Get})
	if err != nil {
		return nil, err
	}
	last := p.Bytes - 1
	r := &rdma{read: p.Test == Get, bytes: p.Bytes, target: m, shift: 8 * (last % word)}
	r.word = datasheet.IndexAt(m.Bytes()[last&^(word-1):])
	if r.read {
		m.Bytes()[last] = mark
	}
	return r, nil
}

// tell sends the other end where this one's target is.
func (e *end) tell() error {
	if free, err := e.acquire(); !free {
		return err
	}
	buf := e.buffer()
	binary.LittleEndian.PutUint64(buf, e.rdma.target.Address())
	binary.LittleEndian.PutUint32(buf[8:], e.rdma.target.Handle())
	err := e.Post(tellSize)
	e.Poll()
	return err
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
	told := e.buffers[e.recvOffset(e.taken):]
	e.rdma.address, e.rdma.handle = binary.LittleEndian.Uint64(told), binary.LittleEndian.Uint32(told[8:])
	return e.Release()
}

// hasLanded reports whether the other end's next write is there.
func (r *rdma) hasLanded() bool { return byte(atomic.LoadUint32(r.word)>>r.shift) == r.landed+1 }

// landed reports whether the other end's next write is there, and else has an inline NIC make progress. It
// fails if the connection has ended, which memory does not tell.
func (e *end) landed() (bool, error) {
	if e.rdma.hasLanded() {
		e.rdma.landed++
		return true, nil
	}
	came, err := e.receive()
	if came {
		return false, fmt.Errorf("a message of %d bytes that was not asked for", len(e.message))
	}
	return false, err
}

// put writes n bytes to the other end, the last of which is the number of the write, as
// ucx_perftest has it in ucp_put_lat.
func put(ctx context.Context, e *end, n int) error {
	if err := e.until(ctx, (*end).acquire); err != nil {
		return err
	}
	e.rdma.written++
	e.buffer()[n-1] = e.rdma.written
	if err := e.Post(n); err != nil {
		return err
	}
	e.Poll() // an inline NIC finds what has arrived
	return e.reap()
}

// putRoundTrip writes to the other end, and polls memory until that has written back, and the NIC,
// which has a part in it.
func putRoundTrip(ctx context.Context, e *end, n int) error {
	if err := put(ctx, e, n); err != nil {
		return err
	}
	return e.until(ctx, (*end).landed)
}

// get reads n bytes from the other end and waits until they are here, as ucx_perftest does
// in ucp_get with one operation under way.
func get(ctx context.Context, e *end, n int) error {
	if err := e.until(ctx, (*end).acquire); err != nil {
		return err
	}
	buf := e.buffer()
	buf[n-1] = ^byte(mark)
	if err := e.Post(n); err != nil {
		return err
	}
	if err := e.flush(ctx); err != nil {
		return err
	}
	if last := buf[n-1]; last != mark {
		return fmt.Errorf("a read of %d bytes ends with %#x, not %#x", n, last, mark)
	}
	return nil
}

// replyRDMA writes back if the other end has written, or has the NIC answer reads. It
// returns how many writes or answers there were.
func replyRDMA(ctx context.Context, e *end) (int, error) {
	if e.rdma.read && e.Poll() {
		return 1, nil
	}
	landed, err := e.landed()
	if !landed {
		return 0, err
	}
	return 1, put(ctx, e, e.rdma.bytes)
}
