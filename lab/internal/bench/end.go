package bench

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// end is one end of a connection between two bare VIs. The figures of messages are
// those of VIs and NICs: what a via.Conn adds for its buffers and its lock is no part
// of them. It is used by one goroutine at a time.
type end struct {
	vi     *via.VI
	cq     *via.CQ // of receives; may be nil
	memory *via.Memory
	// buffers of the sends, then those of the receives; they start at base in memory.
	buffers []byte
	base    int
	max     int // bytes of a message
	stride  int // bytes from one buffer to the next
	inline  bool
	send    []*via.Descriptor
	recv    []*via.Descriptor
	batch   []*via.Descriptor
	// Free-running: descriptor i of a queue is used for messages i, i+depth, …
	// and has the buffer of the same number.
	posted, completed uint
	taken             uint
	message           []byte // taken last, until it is released; else nil
	rdma              *rdma
	// looks counts the polls without result. After patience of them pause calls serve, which drives the peer if it
	// is in this process, and is nil otherwise.
	looks, patience int
	serve           func() error
}

// checkEvery is the number of polls without result after which a loop checks its context.
const checkEvery = 1 << 10

// mostInline is up to which length in bytes messages are built in descriptors, as a
// via.Conn does.
const mostInline = 224

// room is the memory for all ends of a NIC, and what the ends have in common.
type room struct {
	nic      *via.NIC
	memory   *via.Memory
	at       int // where the next one begins
	max      int // bytes of a message
	segments int // of a descriptor to send with
	stride   int
	inline   bool
}

// newRoom makes room for the ends of a NIC. Buffers start on cache lines of their own.
func (p *part) newRoom(ctx context.Context, nic *via.NIC) (r *room, err error) {
	r = &room{nic: nic, max: max(p.Bytes, 1), segments: 1}
	switch {
	case p.Test.oneSided():
		r.max, r.segments = max(r.max, tellSize), 2 // an address segment and a data segment
	case p.Regions == 0 && r.max <= min(mostInline, nic.Query().MaxInline):
		r.inline, r.segments = true, (r.max+datasheet.DataSegmentSize-1)/datasheet.DataSegmentSize
	}
	r.stride = (r.max + 63) &^ 63
	each := descriptors.DescriptorBytes(r.segments) + descriptors.DescriptorBytes(1) + 2*r.stride
	r.memory, err = nic.Alloc(ctx, p.VIs*p.Window*each, via.MemoryAttributes{})
	return r, err
}

// newEnd makes an end that is not connected, with all its receives posted. cq, which may be nil, gets their completions.
func (p *part) newEnd(ctx context.Context, r *room, cq *via.CQ) (*end, error) {
	depth := max(p.Window, 2)
	vi, err := r.nic.CreateVI(ctx, via.VIAttributes{Reliability: levels[p.Reliability], MaxTransfer: uint32(r.max),
		SendDepth: depth, RecvDepth: depth, RDMAWrite: p.Test == Put, RDMARead: p.Test == Get}, nil, cq)
	if err != nil {
		return nil, err
	}
	p.later(func() error {
		ctx, cancel := context.WithTimeout(context.Background(), dying)
		defer cancel()
		return vi.Disconnect(ctx)
	})
	all := make([]*via.Descriptor, 3*p.Window)
	e := &end{vi: vi, cq: cq, memory: r.memory, max: r.max, stride: r.stride, inline: r.inline, send: all[:p.Window],
		recv: all[p.Window:][:p.Window], batch: all[2*p.Window:], patience: checkEvery}
	if p.Test.oneSided() {
		if e.rdma, err = p.newRDMA(ctx, r.nic); err != nil {
			return nil, err
		}
	}
	for i := range 2 * p.Window {
		segments := r.segments
		if i >= p.Window {
			segments = 1
		}
		if all[i], err = r.memory.NewDescriptor(r.at, segments); err != nil {
			return nil, err
		}
		r.at += descriptors.DescriptorBytes(segments)
	}
	e.base = r.at
	r.at += 2 * p.Window * r.stride
	e.buffers = r.memory.Bytes()[e.base:r.at]
	for i, d := range e.recv {
		if err := e.memory.AddTo(d, e.base+e.recvOffset(uint(i)), e.max); err != nil {
			return nil, err
		}
	}
	_, err = vi.PostRecvBatch(e.recv)
	return e, err
}

func (e *end) sendOffset(i uint) int { return int(i%uint(len(e.send))) * e.stride }

func (e *end) recvOffset(i uint) int {
	return (len(e.send) + int(i%uint(len(e.recv)))) * e.stride
}

// Poll makes progress on the NIC without taking anything from it.
func (e *end) Poll() bool { return e.vi.NIC().Poll() }

// pause is called by a loop at an end that has found nothing to do. It fails with the cause of the end of ctx.
//
// A loop that spins keeps its core until its time slice is over. If the other end, another program, or a thread
// of the NIC (of its engine, or of a wire over UDP) wants that core, a message takes a whole round of all slices.
// So the core is yielded after many polls without result, which costs next to nothing on an idle core.
func (e *end) pause(ctx context.Context) error {
	if e.looks++; e.looks <= e.patience {
		return nil
	}
	e.looks = 0
	if e.serve != nil {
		return e.serve()
	}
	_, _, _ = unix.Syscall(unix.SYS_SCHED_YIELD, 0, 0, 0) // always succeeds: sched_yield(2)
	return context.Cause(ctx)
}

// until calls try until it has succeeded.
func (e *end) until(ctx context.Context, try func(*end) (bool, error)) error {
	for e.looks = 0; ; {
		if done, err := try(e); done || err != nil {
			return err
		}
		if err := e.pause(ctx); err != nil {
			return err
		}
	}
}

// acquire reports whether the buffer of the next message is free.
func (e *end) acquire() (bool, error) {
	if e.posted-e.completed < uint(len(e.send)) {
		return true, nil
	}
	return e.takeSent()
}

// buffer returns the buffer of the next message.
func (e *end) buffer() []byte {
	if e.inline {
		return e.send[e.posted%uint(len(e.send))].Inline()[:e.max:e.max]
	}
	at := e.sendOffset(e.posted)
	return e.buffers[at : at+e.max : at+e.max]
}

// Post sends the first n bytes of the buffer.
func (e *end) Post(n int) error {
	d, err := e.describe(e.posted, n)
	if err != nil {
		return err
	}
	if err := e.vi.PostSend(d); err != nil {
		return err
	}
	e.posted++
	return nil
}

// describe makes the descriptor of message i one of n bytes.
func (e *end) describe(i uint, n int) (*via.Descriptor, error) {
	d := e.send[i%uint(len(e.send))]
	d.Prepare()
	if e.inline {
		return d, d.SetInline(n)
	}
	if err := e.memory.AddTo(d, e.base+e.sendOffset(i), n); err != nil || e.rdma == nil || e.rdma.address == 0 {
		return d, err
	}
	if e.rdma.read {
		return d, d.SetRDMARead(e.rdma.address, e.rdma.handle)
	}
	return d, d.SetRDMAWrite(e.rdma.address, e.rdma.handle)
}

// postBatch sends up to most messages of n bytes with one doorbell, and returns how
// many there were: fewer if fewer buffers are free.
func (e *end) postBatch(most, n int) (int, error) {
	depth := uint(len(e.send))
	for e.completed != e.posted && depth-(e.posted-e.completed) < uint(most) {
		done, err := e.vi.SendDoneBatch(e.batch[:most])
		if notDone(err) {
			break
		}
		if err != nil {
			return 0, lost(err)
		}
		e.completed += uint(done)
	}
	batch := e.batch[:min(most, int(depth-(e.posted-e.completed)))]
	for i := range batch {
		d, err := e.describe(e.posted+uint(i), n)
		if err != nil {
			return 0, err
		}
		batch[i] = d
	}
	if len(batch) == 0 {
		return 0, nil
	}
	posted, err := e.vi.PostSendBatch(batch)
	e.posted += uint(posted)
	return posted, err
}

// reap takes back what has been sent by now, if half of the buffers are out: the next
// message need not wait for it.
func (e *end) reap() error {
	for 2*(e.posted-e.completed) >= uint(len(e.send)) {
		if sent, err := e.takeSent(); !sent {
			return err
		}
	}
	return nil
}

// takeSent takes the oldest buffer back if it has been sent.
func (e *end) takeSent() (bool, error) {
	_, err := e.vi.SendDone()
	if err == nil {
		e.completed++
		return true, nil
	}
	if notDone(err) {
		return false, nil
	}
	return false, lost(err)
}

// flush waits until all that was posted has arrived.
func (e *end) flush(ctx context.Context) error {
	for e.completed != e.posted {
		if err := e.until(ctx, (*end).takeSent); err != nil {
			return err
		}
	}
	return nil
}

// receive reports whether there is a message.
func (e *end) receive() (bool, error) {
	d, err := e.vi.RecvDone()
	if err != nil {
		if notDone(err) {
			return false, nil
		}
		return false, lost(err)
	}
	n := int(d.Length())
	if n > e.max {
		return false, fmt.Errorf("the device reports a message of %d bytes in a buffer of %d", n, e.max)
	}
	at := e.recvOffset(e.taken)
	e.message = e.buffers[at : at+n : at+n]
	return true, nil
}

// Release gives back the message that was received last.
func (e *end) Release() error {
	d := e.recv[e.taken%uint(len(e.recv))]
	e.message = nil
	e.taken++
	d.Rearm()
	return e.vi.PostRecv(d)
}

// drain takes up to most messages, without a look at what they say, and gives their
// buffers back with one doorbell. It returns how many there were.
func (e *end) drain(most int) (int, error) {
	n, err := e.vi.RecvDoneBatch(e.batch[:most])
	if err != nil {
		if notDone(err) {
			err = nil
		}
		return 0, lost(err)
	}
	for _, d := range e.batch[:n] {
		d.Rearm()
	}
	e.taken += uint(n)
	_, err = e.vi.PostRecvBatch(e.batch[:n])
	return n, err
}

// notDone compares codes, as it takes longer to compare errors.
func notDone(err error) bool {
	code, ok := err.(via.Code)
	return ok && code == via.ErrNotDone
}

// lost explains an error that follows the end of the connection: posted descriptors complete in
// error, then the queue is empty.
func lost(err error) error {
	switch {
	case err == via.ErrQueueEmpty:
		err = via.ErrDisconnected
	case !via.Ended(err) && !errors.Is(err, via.ErrDescriptor):
		return err
	}
	return fmt.Errorf("the other side is gone: %w", err)
}
