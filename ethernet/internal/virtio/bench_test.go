package virtio_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/vfio"
)

const benchRing = 256 // descriptors of a ring of fakePCI

// Where the registers of a queue are in the common configuration, and what stands before each
// frame, in bytes.
const (
	regQueueEnable     = 28
	regQueueDescriptor = 32
	regQueueDriver     = 40
	regQueueDevice     = 48
	headerBytes        = 12
)

// fastPCI is fakePCI with queues that work, one pair, and a doorbell that can be mapped. It
// uses rings as a device does that does not look at what it is not told to: for one goroutine.
type fastPCI struct {
	*fakePCI
	packed bool
	notify *vfio.Memory
	queues [2]fastQueue
}

// fastQueue is the device's side of a queue.
type fastQueue struct {
	packed                     bool
	descriptor, driver, device []byte
	next                       uint32
	wrap                       uint64 // flags of a used descriptor
}

func newFastPCI(b *testing.B, packed bool) *fastPCI {
	b.Helper()
	m := must.Get(vfio.AllocMemory(4096, vfio.MemoryOptions{Huge: vfio.HugeNever}))(b)
	b.Cleanup(func() { m.Close() })
	d := &fastPCI{fakePCI: newFakePCI(), packed: packed, notify: m}
	if !packed {
		d.features &^= 1 << 34
	}
	return d
}

func (d *fastPCI) Region(index int) (vfio.RegionInfo, error) {
	r, err := d.fakePCI.Region(index)
	if index == 4 {
		r.Flags |= vfio.RegionMmap
	}
	return r, err
}

func (d *fastPCI) MapRegion(index int, offset, size uint64) (*vfio.Mapping, error) {
	if index != 4 || offset != notifyAt || size > uint64(os.Getpagesize()) {
		return nil, vfio.ErrNotMappable
	}
	return vfio.NewMapping(d.notify.Bytes()[:size], nil), nil
}

func (d *fastPCI) WriteRegion(index int, offset uint64, p []byte) error {
	err := d.fakePCI.WriteRegion(index, offset, p)
	if index == 4 && offset == regQueueEnable {
		if n := d.regs[regQueueSelect]; n < 2 {
			q := &d.queues[n]
			q.packed, q.wrap = d.packed, 1<<7|1<<15
			for at, area := range map[uint64]*[]byte{regQueueDescriptor: &q.descriptor, regQueueDriver: &q.driver, regQueueDevice: &q.device} {
				*area = d.find(d.regs[at] | d.regs[at+4]<<32)
			}
		}
	}
	return err
}

// find returns what is mapped from a bus address on.
func (d *fastPCI) find(bus uint64) []byte {
	for at, m := range d.mapped {
		if bus >= at && bus < at+m.Size() {
			return m.Bytes()[bus-at:]
		}
	}
	return nil
}

// use gives n buffers back, each with so many bytes written, in the order in which they came.
// It counts on buffers being there.
func (q *fastQueue) use(n int, length uint32) {
	le := binary.LittleEndian
	if q.packed {
		for range n {
			d := q.descriptor[16*q.next:]
			what := uint64(length) | uint64(le.Uint16(d[12:]))<<32 | q.wrap<<48
			le.PutUint64(d[8:], what)
			if q.next++; q.next == benchRing {
				q.next, q.wrap = 0, q.wrap^(1<<7|1<<15)
			}
		}
		return
	}
	for range n {
		at := q.next % benchRing
		used := q.device[4+8*at:]
		le.PutUint32(used, uint32(le.Uint16(q.driver[4+2*at:])))
		le.PutUint32(used[4:], length)
		q.next++
	}
	le.PutUint16(q.device[2:], uint16(q.next))
}

// BenchmarkPort: doorbells are in mapped memory.
func BenchmarkPort(b *testing.B) {
	for _, packed := range []bool{false, true} {
		b.Run(fmt.Sprintf("packed=%v", packed), func(b *testing.B) {
			porttest.Benchmarks(b, func(b *testing.B, pool *ethernet.Pool) porttest.Quick {
				d := newFastPCI(b, packed)
				p := porttest.Open(b, d, ethernet.Options{Pool: pool, ReceiveDescriptors: benchRing, SendDescriptors: benchRing, Timeout: time.Hour})
				return porttest.Quick{
					Queue: p.Queue(0), Fill: func(n int) { d.queues[0].use(n, headerBytes+60) },
					Drain: func(n int) { d.queues[1].use(n, 0) }, Refill: func(int) {},
				}
			})
		})
	}
}
