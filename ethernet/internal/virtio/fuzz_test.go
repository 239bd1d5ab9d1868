package virtio

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"slices"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/virtqueuetest"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/port"
	"github.com/trapeze-nic/trapeze/ethernet/internal/virtio/internal/transport"
	"github.com/trapeze-nic/trapeze/ethernet/internal/virtio/internal/virtqueue"
)

// What stands in the program of FuzzReceive: an operation and its arguments, six bytes each.
const (
	opUse     = iota // the device gives a buffer back: which, length (2), number of buffers (2)
	opFlush          // and shows it
	opReceive        // the driver takes frames: how many
	opFree           // and gives the buffer of one back: which
	opPoke           // the device writes into the ring's memory: value, offset (2)
	opCount
)

const (
	fuzzRing    = 8 // descriptors
	fuzzBuffers = 3 * fuzzRing
	fuzzRoom    = 512 // bytes of a frame in a buffer
	fuzzMTU     = 400
	fuzzBus     = 1 << 32 // bus address of the buffers
)

// FuzzReceive makes a device give receive buffers back in any order, of any length, with any number
// of buffers in their headers, and write what it likes to the ring. While it keeps to the rules
// of the ring, the frames that come are those of one buffer, and nothing in the middle of a longer
// one is a frame. Whatever it does, each buffer is in one hand.
func FuzzReceive(f *testing.F) {
	f.Fuzz(func(t *testing.T, packed, mergeable bool, program []byte) {
		r := newFuzzedReceiver(t, packed, mergeable)
		for ; len(program) >= 6; program = program[6:] {
			op, a, v, w := program[0]%opCount, int(program[1]), binary.LittleEndian.Uint16(program[2:]), binary.LittleEndian.Uint16(program[4:])
			switch op {
			case opUse:
				r.use(a, uint32(v), w)
			case opFlush:
				r.flush()
			case opReceive:
				r.receive(1 + a%fuzzRing)
			case opFree:
				r.free(a)
			case opPoke:
				r.poke(int(v), byte(a))
			}
		}
		r.end()
	})
}

// fuzzedReceiver is a queue, the device at its other side, and what is to come of it.
type fuzzedReceiver struct {
	testing.TB
	q      *queue
	ring   []byte
	device virtqueuetest.Queue
	honest bool // the device has kept to the rules of the ring

	seen   uint64   // offset of the buffer that the device has looked at last
	has    []given  // what the device has
	hidden []given  // what it has given back and not shown
	due    []given  // frames that are to come
	middle int      // so many buffers are still in the middle of a frame
	number byte     // of the buffer that was given back last
	mine   []uint32 // buffers of frames that have come
	want   struct{ frames, bytes, badLengths, unended uint64 }
}

// given is a buffer that the device has, or gives back.
type given struct {
	virtqueuetest.Buffer
	tag     uint32
	length  int    // of the frame; less than zero: there is not even a whole header
	buffers uint16 // that its header says
	number  byte   // in all bytes of the frame
}

func newFuzzedReceiver(t testing.TB, packed, mergeable bool) *fuzzedReceiver {
	t.Helper()
	pool := porttest.NewPool(t, ethernet.PoolOptions{Buffers: fuzzBuffers, Size: fuzzRoom})
	d := &device{poolBus: fuzzBus}
	d.port = port.New(d, ethernet.Info{Options: ethernet.Options{MTU: fuzzMTU, Pool: pool}})
	d.options = d.port.Options()
	if mergeable {
		d.features = transport.FeatureMergeable
	}
	q := must.Get(newQueue(d))(t)
	q.buffers = pool.Memory().Bytes()
	q.receiving.options.Size = fuzzRing
	if packed {
		q.receiving.options.Format = virtqueue.Packed
	}
	l := must.Get(q.receiving.options.Layout())(t)
	r := &fuzzedReceiver{TB: t, q: q, honest: true}
	r.ring = must.Get(unix.Mmap(-1, 0, int(l.Size), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS))(t)
	must.OK(t, q.receiving.make(r.ring))
	r.device = virtqueuetest.New(packed, fuzzRing, false, virtqueuetest.Areas{
		Descriptor: r.ring[l.Descriptor:l.Driver], Driver: r.ring[l.Driver:l.Device], Device: r.ring[l.Device:]}, r.find)
	must.Hold(t, q.fill(), "there are not enough buffers")
	q.run()
	return r
}

// find is the memory that the device may reach.
func (r *fuzzedReceiver) find(address uint64, n uint32) ([]byte, error) {
	at := address - fuzzBus
	if at > uint64(len(r.q.buffers)) || uint64(n) > uint64(len(r.q.buffers))-at {
		return nil, fmt.Errorf("%d bytes at %#x are not in a buffer", n, address)
	}
	r.seen = at
	return r.q.buffers[at:][:n], nil
}

// use has the device fill one of its buffers, and give it back.
func (r *fuzzedReceiver) use(which int, length uint32, buffers uint16) {
	for r.honest {
		b, ok := must.Two(r.device.Next())(r)
		if !ok {
			break
		}
		r.has = append(r.has, given{Buffer: b, tag: uint32(r.seen / uint64(r.q.stride))})
	}
	if len(r.has) == 0 {
		return
	}
	which %= len(r.has)
	g := r.has[which]
	r.has = slices.Delete(r.has, which, which+1)
	r.number++
	g.length, g.buffers, g.number = int(length)-headerSize, buffers, r.number
	data := g.Parts[0].Data
	for i := range data {
		data[i] = g.number
	}
	clear(data[:headerSize])
	binary.LittleEndian.PutUint16(data[numBuffersAt:], buffers)
	r.device.Use(g.Buffer, length)
	r.honest = r.honest && int(length) <= len(data)
	r.hidden = append(r.hidden, g)
}

// flush makes the device show what it has given back.
func (r *fuzzedReceiver) flush() {
	r.device.Flush()
	for _, g := range r.hidden {
		r.expect(g)
	}
	r.hidden = nil
}

// expect says what is to come of a buffer (virtio 1.3, 5.1.6.4, "Processing of Incoming Packets").
func (r *fuzzedReceiver) expect(g given) {
	switch {
	case r.middle > 0:
		r.middle--
	case g.length >= 0 && r.q.mergeable && g.buffers != 1:
		r.want.unended++
		r.middle = min(max(int(g.buffers), 1), fuzzRing) - 1
	case g.length < ethernet.HeaderSize || g.length > fuzzMTU+ethernet.HeaderSize+ethernet.TagSize:
		r.want.badLengths++
	default:
		r.want.frames++
		r.want.bytes += uint64(g.length)
		r.due = append(r.due, g)
	}
}

// receive takes at most so many frames.
func (r *fuzzedReceiver) receive(most int) (n int) {
	frames := make([]ethernet.Frame, most)
	n, err := r.q.Receive(frames)
	must.Hold(r, err == nil && n <= most, "%d frames of %d, %v", n, most, err)
	for _, f := range frames[:n] {
		b := r.q.Cache().Pool().Bytes(f)
		must.Hold(r, len(b) == int(f.Length) && len(b) >= ethernet.HeaderSize && !slices.Contains(r.mine, f.Buffer),
			"%+v, of which %d bytes are in a buffer; those taken before are %v", f, len(b), r.mine)
		r.mine = append(r.mine, f.Buffer)
		if !r.honest {
			continue
		}
		must.Hold(r, len(r.due) != 0, "%+v: there was no such frame", f)
		want := r.due[0]
		r.due = r.due[1:]
		must.Hold(r, f.Buffer == want.tag && bytes.Equal(b, bytes.Repeat([]byte{want.number}, want.length)),
			"%+v, want buffer %d with %d bytes of %#x", f, want.tag, want.length, want.number)
	}
	return n
}

// free gives the buffer of a frame back.
func (r *fuzzedReceiver) free(which int) {
	if len(r.mine) > 0 {
		which %= len(r.mine)
		r.q.Cache().Give(r.mine[which])
		r.mine = slices.Delete(r.mine, which, which+1)
	}
}

// poke makes the device write a byte into the ring's memory.
func (r *fuzzedReceiver) poke(at int, value byte) {
	r.honest = false
	r.ring[at%len(r.ring)] = value
}

// end takes what is left, and looks for all buffers.
func (r *fuzzedReceiver) end() {
	r.flush()
	for range fuzzBuffers {
		r.receive(fuzzRing)
		for len(r.mine) > 0 {
			r.free(0)
		}
	}
	c := &r.q.Counters
	if got := [...]uint64{c.ReceivedFrames.Load(), c.ReceivedBytes.Load(), c.BadLengths.Load(), c.Unended.Load()}; r.honest &&
		(got != [...]uint64{r.want.frames, r.want.bytes, r.want.badLengths, r.want.unended} || len(r.due) > 0) {
		r.Errorf("counted %v, want %+v; %d frames have not come", got, r.want, len(r.due))
	}
	r.q.reclaimAll()
	should.OK(r, r.q.close())
	should.Be(r, r.q.Cache().Pool().Free(), fuzzBuffers, "buffers are back")
	should.OK(r, unix.Munmap(r.ring))
}
