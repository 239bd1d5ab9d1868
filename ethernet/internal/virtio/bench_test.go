package virtio_test

import (
	"encoding/binary"
	"fmt"
	"os"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// The benchmarks below measure the driver against a device that does at once what is asked of
// it: frames of 60 bytes that nobody looks at, doorbells in mapped memory. What the device
// does is in the result; BenchmarkDevice measures that alone, to be subtracted. ixy's
// forwarder takes about 120 cycles a frame in C and 160 in Go at bursts of 32 (Emmerich et
// al., "The Case for Writing Network Drivers in High-Level Programming Languages", ANCS 2019).

var bursts = []int{1, 8, 32, 256}

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
	m, err := vfio.AllocMemory(4096, vfio.MemoryOptions{Huge: vfio.HugeNever})
	if err != nil {
		b.Fatal(err)
	}
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

// eachBurst runs a benchmark for each format and burst.
func eachBurst(b *testing.B, f func(b *testing.B, packed bool, burst int)) {
	for _, packed := range []bool{false, true} {
		for _, burst := range bursts {
			format := "split"
			if packed {
				format = "packed"
			}
			b.Run(fmt.Sprintf("%s/burst%d", format, burst), func(b *testing.B) { f(b, packed, burst) })
		}
	}
}

func benchPort(b *testing.B, packed bool, pool *ethernet.Pool) (*fastPCI, ethernet.Queue) {
	b.Helper()
	d := newFastPCI(b, packed)
	p, err := ethernet.New(b.Context(), d, ethernet.Options{Pool: pool, ReceiveDescriptors: benchRing, SendDescriptors: benchRing, Logger: mute, Timeout: time.Hour})
	if err != nil {
		b.Fatal(err)
	}
	closePort(b, p)
	return d, p.Queue(0)
}

func BenchmarkReceive(b *testing.B) {
	eachBurst(b, func(b *testing.B, packed bool, burst int) {
		d, q := benchPort(b, packed, porttest.NewPool(b, ethernet.PoolOptions{}))
		frames := make([]ethernet.Frame, burst)
		porttest.PerFrame(b, burst, func() {
			d.queues[0].use(burst, headerBytes+60)
			if n, err := q.Receive(frames); n != burst || err != nil {
				b.Fatal(n, err)
			}
			q.Cache().Free(frames)
		})
	})
}

func BenchmarkSend(b *testing.B) {
	eachBurst(b, func(b *testing.B, packed bool, burst int) {
		d, q := benchPort(b, packed, porttest.NewPool(b, ethernet.PoolOptions{}))
		frames := make([]ethernet.Frame, burst)
		porttest.PerFrame(b, burst, func() {
			q.Cache().Alloc(frames)
			for i := range frames {
				frames[i].Length = 60
			}
			transmit(b, q, frames)
			d.queues[1].use(burst, 0)
		})
	})
}

// transmit sends all frames. The driver looks for room only now and then.
func transmit(b *testing.B, q ethernet.Queue, frames []ethernet.Frame) {
	for sent := 0; sent < len(frames); {
		n, err := q.Send(frames[sent:])
		if err != nil {
			b.Fatal(err)
		}
		sent += n
	}
}

func BenchmarkForward(b *testing.B) {
	eachBurst(b, func(b *testing.B, packed bool, burst int) {
		pool := porttest.NewPool(b, ethernet.PoolOptions{})
		in, from := benchPort(b, packed, pool)
		out, to := benchPort(b, packed, pool)
		frames := make([]ethernet.Frame, burst)
		porttest.PerFrame(b, burst, func() {
			in.queues[0].use(burst, headerBytes+60)
			n, err := from.Receive(frames)
			if n != burst || err != nil {
				b.Fatal(n, err)
			}
			transmit(b, to, frames)
			out.queues[1].use(burst, 0)
		})
	})
}

// BenchmarkDevice is what the devices of BenchmarkForward do.
func BenchmarkDevice(b *testing.B) {
	eachBurst(b, func(b *testing.B, packed bool, burst int) {
		d, _ := benchPort(b, packed, porttest.NewPool(b, ethernet.PoolOptions{}))
		porttest.PerFrame(b, burst, func() {
			d.queues[0].use(burst, headerBytes+60)
			d.queues[1].use(burst, 0)
		})
	})
}
