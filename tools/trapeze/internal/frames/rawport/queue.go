package rawport

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// queue is an ethernet.Queue over an endpoint for raw frames. Each descriptor of its rings
// has a place in the NIC's memory that stays its own; both rings are used in turn.
type queue struct {
	port   *port
	cache  *ethernet.Cache
	pool   *ethernet.Pool
	limit  int // bytes of the longest frame
	stride int // from one frame's place to the next

	vi     *via.VI
	memory *via.Memory
	bytes  []byte // all of memory

	receives  []*via.Descriptor // place i of memory is the i-th one's
	next      int               // of receives: the oldest not given to the caller
	completed int               // how many from there on have been taken from the NIC
	sends     []*via.Descriptor // their places are behind those of receives
	nextSend  int
	unsent    int

	scratch  []*via.Descriptor
	counters counters
}

type counters struct {
	receivedFrames, receivedBytes, sentFrames, sentBytes ethernet.Counter
	receiveErrors, badLengths, noBuffers, lost           ethernet.Counter
}

func (c *counters) load() ethernet.QueueStats {
	return ethernet.QueueStats{
		ReceivedFrames: c.receivedFrames.Load(), ReceivedBytes: c.receivedBytes.Load(),
		SentFrames: c.sentFrames.Load(), SentBytes: c.sentBytes.Load(),
		ReceiveErrors: c.receiveErrors.Load(), BadLengths: c.badLengths.Load(),
		NoBuffers: c.noBuffers.Load(), Lost: c.lost.Load(),
	}
}

// lineSize aligns the places of frames.
const lineSize = 64

// newQueue makes the endpoint and posts all receives.
func newQueue(ctx context.Context, p *port) (*queue, error) {
	c, a := p.info.Options, p.nic.Query()
	q := &queue{port: p, pool: c.Pool, limit: min(c.MaxFrame(), a.MTU)}
	q.stride = (q.limit + lineSize - 1) / lineSize * lineSize
	which := via.StationFrames
	if c.Promiscuous {
		which = via.AllFrames
	}
	var err error
	if q.vi, err = p.nic.CreateVI(ctx, via.VIAttributes{Frames: which, MaxTransfer: uint32(q.limit),
		RecvDepth: min(c.ReceiveDescriptors, a.MaxDescriptors), SendDepth: min(c.SendDescriptors, a.MaxDescriptors)}, nil, nil); err != nil {
		return nil, err
	}
	v := q.vi.Attributes()
	if q.memory, err = p.nic.Alloc(ctx, (v.RecvDepth+v.SendDepth)*q.stride, via.MemoryAttributes{}); err != nil {
		return nil, err
	}
	q.bytes = q.memory.Bytes()
	if q.receives, err = q.vi.NewDescriptors(ctx, v.RecvDepth, 1); err != nil {
		return nil, err
	}
	if q.sends, err = q.vi.NewDescriptors(ctx, v.SendDepth, 1); err != nil {
		return nil, err
	}
	for i, d := range q.receives {
		d.Prepare()
		if err := q.memory.AddTo(d, i*q.stride, q.limit); err != nil {
			return nil, err
		}
	}
	if _, err := q.vi.PostRecvBatch(q.receives); err != nil {
		return nil, err
	}
	q.scratch = make([]*via.Descriptor, max(len(q.receives), len(q.sends)))
	q.cache = c.Pool.NewCache()
	return q, nil
}

func (q *queue) Cache() *ethernet.Cache { return q.cache }

func (q *queue) Receive(frames []ethernet.Frame) (int, error) {
	if want := min(len(frames), len(q.receives)); q.completed < want {
		if err := q.collect(want - q.completed); err != nil {
			return 0, q.port.fail("receive from", err)
		}
	}
	want := min(len(frames), q.completed)
	if want == 0 {
		return 0, nil
	}
	got := q.cache.Alloc(frames[:want])
	if got < want {
		q.counters.noBuffers.Add(1)
	}
	n, octets := 0, 0
	for i := range got {
		d, place := q.receives[q.next], q.bytes[q.next*q.stride:]
		if length := q.received(d); length > 0 {
			f := frames[n]
			f.Length = uint16(length)
			copy(q.pool.Bytes(f), place[:length])
			frames[n] = f
			n, octets = n+1, octets+length
		}
		d.Rearm()
		q.scratch[i] = d
		q.next = (q.next + 1) % len(q.receives)
	}
	q.cache.Free(frames[n:got])
	q.completed -= got
	q.counters.receivedFrames.Add(uint64(n))
	q.counters.receivedBytes.Add(uint64(octets))
	_, err := q.vi.PostRecvBatch(q.scratch[:got])
	return n, q.port.fail("receive from", err)
}

// received returns the length of the frame that came into a receive, 0 if it cannot be
// used. The NIC is not trusted with it.
func (q *queue) received(d *via.Descriptor) int {
	length := int(d.Length())
	switch {
	case d.Status().Failed():
		q.counters.receiveErrors.Add(1)
	case length < ethernet.HeaderSize || length > q.limit:
		q.counters.badLengths.Add(1)
	default:
		return length
	}
	return 0
}

// collect takes up to n receives that have completed from the NIC.
func (q *queue) collect(n int) error {
	n, err := q.vi.RecvDoneBatch(q.scratch[:n])
	return q.note(n, err)
}

// note counts n receives that were taken, the first ones of scratch.
func (q *queue) note(n int, err error) error {
	switch {
	case err == nil, err == via.ErrNotDone, err == via.ErrQueueEmpty:
	case n == 1 && one(err):
		// A frame that did not fit: its status says so when it is looked at.
	default:
		return err
	}
	for _, d := range q.scratch[:n] {
		if want := q.receives[(q.next+q.completed)%len(q.receives)]; d != want {
			return fmt.Errorf("%w: receives do not complete in order", ethernet.ErrProtocol)
		}
		q.completed++
	}
	return nil
}

func (q *queue) Send(frames []ethernet.Frame) (int, error) {
	if err := q.settle(); err != nil {
		return 0, q.port.fail("send to", err)
	}
	n, octets := 0, 0
	var bad error
	for room := len(q.sends) - q.unsent; n < min(len(frames), room); n++ {
		b := q.pool.Bytes(frames[n])
		if bad = q.sendable(&frames[n], b); bad != nil {
			break
		}
		d, at := q.sends[q.nextSend], (len(q.receives)+q.nextSend)*q.stride
		copy(q.bytes[at:at+q.stride], b)
		d.Prepare()
		if bad = q.memory.AddTo(d, at, len(b)); bad != nil {
			break
		}
		q.scratch[n] = d
		q.nextSend = (q.nextSend + 1) % len(q.sends)
		octets += len(b)
	}
	if n == 0 {
		return 0, q.port.fail("send to", bad)
	}
	q.unsent += n
	q.cache.Free(frames[:n])
	q.counters.sentFrames.Add(uint64(n))
	q.counters.sentBytes.Add(uint64(octets))
	if _, err := q.vi.PostSendBatch(q.scratch[:n]); err != nil {
		return n, q.port.fail("send to", err)
	}
	return n, q.port.fail("send to", bad)
}

// sendable says why a frame cannot be sent.
func (q *queue) sendable(f *ethernet.Frame, b []byte) error {
	switch {
	case len(b) < ethernet.HeaderSize || len(b) > q.limit:
		return fmt.Errorf("%w: %d bytes, %d to %d can be sent", ethernet.ErrBadFrame, f.Length, ethernet.HeaderSize, q.limit)
	case f.Flags.Requests() != 0 || f.Segment != 0:
		return fmt.Errorf("%w: it asks for an offload", ethernet.ErrBadFrame)
	case [2]byte(b[12:]) == datasheet.EtherType:
		return fmt.Errorf("%w: frames of type %x are for connections", ethernet.ErrBadFrame, datasheet.EtherType)
	}
	return nil
}

// settle takes back sends that have completed.
func (q *queue) settle() error {
	for q.unsent > 0 {
		n, err := q.vi.SendDoneBatch(q.scratch)
		q.unsent -= n
		switch {
		case err == via.ErrNotDone || err == via.ErrQueueEmpty:
			return nil
		case err == nil:
		case one(err):
			q.counters.lost.Add(uint64(n))
		default:
			return err
		}
	}
	return nil
}

// one reports whether an error is that of one frame, and not of the endpoint.
func one(err error) bool {
	var status *via.StatusError
	return errors.As(err, &status) && status.Status&(via.StatusFlushed|via.StatusProtectionError) == 0
}

func (q *queue) Unsent() (int, error) {
	err := q.settle()
	return q.unsent, q.port.fail("send to", err)
}

func (q *queue) Wait(ctx context.Context) error {
	const op = "wait for"
	if err := ctx.Err(); err != nil {
		return q.port.fail(op, err)
	}
	if q.completed > 0 {
		return nil
	}
	limited, cancel := context.WithTimeout(ctx, ethernet.WaitLimit)
	defer cancel()
	if q.port.info.Vectors == 0 {
		return q.port.fail(op, q.poll(limited, ctx))
	}
	d, err := q.vi.RecvWait(limited)
	n := 0
	if d != nil {
		q.scratch[0], n = d, 1
	} else if limited.Err() != nil { // ctx may have ended since, and err be of limited
		return q.port.fail(op, ctx.Err())
	}
	return q.port.fail(op, q.note(n, err))
}

// poll looks until a receive has completed or limited ends, which is no error unless ctx
// does.
func (q *queue) poll(limited, ctx context.Context) error {
	for limited.Err() == nil {
		if err := q.collect(1); err != nil || q.completed > 0 {
			return err
		}
		runtime.Gosched()
	}
	return ctx.Err()
}
