// Package endpoint is a VI together with the buffers and descriptors that its
// two queues need: messages go in and come out without anybody but this package
// handling descriptors.
package endpoint

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/via/transfer"
	"github.com/trapeze-nic/trapeze/via"
)

// Options of an endpoint.
type Options struct {
	// Reliability level; zero is reliable delivery.
	Reliability via.Reliability
	// MaxMessage in bytes, 1 to the NIC's limit. Must be the same at both ends.
	MaxMessage int
	// SendDepth and RecvDepth are the numbers of buffers of MaxMessage bytes.
	SendDepth, RecvDepth int
}

// Endpoint is one end of a connection. It is used by one goroutine at a time.
// On a reliable VI it is a transfer.Link.
type Endpoint struct {
	vi     *via.VI
	memory *via.Memory
	max    int
	stride int
	send   []*via.Descriptor
	recv   []*via.Descriptor
	inline bool // messages are built in their descriptors
	// Free-running: descriptor i of a queue is used for messages i, i+depth, …
	// and has the buffer of the same number.
	posted, completed uint
	taken             uint
	held              bool // the message taken last has not been released
	batch             []*via.Descriptor
	lost              error
}

var _ transfer.Link = (*Endpoint)(nil)

// mostInline is up to which length in bytes messages are built in descriptors: so
// many as share the descriptor's cache lines, or those next to them.
const mostInline = 224

// New makes an idle endpoint with all its receives posted.
func New(ctx context.Context, nic *via.NIC, o Options) (*Endpoint, error) {
	e, err := idle(ctx, nic, o)
	if err != nil {
		return nil, err
	}
	if err := e.furnish(ctx, nic, o); err != nil {
		return nil, errors.Join(err, e.Close())
	}
	return e, nil
}

// idle makes an endpoint without buffers and descriptors.
func idle(ctx context.Context, nic *via.NIC, o Options) (*Endpoint, error) {
	a := via.VIAttributes{
		Reliability: o.Reliability, MaxTransfer: uint32(o.MaxMessage),
		SendDepth: max(o.SendDepth, 2), RecvDepth: max(o.RecvDepth, 2),
	}
	vi, err := nic.CreateVI(ctx, a, nil, nil)
	if err != nil {
		return nil, err
	}
	// Buffers start on cache lines of their own.
	return &Endpoint{vi: vi, max: o.MaxMessage, stride: (o.MaxMessage + 63) &^ 63,
		inline: o.MaxMessage <= min(mostInline, nic.Query().MaxInline)}, nil
}

// furnish gives the endpoint its buffers and descriptors, and posts its receives.
func (e *Endpoint) furnish(ctx context.Context, nic *via.NIC, o Options) (err error) {
	if e.memory, err = nic.Alloc(ctx, max(e.stride, 64)*(o.SendDepth+o.RecvDepth), via.MemoryAttributes{}); err != nil {
		return err
	}
	segments := 1
	if e.inline {
		segments = (e.max + descriptors.DataSegmentSize - 1) / descriptors.DataSegmentSize
	}
	if e.send, err = e.vi.NewDescriptors(ctx, o.SendDepth, segments); err != nil {
		return err
	}
	if e.recv, err = e.vi.NewDescriptors(ctx, o.RecvDepth, 1); err != nil {
		return err
	}
	for i, d := range e.recv {
		if err := e.memory.AddTo(d, e.recvOffset(uint(i)), e.max); err != nil {
			return err
		}
	}
	_, err = e.vi.PostRecvBatch(e.recv)
	return err
}

func (e *Endpoint) sendOffset(i uint) int { return int(i%uint(len(e.send))) * e.stride }

func (e *Endpoint) recvOffset(i uint) int {
	return (len(e.send) + int(i%uint(len(e.recv)))) * e.stride
}

// Poll makes progress on the NIC without taking anything from it, and reports whether
// there was any.
func (e *Endpoint) Poll() bool { return e.vi.NIC().Poll() }

// Device is the address of the NIC.
func (e *Endpoint) Device() string { return e.vi.NIC().Name() }

// MaxMessage is the size in bytes of the largest message.
func (e *Endpoint) MaxMessage() int { return e.max }

// Reliability is the level of the VI.
func (e *Endpoint) Reliability() via.Reliability { return e.vi.Attributes().Reliability }

// Acquire waits for a free send buffer of MaxMessage bytes.
func (e *Endpoint) Acquire(ctx context.Context) ([]byte, error) {
	if e.lost != nil {
		return nil, e.lost
	}
	for e.posted-e.completed == uint(len(e.send)) {
		if err := e.reap(ctx); err != nil {
			return nil, err
		}
	}
	if e.inline {
		return e.send[e.posted%uint(len(e.send))].Inline()[:e.max:e.max], nil
	}
	at := e.sendOffset(e.posted)
	return e.memory.Bytes()[at : at+e.max : at+e.max], nil
}

// TryAcquire is Acquire without the waiting: it returns nil if no buffer is
// free.
func (e *Endpoint) TryAcquire() ([]byte, error) {
	if e.lost == nil && e.posted-e.completed == uint(len(e.send)) {
		if sent, err := e.takeSent(); !sent {
			return nil, err
		}
	}
	return e.Acquire(context.Background())
}

// Post sends the first n bytes of the buffer that Acquire returned last.
func (e *Endpoint) Post(n int) error {
	d, err := e.prepare(n)
	if err != nil {
		return err
	}
	return e.submit(d)
}

// PostImmediate is Post with 32 bits of immediate data.
func (e *Endpoint) PostImmediate(n int, immediate uint32) error {
	d, err := e.prepare(n)
	if err != nil {
		return err
	}
	d.SetImmediate(immediate)
	return e.submit(d)
}

func (e *Endpoint) prepare(n int) (*via.Descriptor, error) {
	if e.lost != nil {
		return nil, e.lost
	}
	return e.describe(e.posted, n)
}

// describe makes the descriptor of message i one of n bytes.
func (e *Endpoint) describe(i uint, n int) (*via.Descriptor, error) {
	d := e.send[i%uint(len(e.send))]
	d.Prepare()
	if e.inline {
		return d, d.SetInline(n)
	}
	return d, e.memory.AddTo(d, e.sendOffset(i), n)
}

func (e *Endpoint) submit(d *via.Descriptor) error {
	if err := e.vi.PostSend(d); err != nil {
		return err
	}
	e.posted++
	return nil
}

// reap waits for the oldest send to complete.
func (e *Endpoint) reap(ctx context.Context) error {
	if _, err := e.vi.SendWait(ctx); err != nil {
		return e.fail(err)
	}
	e.completed++
	return nil
}

// Reap takes back what has been sent by now, if half of the buffers are out. Who
// calls it while he waits anyway need not wait for it with the next Acquire.
func (e *Endpoint) Reap() error {
	for e.lost == nil && 2*(e.posted-e.completed) >= uint(len(e.send)) {
		if sent, err := e.takeSent(); !sent {
			return err
		}
	}
	return e.lost
}

// takeSent takes the oldest buffer back if it has been sent.
func (e *Endpoint) takeSent() (bool, error) {
	_, err := e.vi.SendDone()
	if err == via.ErrNotDone {
		return false, nil
	}
	if err != nil {
		return false, e.fail(err)
	}
	e.completed++
	return true, nil
}

// Flush waits until all that was posted has arrived.
func (e *Endpoint) Flush(ctx context.Context) error {
	for e.completed != e.posted {
		if err := e.reap(ctx); err != nil {
			return err
		}
	}
	return e.lost
}

// Receive waits for the next message. It is valid until Release.
func (e *Endpoint) Receive(ctx context.Context) ([]byte, error) {
	d, err := e.vi.RecvWait(ctx)
	return e.message(d, err)
}

// TryReceive is Receive without the waiting: it returns nil if no message is
// there.
func (e *Endpoint) TryReceive() ([]byte, error) {
	d, err := e.vi.RecvDone()
	if code, ok := err.(via.Code); ok && code == via.ErrNotDone {
		return nil, nil
	}
	return e.message(d, err)
}

func (e *Endpoint) message(d *via.Descriptor, err error) ([]byte, error) {
	if err != nil {
		return nil, e.fail(err)
	}
	if e.held {
		return nil, errors.New("receive: the last message has not been released")
	}
	e.held = true
	n := int(d.Length())
	if n > e.max {
		return nil, fmt.Errorf("receive: the device reports a message of %d bytes in a buffer of %d", n, e.max)
	}
	at := e.recvOffset(e.taken)
	return e.memory.Bytes()[at : at+n : at+n], nil
}

// Immediate returns the immediate data of the message received last, which has
// not been released, and whether it had any.
func (e *Endpoint) Immediate() (uint32, bool) {
	return e.recv[e.taken%uint(len(e.recv))].Immediate()
}

// Held reports whether a message has been received and not been released.
func (e *Endpoint) Held() bool { return e.held }

// Release gives back the message that was received last.
func (e *Endpoint) Release() error {
	if !e.held {
		return errors.New("release: no message is held")
	}
	d := e.recv[e.taken%uint(len(e.recv))]
	e.held = false
	e.taken++
	d.Rearm()
	return e.vi.PostRecv(d)
}

// fail turns a descriptor that failed into the end of the connection, which on
// a reliable VI it is. The error wraps via.ErrDisconnected, via.ErrPeerLost or
// via.ErrConnectionBroken, if the other side or an error has ended it. Later calls
// get the same error.
func (e *Endpoint) fail(err error) error {
	var s *via.StatusError
	switch {
	case errors.As(err, &s) && e.lost == nil:
		e.lost = transfer.ErrPeerLost
		if s.Ended != 0 {
			e.lost = fmt.Errorf("%w: %w", e.lost, s.Ended)
		}
		if failed := s.Status & descriptors.StatusErrorMask; failed&(via.StatusFlushed|via.StatusTransportError) == 0 {
			e.lost = fmt.Errorf("%w: %v", e.lost, failed)
		}
	case err == via.ErrQueueEmpty && e.lost == nil:
		e.lost = fmt.Errorf("%w: nothing is posted any more", transfer.ErrPeerLost)
	case s != nil, err == via.ErrQueueEmpty:
	default:
		return err
	}
	return e.lost
}

// parting bounds how long Close waits for the NIC.
const parting = 2 * time.Second

// Close disconnects, which the other side is told, and frees everything. The
// endpoint must not be used afterwards.
func (e *Endpoint) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), parting)
	defer cancel()
	if err := e.vi.Disconnect(ctx); err != nil {
		return err
	}
	for _, done := range []func() (*via.Descriptor, error){e.vi.SendDone, e.vi.RecvDone} {
		for {
			_, err := done()
			if err == via.ErrQueueEmpty {
				break
			}
			if err == via.ErrNotDone && ctx.Err() != nil {
				return fmt.Errorf("close: descriptors do not come back: %w", ctx.Err())
			}
			if err != nil && err != via.ErrNotDone && !errors.Is(err, via.ErrDescriptor) {
				return err
			}
		}
	}
	err := e.vi.Destroy(ctx)
	if e.memory != nil && err == nil {
		err = e.memory.Deregister(ctx)
	}
	return err
}
