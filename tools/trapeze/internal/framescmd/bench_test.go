package framescmd

import (
	"fmt"
	"log/slog"
	"net/netip"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/driver"
	_ "github.com/trapeze-nic/trapeze/emulator" // emu:
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/rawport"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/responder"
)

var benchWires atomic.Uint32

func benchPool(b testing.TB) *ethernet.Pool {
	b.Helper()
	pool := must.Get(ethernet.NewPool(ethernet.PoolOptions{Buffers: 8192}))(b)
	b.Cleanup(func() { should.OK(b, pool.Close()) })
	return pool
}

// benchPair makes two ports on a memory wire, with one pool.
func benchPair(b testing.TB, pool *ethernet.Pool) (x, y ethernet.Port) {
	b.Helper()
	log := slog.New(slog.DiscardHandler)
	address := fmt.Sprintf("emu:?wire=mem:frames-bench-%d", benchWires.Add(1))
	open := func() ethernet.Port {
		nic := must.Get(driver.Open(b.Context(), address, driver.Options{Logger: log}))(b)
		p := must.Get(rawport.New(b.Context(), nic, ethernet.Options{Pool: pool, Promiscuous: true, Logger: log}))(b)
		b.Cleanup(func() { should.OK(b, p.Close()) })
		return p
	}
	return open(), open()
}

// exchange sends a burst into a queue, has work done, and takes a burst from another one,
// until all frames are there again.
func exchange(b testing.TB, in, out ethernet.Queue, frames []ethernet.Frame, work func()) {
	must.Give(in.Send(frames))(b, len(frames), "frames")
	deadline := time.Now().Add(time.Minute)
	for got := 0; got < len(frames); {
		work()
		n, err := out.Receive(frames[got:])
		if err != nil || n == 0 && time.Now().After(deadline) {
			b.Fatalf("%d of %d frames are back, %v", got, len(frames), err)
		}
		got += n
	}
}

// request makes frames that are pings to a port.
func request(b testing.TB, pool *ethernet.Pool, q ethernet.Queue, to ethernet.MAC, size int) []ethernet.Frame {
	frame := append(append([]byte{}, to[:]...), 2, 0, 0, 0, 0, 9, 8, 0,
		0x45, 0, byte((size-14)>>8), byte(size-14), 0, 0, 0, 0, 64, 1, 0, 0, 10, 0, 0, 2, 10, 0, 0, 1, 8, 0, 0xf7, 0xff, 0, 0, 0, 0)
	sum := uint32(0x4500+size-14) + 0x4001 + 0x0a00 + 2 + 0x0a00 + 1
	sum = ^(sum&0xffff + sum>>16)
	frame[24], frame[25] = byte(sum>>8), byte(sum)
	frames := make([]ethernet.Frame, burst)
	must.Be(b, q.Cache().Alloc(frames), burst, "no buffers")
	for i := range frames {
		frames[i].Length = uint16(size)
		clear(pool.Bytes(frames[i]))
		copy(pool.Bytes(frames[i]), frame)
	}
	return frames
}

// echoing returns what answers a burst of pings of a size.
func echoing(b testing.TB, size int) (round func()) {
	pool := benchPool(b)
	x, y := benchPair(b, pool)
	e := &echo{responder: responder.New(y.MAC(), []netip.Addr{netip.MustParseAddr("10.0.0.1")}), pool: pool}
	frames := request(b, pool, x.Queue(0), y.MAC(), size)
	batch := make([]ethernet.Frame, burst)
	mac := y.MAC()
	return func() {
		for _, f := range frames { // those that came back are replies
			bytes := pool.Bytes(f)
			copy(bytes, mac[:])
			bytes[11], bytes[26+3], bytes[30+3], bytes[34], bytes[36] = 9, 2, 1, 8, 0xf7
		}
		exchange(b, x.Queue(0), x.Queue(0), frames, func() {
			must.Get(e.round(b.Context(), y.Queue(0), batch))(b)
		})
		n := e.verdicts[responder.Invalid].Load() + e.verdicts[responder.Other].Load()
		must.Hold(b, n == 0, "%d frames were not answered", n)
	}
}

// relaying returns what passes a burst of frames of a size from one port to another.
func relaying(b testing.TB, size int) (round func()) {
	pool := benchPool(b)
	x, in := benchPair(b, pool)
	out, y := benchPair(b, pool)
	var dropped atomic.Uint64
	batch := make([]ethernet.Frame, burst)
	frames := request(b, pool, x.Queue(0), ethernet.MAC{2, 0, 0, 0, 0, 8}, size)
	return func() {
		exchange(b, x.Queue(0), y.Queue(0), frames, func() {
			must.Get(pass(b.Context(), pool, in.Queue(0), out.Queue(0), batch, &dropped))(b)
		})
	}
}

// rounds are what a burst of 64 frames goes through in one goroutine, which does the work
// of all ports and engines.
var rounds = []struct {
	name string
	make func(b testing.TB, size int) func()
}{
	{"echo", echoing},
	{"forward", relaying},
}

// TestAllocations: frames are answered and passed on without an allocation.
func TestAllocations(t *testing.T) {
	t.Setenv("TRAPEZE_TELEMETRY", "off") // its start allocates
	for _, r := range rounds {
		should.Be(t, testing.AllocsPerRun(50, r.make(t, 60)), 0, "%s: allocations for a burst", r.name)
	}
}
