package virtio

import (
	"encoding/binary"
	"fmt"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/port"
	"github.com/trapeze-nic/trapeze/ethernet/internal/virtio/internal/transport"
	"github.com/trapeze-nic/trapeze/ethernet/internal/virtio/internal/virtqueue"
	"github.com/trapeze-nic/trapeze/internal/hotlock"
)

const (
	// headerSize is the size of the header before each frame (struct virtio_net_hdr of version 1,
	// "Device Operation"), and numBuffersAt where in it the number of buffers is.
	headerSize   = 12
	numBuffersAt = 10
	// burst is the number of buffers that are taken from a ring at a time.
	burst = 64
)

// queue is a pair of rings.
type queue struct {
	port.Queue
	device *device

	lock      hotlock.Mutex // held by the user of the rings
	receiving ring
	sending   ring
	used      [burst]virtqueue.Used
	sent      [burst]uint32 // buffers of frames that have been sent
	// spare are buffers for the receive ring: a frame is taken out only if there is one to
	// put in.
	spare []uint32
	// skip is the number of buffers still that belong to a frame that was dropped.
	skip     uint32
	looks    int  // of Send in vain
	reported bool // that the device sends nothing

	mergeable bool
	buffers   []byte // of the pool
	bus       uint64 // of the pool
	stride    int
	room      int // bytes of a frame in a receive buffer
	headroom  int
	maxFrame  int

	waiting sync.Mutex // held by the goroutine that waits for an interrupt
	eventfd int
}

func newQueue(d *device) (*queue, error) {
	config := d.options
	c := config.Pool.Options()
	q := &queue{device: d, spare: make([]uint32, 0, burst), eventfd: -1,
		stride: config.Pool.Stride(), room: c.Size, headroom: c.Headroom, maxFrame: config.MaxFrame()}
	if config.Interrupts {
		fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
		if err != nil {
			return nil, fmt.Errorf("eventfd: %w", err)
		}
		q.eventfd = fd
	}
	q.receiving.interrupt, q.sending.interrupt = -1, -1
	d.port.Add(q, &q.Queue)
	return q, nil
}

// pause keeps the data path off the rings.
func (q *queue) pause() {
	q.lock.Lock()
	q.Live = false
	q.lock.Unlock()
}

// run lets the data path use the rings, and shows the device the receive buffers.
func (q *queue) run() {
	q.lock.Lock()
	q.Live, q.Full = true, false
	q.moved()
	q.receiving.publish()
	q.lock.Unlock()
}

// fill puts buffers into a receive ring that is empty, and reports whether the pool has
// enough.
func (q *queue) fill() bool {
	q.lock.Lock()
	defer q.lock.Unlock()
	q.bus, q.mergeable, q.skip = q.device.poolBus, q.device.features&transport.FeatureMergeable != 0, 0
	for q.receiving.Room() > 0 {
		b, ok := q.Cache().Take()
		if !ok {
			return q.receiving.Lent() > 0
		}
		q.lend(b)
	}
	return true
}

// reclaimAll takes back the buffers of both rings, which the device has left alone.
func (q *queue) reclaimAll() {
	q.lock.Lock()
	defer q.lock.Unlock()
	q.reclaimReceiving()
	q.reclaimSending()
}

func (q *queue) reclaimReceiving() {
	if q.receiving.Queue != nil {
		q.receiving.Reclaim(q.Cache().Give)
	}
}

// reclaimSending also counts the frames that may not have been sent.
func (q *queue) reclaimSending() {
	if q.sending.Queue == nil {
		return
	}
	q.collect()
	q.Counters.Lost.Add(uint64(q.sending.Lent()))
	q.sending.Reclaim(q.Cache().Give)
}

// close gives back what the queue has itself. Its rings are reclaimed.
func (q *queue) close() error {
	q.lock.Lock()
	for _, b := range q.spare {
		q.Cache().Give(b)
	}
	q.spare = q.spare[:0]
	q.Cache().Close()
	q.lock.Unlock()
	q.waiting.Lock()
	defer q.waiting.Unlock()
	if q.eventfd < 0 {
		return nil
	}
	err := unix.Close(q.eventfd)
	q.eventfd = -1
	return err
}

// lend puts a buffer into the receive ring.
func (q *queue) lend(b uint32) {
	at := uint64(b)*uint64(q.stride) + uint64(q.headroom-headerSize)
	q.receiving.Add(virtqueue.Part{Address: q.bus + at, Length: uint32(headerSize + q.room), Writable: true}, b)
}

// Receive takes frames that have arrived.
func (q *queue) Receive(frames []ethernet.Frame) (int, error) {
	if err := q.Port.Failed(); err != nil {
		return 0, err
	}
	q.lock.Lock()
	defer q.lock.Unlock()
	if !q.Live {
		return 0, nil
	}
	n, taken := 0, 0
	for n < len(frames) && q.replenish(len(frames)-n) {
		most := min(len(frames)-n, len(q.spare))
		got := q.receiving.Take(q.used[:most])
		for _, u := range q.used[:got] {
			if !q.accept(u, &frames[n]) {
				q.lend(u.Tag)
				continue
			}
			n++
			last := len(q.spare) - 1
			q.lend(q.spare[last])
			q.spare = q.spare[:last]
		}
		taken += got
		if got < most {
			if q.receiving.Violation() != nil {
				q.Broken()
			}
			break
		}
	}
	if taken > 0 {
		q.receiving.publish()
	}
	q.Counters.ReceivedFrames.Add(uint64(n))
	return n, nil
}

// replenish gets some spare buffers, at most n if none are left, and reports whether there
// are any.
func (q *queue) replenish(n int) bool {
	if len(q.spare) > 0 {
		return true
	}
	q.spare = append(q.spare, q.Cache().TakeAll(min(n, cap(q.spare)))...)
	if len(q.spare) == 0 {
		q.Counters.NoBuffers.Add(1)
	}
	return len(q.spare) > 0
}

// accept makes a frame of a buffer, or counts why there is none.
func (q *queue) accept(u virtqueue.Used, f *ethernet.Frame) bool {
	if q.skip > 0 {
		q.skip--
		return false
	}
	if q.mergeable && u.Length >= headerSize {
		at := int(u.Tag)*q.stride + q.headroom - headerSize + numBuffersAt
		if n := int(binary.LittleEndian.Uint16(q.buffers[at:])); n != 1 {
			// A buffer holds the longest frame, so none goes on in another. What follows has
			// no header, and is no more than the ring holds.
			q.Counters.Unended.Add(1)
			q.skip = uint32(min(max(n, 1), q.receiving.options.Size) - 1)
			return false
		}
	}
	length := int(u.Length) - headerSize
	if length < ethernet.HeaderSize || length > q.maxFrame {
		q.Counters.BadLengths.Add(1)
		return false
	}
	q.Counters.ReceivedBytes.Add(uint64(length))
	*f = ethernet.Frame{Buffer: u.Tag, Offset: uint16(q.headroom), Length: uint16(length)}
	return true
}

// Send sends frames.
func (q *queue) Send(frames []ethernet.Frame) (int, error) {
	if err := q.Port.Failed(); err != nil {
		return 0, err
	}
	q.lock.Lock()
	defer q.lock.Unlock()
	if !q.Live {
		return 0, nil
	}
	room := q.sending.Room()
	if room < len(frames) && q.worthwhile() {
		q.collect()
		room = q.sending.Room()
	}
	var err error
	n, bytes := 0, uint64(0)
	for ; n < min(len(frames), room); n++ {
		f := &frames[n]
		if !q.sendable(f) {
			err = q.refuse(f)
			break
		}
		at := uint64(f.Buffer)*uint64(q.stride) + uint64(f.Offset) - headerSize
		// Nothing is asked of the device.
		header := q.buffers[at : at+headerSize]
		binary.LittleEndian.PutUint64(header, 0)
		binary.LittleEndian.PutUint32(header[8:], 0)
		q.sending.Add(virtqueue.Part{Address: q.bus + at, Length: headerSize + uint32(f.Length)}, f.Buffer)
		bytes += uint64(f.Length)
	}
	if n > 0 {
		q.sending.publish()
		q.Counters.SentFrames.Add(uint64(n))
		q.Counters.SentBytes.Add(bytes)
	}
	q.Full = n < len(frames) && err == nil
	return n, err
}

// sendable reports whether a frame can be sent.
func (q *queue) sendable(f *ethernet.Frame) bool {
	return q.Cache().Pool().Contains(f) && f.Offset >= headerSize &&
		f.Length >= ethernet.HeaderSize && int(f.Length) <= q.maxFrame && f.Flags.Requests() == 0 && f.Segment == 0
}

// refuse says why a frame cannot be sent.
func (q *queue) refuse(f *ethernet.Frame) error {
	if f.Offset < headerSize {
		return q.BadFrame(f, "virtio needs 12 bytes before it")
	}
	return q.BadFrame(f, "it asks for what is not switched on")
}

// Send collects buffers when collectAt have come back, or in one call of collectLooks: it
// then gets few, and a driver and a device that follow each other closely take each other's
// cache lines away.
const (
	collectAt    = 32
	collectLooks = 64
)

// worthwhile reports whether Send, which has no room for everything, should collect.
func (q *queue) worthwhile() bool {
	if q.looks++; q.looks < collectLooks && !q.sending.Near(collectAt) {
		return false
	}
	q.looks = 0
	return true
}

// collect takes back the buffers of frames that have been sent.
func (q *queue) collect() {
	for {
		n := q.sending.Take(q.used[:])
		if n > 0 {
			for i := range n {
				q.sent[i] = q.used[i].Tag
			}
			q.Cache().GiveAll(q.sent[:n])
			q.moved()
		}
		if n < len(q.used) {
			break
		}
	}
	if q.sending.Violation() != nil && q.Live {
		q.Broken()
	}
}

// Unsent takes back the buffers of frames that have been sent.
func (q *queue) Unsent() (int, error) {
	if err := q.Port.Failed(); err != nil {
		return 0, err
	}
	q.lock.Lock()
	defer q.lock.Unlock()
	if q.Live {
		q.collect()
	}
	return q.sending.Lent(), nil
}
