package bench

import (
	"context"
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// end is one end of a connection between two bare VIs. The figures of messages are
// those of VIs and NICs: what a via.Conn adds for its buffers and its lock is no part
// of them. It is used by one goroutine at a time.
type end struct {
	vi     *via.VI
	memory *via.Memory
	max    int // bytes of a message
	stride int // bytes from one buffer to the next
	inline bool
	send   []*via.Descriptor
	recv   []*via.Descriptor
	batch  []*via.Descriptor
	// Free-running: descriptor i of a queue is used for messages i, i+depth, …
	// and has the buffer of the same number.
	posted, completed uint
	taken             uint
	held              bool // the message taken last has not been released
	rdma              *rdma
}

// mostInline is up to which length in bytes messages are built in descriptors, as a
// via.Conn does.
const mostInline = 224

// newEnd makes an end that is not connected, with all its receives posted.
func (s *Spec) newEnd(ctx context.Context, nic *via.NIC) (*end, error) {
	size := max(s.Bytes, 1)
	if s.Test.oneSided() {
		size = max(size, tellSize)
	}
	depth := max(s.Window, 2)
	vi, err := nic.CreateVI(ctx, via.VIAttributes{Reliability: levels[s.Reliability], MaxTransfer: uint32(size), SendDepth: depth, RecvDepth: depth,
		RDMAWrite: s.Test == Put, RDMARead: s.Test == Get}, nil, nil)
	if err != nil {
		return nil, err
	}
	// Buffers start on cache lines of their own.
	e := &end{vi: vi, max: size, stride: (size + 63) &^ 63, inline: !s.Test.oneSided() && size <= min(mostInline, nic.Query().MaxInline), batch: make([]*via.Descriptor, s.Window)}
	if e.memory, err = nic.Alloc(ctx, 2*e.stride*s.Window, via.MemoryAttributes{}); err != nil {
		return nil, err
	}
	segments := 1
	switch {
	case e.inline:
		segments = (size + datasheet.DataSegmentSize - 1) / datasheet.DataSegmentSize
	case s.Test.oneSided():
		segments = 2 // an address segment and a data segment
		if e.rdma, err = s.newRDMA(ctx, nic); err != nil {
			return nil, err
		}
	}
	if e.send, err = vi.NewDescriptors(ctx, s.Window, segments); err != nil {
		return nil, err
	}
	if e.recv, err = vi.NewDescriptors(ctx, s.Window, 1); err != nil {
		return nil, err
	}
	for i, d := range e.recv {
		if err := e.memory.AddTo(d, e.recvOffset(uint(i)), size); err != nil {
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

// TryAcquire returns a free send buffer, or nil.
func (e *end) TryAcquire() ([]byte, error) {
	if e.posted-e.completed == uint(len(e.send)) {
		if sent, err := e.takeSent(); !sent {
			return nil, err
		}
	}
	if e.inline {
		return e.send[e.posted%uint(len(e.send))].Inline()[:e.max:e.max], nil
	}
	at := e.sendOffset(e.posted)
	return e.memory.Bytes()[at : at+e.max : at+e.max], nil
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
	return d, e.memory.AddTo(d, e.sendOffset(i), n)
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
// TryAcquire need not wait for it.
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
		if _, err := e.vi.SendWait(ctx); err != nil {
			return lost(err)
		}
		e.completed++
	}
	return nil
}

// TryReceive returns the next message, or nil. It is valid until Release.
func (e *end) TryReceive() ([]byte, error) {
	d, err := e.vi.RecvDone()
	if err != nil {
		if notDone(err) {
			return nil, nil
		}
		return nil, lost(err)
	}
	n := int(d.Length())
	if n > e.max {
		return nil, fmt.Errorf("the device reports a message of %d bytes in a buffer of %d", n, e.max)
	}
	e.held = true
	at := e.recvOffset(e.taken)
	return e.memory.Bytes()[at : at+n : at+n], nil
}

// Release gives back the message that was received last.
func (e *end) Release() error {
	d := e.recv[e.taken%uint(len(e.recv))]
	e.held = false
	e.taken++
	d.Rearm()
	return e.vi.PostRecv(d)
}

// drain takes up to most messages, without a look at what they say, and gives their
// buffers back with one doorbell. It returns how many there were, and their bytes.
func (e *end) drain(most int) (messages int, bytes uint64, err error) {
	n, err := e.vi.RecvDoneBatch(e.batch[:most])
	if err != nil {
		if notDone(err) {
			err = nil
		}
		return 0, 0, lost(err)
	}
	for _, d := range e.batch[:n] {
		bytes += uint64(d.Length())
		d.Rearm()
	}
	e.taken += uint(n)
	_, err = e.vi.PostRecvBatch(e.batch[:n])
	return n, bytes, err
}

// notDone compares codes, as it takes longer to compare errors.
func notDone(err error) bool {
	code, ok := err.(via.Code)
	return ok && code == via.ErrNotDone
}

// lost says of an error that the connection has ended, if it has: what is posted completes
// in error, and then the queue is empty.
func lost(err error) error {
	switch {
	case err == via.ErrQueueEmpty:
		err = via.ErrDisconnected
	case !via.Ended(err) && !errors.Is(err, via.ErrDescriptor):
		return err
	}
	return fmt.Errorf("the other side is gone: %w", err)
}

// closeAll disconnects, which the other side is told. Closing the NIC frees the rest.
func closeAll(ends []*end) error {
	ctx, cancel := context.WithTimeout(context.Background(), dying)
	defer cancel()
	var errs []error
	for _, e := range ends {
		errs = append(errs, e.vi.Disconnect(ctx))
	}
	return errors.Join(errs...)
}
