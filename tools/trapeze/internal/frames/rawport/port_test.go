package rawport_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/driver"
	_ "github.com/trapeze-nic/trapeze/emulator" // emu:
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/rawport"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var wires atomic.Uint32

const timeout = time.Minute

func newPool(t testing.TB, c ethernet.PoolOptions) *ethernet.Pool {
	t.Helper()
	p := must.Get(ethernet.NewPool(c))(t)
	t.Cleanup(func() {
		should.OK(t, p.Close())
	})
	return p
}

// try opens a port at an emu: address.
func try(t testing.TB, address string, c ethernet.Options) (ethernet.Port, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	if c.Logger == nil {
		c.Logger = slog.New(slog.DiscardHandler)
	}
	nic := must.Get(driver.Open(ctx, address, driver.Options{Logger: c.Logger}))(t)
	return rawport.New(ctx, nic, c)
}

func open(t testing.TB, address string, c ethernet.Options) ethernet.Port {
	t.Helper()
	p := must.Get(try(t, address, c))(t)
	t.Cleanup(func() {
		should.OK(t, p.Close())
	})
	return p
}

// pair opens two ports on a memory wire.
func pair(t testing.TB, c ethernet.Options, options string) (a, b ethernet.Port) {
	t.Helper()
	address := fmt.Sprintf("emu:?wire=mem:rawport-%d%s", wires.Add(1), options)
	return open(t, address, c), open(t, address, c)
}

// frame makes a frame of n bytes, whose payload depends on seed.
func frame(to ethernet.MAC, seed, n int) []byte {
	b := append(append(make([]byte, 0, n), to[:]...), 2, 0, 0, 0, 9, 9, 0x88, 0xb6)
	for i := len(b); i < n; i++ {
		b = append(b, byte(seed+i*seed))
	}
	return b
}

// put puts bytes into a buffer of the pool.
func put(t testing.TB, c *ethernet.Cache, b []byte) ethernet.Frame {
	t.Helper()
	var f [1]ethernet.Frame
	must.Be(t, c.Alloc(f[:]), 1, "no buffer")
	f[0].Length = uint16(len(b))
	copy(c.Pool().Bytes(f[0]), b)
	return f[0]
}

// receive waits for a frame.
func receive(t testing.TB, q ethernet.Queue) ethernet.Frame {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), timeout)
	defer cancel()
	var f [1]ethernet.Frame
	for {
		if n, err := q.Receive(f[:]); err != nil || n == 1 {
			must.OK(t, err)
			return f[0]
		}
		must.OK(t, q.Wait(ctx))
	}
}

// TestTraffic: frames of all sizes, in bursts, both ways, arrive as they are, in order,
// and all buffers come back.
func TestTraffic(t *testing.T) {
	for _, options := range []string{"", "&engine=thread"} {
		for _, interrupts := range []bool{false, true} {
			pool := newPool(t, ethernet.PoolOptions{Buffers: 1024})
			t.Cleanup(func() { // behind the closing of the ports
				should.Be(t, pool.Free(), 1024, "buffers are free")
			})
			a, b := pair(t, ethernet.Options{Pool: pool, ReceiveDescriptors: 64, SendDescriptors: 64, Interrupts: interrupts}, options)
			seed := 0
			rapid.Check(t, func(r *rapid.T) {
				from, to := a.Queue(0), b.Queue(0)
				mac := b.MAC()
				if rapid.Bool().Draw(r, "back") {
					from, to, mac = to, from, a.MAC()
				}
				var frames []ethernet.Frame
				var want [][]byte
				for _, n := range rapid.SliceOfN(rapid.IntRange(ethernet.HeaderSize, 1518), 1, 40).Draw(r, "sizes") {
					seed++
					want = append(want, frame(mac, seed, n))
					frames = append(frames, put(t, from.Cache(), want[len(want)-1]))
				}
				for sent := 0; sent < len(frames); {
					n := must.Get(from.Send(frames[sent:]))(r)
					sent += n
				}
				for i, w := range want {
					f := receive(t, to)
					if w = append(w, make([]byte, max(0, ethernet.MinFrame-len(w)))...); !bytes.Equal(pool.Bytes(f), w) {
						r.Fatalf("frame %d of %d bytes: other bytes, %d of them", i, len(w), f.Length)
					}
					to.Cache().Free([]ethernet.Frame{f})
				}
				for n := 1; n > 0; {
					n = must.Get(from.Unsent())(r)
				}
			})
			counted := a.Stats().Queues[0].SentFrames + b.Stats().Queues[0].SentFrames
			if counted != uint64(seed) || a.Stats().Device.SentFrames+b.Stats().Device.SentFrames != uint64(seed) {
				t.Errorf("%d frames were sent, %d are counted", seed, counted)
			}
		}
	}
}

// TestRefused: what such a port cannot do.
func TestRefused(t *testing.T) {
	pool := newPool(t, ethernet.PoolOptions{})
	const address = "emu:?mac=02:00:00:00:00:07&mtu=1000"
	for name, c := range map[string]struct {
		config ethernet.Options
		want   error
	}{
		"no pool": {ethernet.Options{}, ethernet.ErrConfig},
		"MTU":     {ethernet.Options{Pool: pool, MTU: 1000}, ethernet.ErrNotSupported},
		"queues":  {ethernet.Options{Pool: pool, Queues: 2}, ethernet.ErrNotSupported},
	} {
		should.Refuse(try(t, address, c.config))(t, c.want, "%s", name)
	}
	p := open(t, address, ethernet.Options{Pool: pool, MAC: ethernet.MAC{2, 0, 0, 0, 0, 7}})
	i := p.Info()
	should.Hold(t, i.Options.MTU == 986 && i.MAC == p.MAC() && p.MAC() == (ethernet.MAC{2, 0, 0, 0, 0, 7}), "%+v", i)
	if l, err := p.Link(); err != nil || !l.Up {
		t.Errorf("%+v, %v", l, err)
	}
	q := p.Queue(0)
	ours := frame(p.MAC(), 1, 100)
	ours[13] = 0xb5
	for name, f := range map[string]ethernet.Frame{
		"too short":       put(t, q.Cache(), frame(p.MAC(), 1, 14)[:13]),
		"too long":        put(t, q.Cache(), frame(p.MAC(), 1, 1001)),
		"of our protocol": put(t, q.Cache(), ours),
		"no buffer":       {Buffer: 1 << 20, Length: 100},
		"outside":         {Buffer: 1, Offset: 2000, Length: 1000},
		"with an offload": {Buffer: 1, Offset: 64, Length: 100, Flags: ethernet.SumIPv4},
		"to be cut":       {Buffer: 1, Offset: 64, Length: 100, Segment: 100},
	} {
		good := put(t, q.Cache(), frame(p.MAC(), 1, 100))
		if n, err := q.Send([]ethernet.Frame{f}); n != 0 || !errors.Is(err, ethernet.ErrBadFrame) {
			t.Errorf("%s: %d, %v", name, n, err)
		}
		if n, err := q.Send([]ethernet.Frame{good, f}); n != 1 || !errors.Is(err, ethernet.ErrBadFrame) {
			t.Errorf("%s behind a good one: %d, %v", name, n, err)
		}
		q.Cache().Free([]ethernet.Frame{receive(t, q)})
	}
}

// TestOthersFrames: a promiscuous port takes what is for others, another does not; both
// take what is for groups.
func TestOthersFrames(t *testing.T) {
	for _, promiscuous := range []bool{false, true} {
		pool := newPool(t, ethernet.PoolOptions{})
		a, b := pair(t, ethernet.Options{Pool: pool, Promiscuous: promiscuous}, "")
		for i, to := range []ethernet.MAC{{2, 0, 0, 0, 5, 5}, {1, 0, 0x5e, 0, 0, 1}, b.MAC()} {
			must.Give(a.Queue(0).Send([]ethernet.Frame{put(t, a.Queue(0).Cache(), frame(to, i, 60))}))(t, 1)
		}
		want := 1
		if promiscuous {
			want = 0
		}
		for i := want; i < 3; i++ {
			f := receive(t, b.Queue(0))
			should.Be(t, pool.Bytes(f)[20], byte(i+20*i), "promiscuous %t: frame %d is another", promiscuous, i)
			b.Queue(0).Cache().Free([]ethernet.Frame{f})
		}
	}
}

// TestNoBuffers: frames stay in the ring, and on the wire, while the pool is empty.
func TestNoBuffers(t *testing.T) {
	pool := newPool(t, ethernet.PoolOptions{Buffers: 64})
	a, b := pair(t, ethernet.Options{Pool: pool, ReceiveDescriptors: 64, SendDescriptors: 64}, "")
	q := a.Queue(0)
	for i := range 100 {
		for n := 0; n == 0; {
			n = must.Get(q.Send([]ethernet.Frame{put(t, q.Cache(), frame(b.MAC(), i, 60))}))(t)
		}
	}
	for n := 1; n > 0; {
		n = must.Get(q.Unsent())(t)
	}
	held := make([]ethernet.Frame, 64)
	cache := pool.NewCache()
	defer cache.Close()
	taken := cache.Alloc(held)
	taken += q.Cache().Alloc(held[taken:])
	deadline := time.Now().Add(timeout)
	for b.Stats().Queues[0].NoBuffers == 0 {
		if n, err := b.Queue(0).Receive(make([]ethernet.Frame, 100)); n != 0 || err != nil || time.Now().After(deadline) {
			t.Fatalf("%d frames, %v", n, err)
		}
	}
	cache.Free(held[:taken])
	cache.Close()
	for n := range 100 {
		f := receive(t, b.Queue(0))
		must.Be(t, pool.Bytes(f)[20], byte(n+20*n), "frame %d is another", n)
		b.Queue(0).Cache().Free([]ethernet.Frame{f})
	}
	if c := b.Stats(); c.Device.Missed != 0 || c.Queues[0].ReceivedFrames != 100 {
		t.Errorf("%+v, %+v", c.Device, c.Queues[0])
	}
}

// TestWait: a wait ends with its context, also where it would go on.
func TestWait(t *testing.T) {
	for _, interrupts := range []bool{false, true} {
		p := open(t, "emu:", ethernet.Options{Pool: newPool(t, ethernet.PoolOptions{}), Interrupts: interrupts})
		ctx, cancel := context.WithCancel(t.Context())
		should.OK(t, p.Queue(0).Wait(ctx), "a wait without frames")
		time.AfterFunc(10*time.Millisecond, cancel)
		var err error
		for err == nil {
			err = p.Queue(0).Wait(ctx)
		}
		should.Fail(t, err, context.Canceled, "canceled")
	}
}
