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
	p, err := ethernet.NewPool(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
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
	nic, err := driver.Open(ctx, address, driver.Options{Logger: c.Logger})
	if err != nil {
		t.Fatal(err)
	}
	return rawport.New(ctx, nic, c)
}

func open(t testing.TB, address string, c ethernet.Options) ethernet.Port {
	t.Helper()
	p, err := try(t, address, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
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
	if c.Alloc(f[:]) != 1 {
		t.Fatal("no buffer")
	}
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
			if err != nil {
				t.Fatal(err)
			}
			return f[0]
		}
		if err := q.Wait(ctx); err != nil {
			t.Fatal(err)
		}
	}
}

// TestTraffic: frames of all sizes, in bursts, both ways, arrive as they are, in order,
// and all buffers come back.
func TestTraffic(t *testing.T) {
	for _, options := range []string{"", "&engine=thread"} {
		for _, interrupts := range []bool{false, true} {
			pool := newPool(t, ethernet.PoolOptions{Buffers: 1024})
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
					n, err := from.Send(frames[sent:])
					if err != nil {
						r.Fatal(err)
					}
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
					var err error
					if n, err = from.Unsent(); err != nil {
						r.Fatal(err)
					}
				}
			})
			counted := a.Stats().Queues[0].SentFrames + b.Stats().Queues[0].SentFrames
			if counted != uint64(seed) || a.Stats().Device.SentFrames+b.Stats().Device.SentFrames != uint64(seed) {
				t.Errorf("%d frames were sent, %d are counted", seed, counted)
			}
			for _, p := range []ethernet.Port{a, b} {
				if err := p.Close(); err != nil {
					t.Error(err)
				}
			}
			if pool.Free() != 1024 {
				t.Errorf("%d buffers are free", pool.Free())
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
		"no pool":         {ethernet.Options{}, ethernet.ErrConfig},
		"MTU":             {ethernet.Options{Pool: pool, MTU: 1000}, ethernet.ErrNotSupported},
		"queues":          {ethernet.Options{Pool: pool, Queues: 2}, ethernet.ErrNotSupported},
		"offloads":        {ethernet.Options{Pool: pool, Offloads: ethernet.OffloadVLAN}, ethernet.ErrNotSupported},
		"another address": {ethernet.Options{Pool: pool, MAC: ethernet.MAC{2, 0, 0, 0, 0, 8}}, ethernet.ErrNotSupported},
	} {
		if _, err := try(t, address, c.config); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
	p := open(t, address, ethernet.Options{Pool: pool, MAC: ethernet.MAC{2, 0, 0, 0, 0, 7}})
	if i := p.Info(); i.Options.MTU != 986 || i.MAC != p.MAC() || p.MAC() != (ethernet.MAC{2, 0, 0, 0, 0, 7}) || p.Queue(1) != nil {
		t.Errorf("%+v", i)
	}
	if l, err := p.Link(); err != nil || !l.Up {
		t.Errorf("%+v, %v", l, err)
	}
	for name, c := range map[string]struct{ got, want error }{
		"its address":     {p.SetMAC(p.MAC()), nil},
		"another address": {p.SetMAC(ethernet.MAC{2}), ethernet.ErrNotSupported},
		"promiscuous":     {p.SetPromiscuous(true), ethernet.ErrNotSupported},
		"as it is":        {p.SetPromiscuous(false), nil},
		"groups":          {p.SetMulticast([]ethernet.MAC{{1}}), nil},
		"all VLANs":       {p.SetVLANs(nil), nil},
		"some VLANs":      {p.SetVLANs([]uint16{1}), ethernet.ErrNotSupported},
		"restart":         {p.Restart(t.Context()), ethernet.ErrNotSupported},
	} {
		if !errors.Is(c.got, c.want) {
			t.Errorf("%s: %v, want %v", name, c.got, c.want)
		}
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
			if n, err := a.Queue(0).Send([]ethernet.Frame{put(t, a.Queue(0).Cache(), frame(to, i, 60))}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		want := 1
		if promiscuous {
			want = 0
		}
		for i := want; i < 3; i++ {
			f := receive(t, b.Queue(0))
			if pool.Bytes(f)[20] != byte(i+20*i) {
				t.Errorf("promiscuous %t: frame %d is another", promiscuous, i)
			}
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
			var err error
			if n, err = q.Send([]ethernet.Frame{put(t, q.Cache(), frame(b.MAC(), i, 60))}); err != nil {
				t.Fatal(err)
			}
		}
	}
	for n := 1; n > 0; {
		var err error
		if n, err = q.Unsent(); err != nil {
			t.Fatal(err)
		}
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
		if pool.Bytes(f)[20] != byte(n+20*n) {
			t.Fatalf("frame %d is another", n)
		}
		b.Queue(0).Cache().Free([]ethernet.Frame{f})
	}
	if c := b.Stats(); c.Device.Missed != 0 || c.Queues[0].ReceivedFrames != 100 {
		t.Errorf("%+v, %+v", c.Device, c.Queues[0])
	}
}

// TestClose: waits end, calls fail, closing again does nothing.
func TestClose(t *testing.T) {
	for _, interrupts := range []bool{false, true} {
		pool := newPool(t, ethernet.PoolOptions{})
		p := open(t, "emu:", ethernet.Options{Pool: pool, Interrupts: interrupts})
		ctx, cancel := context.WithCancel(t.Context())
		q := p.Queue(0)
		if err := q.Wait(ctx); err != nil {
			t.Errorf("a wait without frames: %v", err)
		}
		waited := make(chan error)
		go func() {
			var err error
			for err == nil {
				err = q.Wait(ctx)
			}
			waited <- err
		}()
		cancel()
		if err := <-waited; !errors.Is(err, context.Canceled) {
			t.Errorf("canceled: %v", err)
		}
		go func() {
			var err error
			for err == nil {
				err = q.Wait(t.Context())
			}
			waited <- err
		}()
		for range 2 {
			if err := p.Close(); err != nil {
				t.Error(err)
			}
		}
		if err := <-waited; !errors.Is(err, ethernet.ErrClosed) {
			t.Errorf("closed: %v", err)
		}
		_, receive := q.Receive(make([]ethernet.Frame, 1))
		_, send := q.Send(make([]ethernet.Frame, 1))
		_, unsent := q.Unsent()
		for what, err := range map[string]error{"receive": receive, "send": send, "unsent": unsent, "wait": q.Wait(t.Context())} {
			if !errors.Is(err, ethernet.ErrClosed) {
				t.Errorf("%s: %v", what, err)
			}
		}
		if p.Stats().Device != nil {
			t.Error("a closed device has counters")
		}
	}
}

// BenchmarkMemory sends bursts of 64 frames over a memory wire: one goroutine does the
// work of both ports and both engines.
func BenchmarkMemory(b *testing.B) {
	for _, size := range []int{60, 1514} {
		b.Run(fmt.Sprint(size), func(b *testing.B) {
			pool := newPool(b, ethernet.PoolOptions{})
			x, y := pair(b, ethernet.Options{Pool: pool}, "")
			from, to := x.Queue(0), y.Queue(0)
			frames := make([]ethernet.Frame, 64)
			for i := range frames {
				frames[i] = put(b, from.Cache(), frame(y.MAC(), 1, size))
			}
			b.ReportAllocs()
			sent := 0
			for b.Loop() {
				n, err := from.Send(frames)
				if err != nil {
					b.Fatal(err)
				}
				sent += n
				for got := len(frames) - n; got < len(frames); { // what was received is sent again
					k, err := to.Receive(frames[got:])
					if err != nil {
						b.Fatal(err)
					}
					got += k
				}
			}
			b.ReportMetric(float64(sent)/b.Elapsed().Seconds(), "frames/s")
		})
	}
}
