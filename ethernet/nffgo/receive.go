//go:build nffgo

package nffgo

import (
	"time"

	"github.com/intel-go/nff-go/flow"
	"github.com/intel-go/nff-go/packet"

	"github.com/trapeze-nic/trapeze/ethernet"
)

const (
	// window limits the buffers of a receiver in the graph: as many bursts as one of
	// nff-go's rings holds, which has room for 64*32-1 packets, less one. Of a small pool
	// it is half, as nff-go sends buffers twice when the pool has none.
	window = 62 * burst
	// timeout limits a receiver's wait for frames. nff-go's scheduler waits for it
	// when it stops, and each 500 ms.
	timeout = 5 * time.Millisecond
	// speed that is asked for, in packets a second: more than there is. With
	// DisableScheduler it does nothing.
	speed = 1 << 40
)

// SetReceiver adds a source to the graph: the frames that the queue receives. It takes
// one core for itself, and one for the functions after it, which are to be vector
// functions; others take one more. It fails with ethernet.ErrInUse if the queue is a
// source already, and with nff-go's errors.
func (q *Queue) SetReceiver() (*flow.Flow, error) {
	if q.received.Swap(true) {
		return nil, q.inUse("receive from")
	}
	out, _, err := flow.SetVectorFastGenerator(receive, speed, &receiver{q: q})
	if err != nil {
		return nil, err
	}
	return out, flow.SetVectorHandlerDrop(out, isFrame, nil)
}

// isFrame drops what was generated without a frame.
func isFrame(packets []*packet.Packet, mask, keep *[burst]bool, _ flow.UserContext) {
	for i := range mask {
		if mask[i] {
			keep[i] = packets[i].GetPacketLen() > 0
		}
	}
}

// receiver is the state of one copy of the source. nff-go copies it for each, the
// first included.
type receiver struct {
	q      *Queue
	cache  *ethernet.Cache // nil: another copy receives
	frames [burst]ethernet.Frame
	// used is the number of buffers that are in the graph at most: those that were when it was last
	// looked up, and all since; most is their limit.
	used, most int
}

func (r *receiver) Copy() any {
	c := &receiver{q: r.q}
	if r.q.receiving.CompareAndSwap(false, true) {
		c.cache = r.q.pool.NewCache()
	}
	return c
}

func (r *receiver) Delete() {
	if r.cache != nil {
		r.cache.Close()
		r.q.receiving.Store(false)
	}
}

// receive fills packets, which are new and empty, from the front. nff-go passes all of
// them on whatever is in them: if there is nothing to fill them with it waits.
func receive(packets []*packet.Packet, context flow.UserContext) {
	r := context.(*receiver)
	if r.cache == nil {
		time.Sleep(timeout)
		return
	}
	if r.most == 0 {
		r.most = min(window, poolSize(packets[0])/2)
	}
	r.used += burst
	var p pause
	for end := time.Now().Add(timeout); ; p.wait() {
		n := 0
		if r.used > r.most {
			r.used = outstanding(packets[0])
		}
		if r.used <= r.most {
			n = r.burst()
		}
		if n > 0 {
			r.fill(packets, n)
			return
		}
		if p.looks > looks && time.Now().After(end) {
			return
		}
	}
}

// burst receives at most as many frames as there are packets.
func (r *receiver) burst() int {
	r.q.lock.Lock()
	n, err := r.q.queue.Receive(r.frames[:])
	r.q.lock.Unlock()
	if err != nil {
		r.q.fail(err)
	}
	return n
}

func (r *receiver) fill(packets []*packet.Packet, n int) {
	good := 0
	for _, f := range r.frames[:n] {
		if b := r.q.pool.Bytes(f); len(b) > 0 && packet.GeneratePacketFromByte(packets[good], b) {
			good++
		}
	}
	r.cache.Free(r.frames[:n])
	r.q.counts.received.Add(uint64(good))
	r.q.counts.bad.Add(uint64(n - good))
}
