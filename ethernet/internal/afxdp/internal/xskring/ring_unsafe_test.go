package xskring_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet/internal/afxdp/internal/xskring"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// Where things are in the memory of a ring here.
const (
	producerAt, consumerAt, flagsAt, entriesAt = 0, 64, 128, 192
	size                                       = 16
	buffers                                    = 64
	stride                                     = 2112
	chunk                                      = 2048
)

// kernel is the other side of the rings.
type kernel struct{ fill, receive, send, completion []byte }

// ringBytes is the memory of a ring.
const ringBytes = entriesAt + size*16

// options describes rings in memory for all four.
func options(k *kernel, memory []byte) xskring.Options {
	*k = kernel{memory[:ringBytes], memory[ringBytes:][:ringBytes], memory[2*ringBytes:][:ringBytes], memory[3*ringBytes:][:ringBytes]}
	at := func(b []byte) xskring.Memory {
		return xskring.Memory{Bytes: b, Producer: producerAt, Consumer: consumerAt, Flags: flagsAt, Descriptor: entriesAt, Entries: size}
	}
	return xskring.Options{Fill: at(k.fill), Receive: at(k.receive), Send: at(k.send), Completion: at(k.completion),
		Buffers: buffers, Stride: stride, Chunk: chunk, Unaligned: true}
}

func newRings(t testing.TB) (*xskring.Rings, *kernel) {
	t.Helper()
	return ringsIn(t, make([]byte, 4*ringBytes))
}

func ringsIn(t testing.TB, memory []byte) (*xskring.Rings, *kernel) {
	t.Helper()
	k := new(kernel)
	r := must.Get(xskring.New(options(k, memory)))(t)
	return r, k
}

func index(b []byte, at int) *uint32 { return (*uint32)(unsafe.Pointer(&b[at])) }

// put writes an entry of the receive or completion ring and shows it.
func put(b []byte, address uint64, length, flags uint32, desc bool) {
	n := atomic.LoadUint32(index(b, producerAt))
	if desc {
		e := b[entriesAt+16*(n%size):]
		binary.NativeEndian.PutUint64(e, address)
		binary.NativeEndian.PutUint32(e[8:], length)
		binary.NativeEndian.PutUint32(e[12:], flags)
	} else {
		binary.NativeEndian.PutUint64(b[entriesAt+8*(n%size):], address)
	}
	atomic.StoreUint32(index(b, producerAt), n+1)
}

// get takes an entry of the fill or send ring; ok is false if there is none.
func get(b []byte, desc bool) (address uint64, length uint32, ok bool) {
	n := atomic.LoadUint32(index(b, consumerAt))
	if n == atomic.LoadUint32(index(b, producerAt)) {
		return 0, 0, false
	}
	if desc {
		e := b[entriesAt+16*(n%size):]
		address, length = binary.NativeEndian.Uint64(e), binary.NativeEndian.Uint32(e[8:])
	} else {
		address = binary.NativeEndian.Uint64(b[entriesAt+8*(n%size):])
	}
	atomic.StoreUint32(index(b, consumerAt), n+1)
	return address, length, true
}

func TestLayout(t *testing.T) {
	for name, spoil := range map[string]func(o *xskring.Options){
		"producer beyond":   func(o *xskring.Options) { o.Fill.Producer = uint64(len(o.Fill.Bytes)) - 3 },
		"producer far":      func(o *xskring.Options) { o.Fill.Producer = 1<<64 - 4 },
		"consumer unmapped": func(o *xskring.Options) { o.Receive.Consumer = 1 << 40 },
		"flags odd":         func(o *xskring.Options) { o.Send.Flags = 130 },
		"entries beyond":    func(o *xskring.Options) { o.Receive.Descriptor += 16 },
		"entries odd":       func(o *xskring.Options) { o.Completion.Descriptor = 4 },
		"entries far":       func(o *xskring.Options) { o.Send.Descriptor = 1<<64 - 8 },
		"none":              func(o *xskring.Options) { o.Fill.Entries = 0 },
		"no power of two":   func(o *xskring.Options) { o.Completion.Entries = 12 },
		"no memory":         func(o *xskring.Options) { o.Receive.Bytes = nil },
	} {
		o := options(new(kernel), make([]byte, 4*ringBytes))
		spoil(&o)
		should.Refuse(xskring.New(o))(t, xskring.ErrLayout, "%s", name)
	}
}

// TestHostile: whatever cannot be is a violation, nothing of it comes out, and all buffers
// can be taken back.
func TestHostile(t *testing.T) {
	const far = 1 << 48
	for name, do := range map[string]func(k *kernel){
		"receive producer ahead":        func(k *kernel) { *index(k.receive, producerAt) = size + 1 },
		"receive producer behind":       func(k *kernel) { *index(k.receive, producerAt) = 1<<32 - 1 },
		"a buffer that was not lent":    func(k *kernel) { put(k.receive, 20*stride, 60, 0, true) },
		"a buffer beyond the pool":      func(k *kernel) { put(k.receive, buffers*stride, 60, 0, true) },
		"an address far away":           func(k *kernel) { put(k.receive, 1<<48-1, 60, 0, true) },
		"a buffer that is being sent":   func(k *kernel) { put(k.receive, 10*stride, 60, 0, true) },
		"a buffer twice":                func(k *kernel) { put(k.receive, 3*stride, 60, 0, true); put(k.receive, 3*stride, 60, 0, true) },
		"completion producer ahead":     func(k *kernel) { *index(k.completion, producerAt) = size + 1 },
		"completion of nothing sent":    func(k *kernel) { put(k.completion, 20*stride, 0, 0, false) },
		"completion of a lent buffer":   func(k *kernel) { put(k.completion, 1*stride, 0, 0, false) },
		"completion beyond the pool":    func(k *kernel) { put(k.completion, 1<<63, 0, 0, false) },
		"completion twice":              func(k *kernel) { put(k.completion, 10*stride, 0, 0, false); put(k.completion, 10*stride, 0, 0, false) },
		"send consumer ahead":           func(k *kernel) { *index(k.send, consumerAt) = 5 },
		"send consumer long behind":     func(k *kernel) { *index(k.send, consumerAt) = 1 << 31 },
		"a frame of an unaligned other": func(k *kernel) { put(k.receive, 20*stride|256*far, 60, 0, true) },
	} {
		t.Run(name, func(t *testing.T) {
			r, k := newRings(t)
			for b := range uint32(8) {
				must.Hold(t, r.Lend(b), "not lent")
			}
			r.PublishFill()
			must.Hold(t, r.Add(10, 256, 60) && r.Add(11, 0, 1500), "not added")
			r.Publish()
			do(k)
			received, done := r.Take(make([]xskring.Received, size)), r.Complete(make([]uint32, size))
			r.Untaken()
			err := r.Violation()
			must.Hold(t, errors.Is(err, xskring.ErrViolation), "%v; %d received, %d completed", err, received, done)
			should.Hold(t, received <= 1 && done <= 1, "%d received, %d completed", received, done)
			// From then on there is nothing more.
			if r.Take(make([]xskring.Received, 1)) != 0 || r.Complete(make([]uint32, 1)) != 0 || r.Pending() || r.Room() != 0 || r.Add(12, 0, 60) {
				t.Error("the rings go on")
			}
			var back []uint32
			r.Reclaim(func(b uint32) { back = append(back, b) })
			should.Be(t, len(back), 10-received-done, "buffers %v are back", back)
		})
	}
}

// TestDrops: frames that leave their buffer or go on in another are told apart.
func TestDrops(t *testing.T) {
	r, k := newRings(t)
	for b := range uint32(4) {
		r.Lend(b)
	}
	r.PublishFill()
	put(k.receive, 0, chunk+1, 0, true)
	put(k.receive, 1*stride|2000<<48, 49, 0, true)
	put(k.receive, 2*stride|2000<<48, 48, 1, true)
	put(k.receive, 3*stride|65535<<48, 1<<32-1, 0, true)
	out := make([]xskring.Received, size)
	want := []xskring.Received{{Buffer: 0}, {Buffer: 1}, {Buffer: 2, Offset: 2000, Length: 48, Continued: true}, {Buffer: 3}}
	n := r.Take(out)
	should.Hold(t, slices.Equal(out[:n], want) && r.Violation() == nil, "%+v, %v", out[:n], r.Violation())
}

// TestParts: a frame that is longer than a chunk goes in parts that end where chunks do,
// unless those need not be aligned. Its buffer comes back with the last completion, and no
// part is completed twice.
func TestParts(t *testing.T) {
	const page, long = 4096, 9280
	type part struct{ address, length, options uint64 }
	for name, tt := range map[string]struct {
		unaligned      bool
		stride         uint32
		offset, length uint32
		want           []part // addresses in the buffer
	}{
		"short":               {false, 3 * page, 64, 4032, []part{{64, 4032, 0}}},
		"a byte over":         {false, 3 * page, 64, 4033, []part{{64, 4032, 1}, {page, 1, 0}}},
		"jumbo":               {false, 3 * page, 64, 9018, []part{{64, 4032, 1}, {page, page, 1}, {2 * page, 890, 0}}},
		"from a later chunk":  {false, 3 * page, 2*page - 14, 14 + page, []part{{2*page - 14, 14, 1}, {2 * page, page, 0}}},
		"empty":               {false, 3 * page, page, 0, []part{{page, 0, 0}}},
		"unaligned, short":    {true, long, 4000, page, []part{{4000, page, 0}}},
		"unaligned, jumbo":    {true, long, 262, 9018, []part{{262, page, 1}, {262 + page, page, 1}, {262 + 2*page, 826, 0}}},
		"beyond the buffer":   {true, long, 263, 9018, nil},
		"far beyond":          {true, long, 1<<32 - 1, 1<<32 - 1, nil},
		"no room for so many": {false, page * (size + 1), 0, page * (size + 1), nil},
	} {
		t.Run(name, func(t *testing.T) {
			k := new(kernel)
			o := options(k, make([]byte, 4*ringBytes))
			o.Stride, o.Chunk, o.Unaligned = tt.stride, page, tt.unaligned
			r := must.Get(xskring.New(o))(t)
			const buffer = 5
			for range 3 { // round the ring
				must.Be(t, r.Add(buffer, tt.offset, tt.length), tt.want != nil, "it was taken as if it had %d parts", len(tt.want))
				if n := len(tt.want); tt.want != nil && r.Parts(tt.offset, tt.length) != n || r.Room() != size-n {
					t.Fatalf("%d parts, room for %d", r.Parts(tt.offset, tt.length), r.Room())
				}
				r.Publish()
				done := make([]uint32, 2)
				for i, want := range tt.want {
					options := uint64(binary.NativeEndian.Uint32(k.send[entriesAt+16*(atomic.LoadUint32(index(k.send, consumerAt))%size)+12:]))
					address, length, ok := get(k.send, true)
					got := (part{address - uint64(buffer*tt.stride), uint64(length), options})
					must.Hold(t, ok && got == want, "part %d is %+v, want %+v", i, got, want)
					must.Hold(t, r.Unsent() == 1 && !r.Lend(buffer), "the buffer is back before all parts are sent")
					put(k.completion, address, 0, 0, false)
					n, last := r.Complete(done), i == len(tt.want)-1
					must.Hold(t, (n == 1 && done[0] == buffer) == last, "after part %d %d buffers are back", i, n)
				}
				if _, _, ok := get(k.send, true); ok || r.Unsent() != 0 || r.Room() != size || r.Violation() != nil {
					t.Fatalf("there is more; %d are unsent, room for %d; %v", r.Unsent(), r.Room(), r.Violation())
				}
			}
			put(k.completion, uint64(buffer*tt.stride+tt.offset%tt.stride), 0, 0, false)
			n := r.Complete(make([]uint32, 1))
			should.Hold(t, n == 0 && errors.Is(r.Violation(), xskring.ErrViolation), "a part more: %d, %v", n, r.Violation())
		})
	}
}

// TestLimits: a buffer is lent or sent once, and none that there is not.
func TestLimits(t *testing.T) {
	r, _ := newRings(t)
	should.Hold(t, !r.Lend(buffers) && !r.Add(buffers, 0, 60), "a buffer that there is not")
	should.Hold(t, r.Lend(1) && !r.Lend(1) && !r.Add(1, 0, 60), "a buffer that is lent")
	should.Hold(t, r.Add(2, 0, 60) && !r.Add(2, 0, 60) && !r.Lend(2), "a buffer that is being sent")
	for b := uint32(3); r.Add(b, 0, 60); b++ {
	}
	should.Hold(t, r.Unsent() == size && r.Room() == 0, "%d are being sent, room for %d", r.Unsent(), r.Room())
	for b := uint32(30); r.Lend(b); b++ {
	}
	should.Be(t, r.Lent(), size, "are lent")
}

// TestConcurrent has a kernel on a goroutine of its own send each frame back: frames come
// in order and whole, and no buffer is lost.
func TestConcurrent(t *testing.T) {
	const frames = 20_000
	// Outside the Go heap, where the race detector does not look.
	memory := must.Get(unix.Mmap(-1, 0, 4*ringBytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS))(t)
	defer unix.Munmap(memory)
	r, k := ringsIn(t, memory)
	var stop atomic.Bool
	var other sync.WaitGroup
	other.Go(func() {
		pending := [][2]uint64{}
		for !stop.Load() {
			if a, n, ok := get(k.send, true); ok {
				pending = append(pending, [2]uint64{a, uint64(n)})
			}
			if len(pending) == 0 {
				runtime.Gosched()
				continue
			}
			if a, _, ok := get(k.fill, false); ok {
				put(k.receive, a|256<<48, uint32(pending[0][1]), 0, true)
				put(k.completion, pending[0][0], 0, 0, false)
				pending = pending[1:]
			}
		}
	})
	free := make([]uint32, 0, buffers)
	for b := range uint32(buffers) {
		free = append(free, b)
	}
	take := func() uint32 { b := free[len(free)-1]; free = free[:len(free)-1]; return b }
	for range size {
		r.Lend(take())
	}
	r.PublishFill()
	sent, received := 0, 0
	out, done := make([]xskring.Received, 7), make([]uint32, 7)
	length := func(n int) uint32 { return uint32(60 + n%1000) }
	for received < frames {
		for sent < frames && r.Room() > 0 && sent-received < size && len(free) > 0 {
			r.Add(take(), uint32(sent%64), length(sent))
			sent++
		}
		r.Publish()
		for _, f := range out[:r.Take(out)] {
			if f.Length != length(received) || f.Offset != 256 {
				t.Errorf("frame %d is %+v", received, f)
				received = frames
				break
			}
			received++
			r.Lend(f.Buffer)
		}
		r.PublishFill()
		free = append(free, done[:r.Complete(done)]...)
		if r.Violation() != nil || r.Untaken() > size {
			t.Error(r.Violation())
			break
		}
		runtime.Gosched()
	}
	stop.Store(true)
	other.Wait()
	r.Reclaim(func(b uint32) { free = append(free, b) })
	slices.Sort(free)
	should.Hold(t, len(free) == buffers && len(slices.Compact(free)) == buffers, "%d of %d buffers are left", len(free), buffers)
}

// FuzzRings makes the other side write what it likes between our steps. Nothing comes out
// that did not go in, no frame leaves its buffer, and all buffers come back.
func FuzzRings(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11})
	f.Add([]byte{0, 4, 5, 10, 20, 1, 7, 0, 4, 1, 1})
	random := rand.New(rand.NewPCG(1, 2))
	for range 4 {
		b := make([]byte, 64)
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, script []byte) {
		r, k := newRings(t)
		with := map[uint32]bool{} // buffers that are with the kernel
		next := func() uint64 {
			if len(script) == 0 {
				return 0
			}
			b := script[0]
			script = script[1:]
			return uint64(b)
		}
		came := func(b uint32) {
			must.Hold(t, with[b], "buffer %d came, which was not there", b)
			delete(with, b)
		}
		out, done := make([]xskring.Received, 5), make([]uint32, 5)
		for len(script) > 0 {
			switch op := next(); op % 9 {
			case 0:
				if b := uint32(next()); r.Lend(b) {
					with[b] = true
				}
				r.PublishFill()
			case 1:
				if b := uint32(next()); r.Add(b, uint32(next()), uint32(next())*16) {
					with[b] = true
				}
				r.Publish()
			case 2:
				for _, f := range out[:r.Take(out)] {
					must.Hold(t, f.Offset+f.Length <= chunk, "a frame leaves its buffer: %+v", f)
					came(f.Buffer)
				}
			case 3:
				for _, b := range done[:r.Complete(done)] {
					came(b)
				}
			case 4: // likely right
				put(k.receive, next()%buffers*stride|next()<<48, uint32(next())<<next()%32, uint32(next()), true)
			case 5:
				put(k.completion, next()%buffers*stride+next(), 0, 0, false)
			case 6: // anything
				put(k.receive, next()<<(next()%64), uint32(next()), 0, true)
			case 7:
				put(k.completion, next()<<(next()%64), 0, 0, false)
			case 8:
				all := [][]byte{k.fill, k.receive, k.send, k.completion}
				atomic.StoreUint32(index(all[next()%4], []int{producerAt, consumerAt, flagsAt}[next()%3]), uint32(next())<<(next()%32))
			}
			must.Hold(t, r.Room() <= size && (r.Violation() != nil || r.Room() <= size-r.Unsent()),
				"room for %d with %d being sent", r.Room(), r.Unsent())
			r.Untaken()
			r.Pending()
			r.FillWakeup()
			r.SendWakeup()
		}
		r.Reclaim(came)
		must.Hold(t, len(with) == 0 && r.Lent() == 0 && r.Unsent() == 0, "%d buffers did not come back", len(with))
	})
}
