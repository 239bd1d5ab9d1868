package afxdp_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// TestExchange: frames of all lengths pass between two ports, each way, in every mode, and
// from buffers of every kind.
func TestExchange(t *testing.T) {
	leaktest.Parallel(t)
	for i, options := range []string{"", "?mode=native&copy=copy", "?mode=generic"} {
		for j, pool := range []ethernet.PoolOptions{{}, {Size: 4032}, {Size: 1984}, {Headroom: 514, Size: 3000}, {Size: 9216}} {
			for k, interrupts := range []bool{false, true} {
				if (i+j+k)%3 > 0 && !soak.Wanted() { // each address and each pool have both kinds of waits
					continue
				}
				t.Run(fmt.Sprintf("%s,%d,%d,%t", options, pool.Headroom, pool.Size, interrupts), func(t *testing.T) {
					leaktest.Check(t)
					a, b := pair(t, 1)
					c := ethernet.Options{Pool: porttest.NewPool(t, pool), Interrupts: interrupts}
					left, right := open(t, "afxdp:"+a+options, c), open(t, "afxdp:"+b+options, c)
					porttest.Exchange(t, left.Queue(0), right.Queue(0), 2000, 256)
					porttest.Exchange(t, right.Queue(0), left.Queue(0), 2000, 256)
				})
			}
		}
	}
}

// TestLengths: each length from the shortest frame to the MTU passes, to the kernel and
// from it, and a frame begins where its pool says.
func TestLengths(t *testing.T) {
	leaktest.Parallel(t)
	a, b := pair(t, 1)
	pool := porttest.NewPool(t, ethernet.PoolOptions{Headroom: 50, Size: 4032})
	p, kernel := open(t, "afxdp:"+a, ethernet.Options{Pool: pool, MTU: 3000}), raw(t, b)
	q := p.Queue(0)
	got := make([]byte, 4096)
	for length := ethernet.HeaderSize + 4; length <= 3014; length += 7 {
		want := make([]byte, length)
		porttest.Fill(want, length)
		f := make([]ethernet.Frame, 1)
		must.Be(t, q.Cache().Alloc(f), 1)
		f[0].Length = uint16(length)
		copy(pool.Bytes(f[0]), want)
		must.Give(q.Send(f))(t, 1)
		if n, err := unix.Read(kernel, got); err != nil || !bytes.Equal(got[:n], want) {
			t.Fatalf("%d bytes: the kernel has got %d, %v", length, n, err)
		}
		must.Get(unix.Write(kernel, want))(t)
		waittest.Until(t, "a frame", func() bool {
			n := must.Get(q.Receive(f))(t)
			return n == 1
		})
		must.Same(t, pool.Bytes(f[0]), want, "%d bytes: got %+v", length, f[0])
		o := int(f[0].Offset)
		must.Hold(t, o >= 50 && (int(f[0].Buffer)*pool.Stride()+o-50)%64 == 0, "a frame begins at %d", o)
		q.Cache().Free(f)
	}
	c := p.Stats()
	if c.Device == nil || c.Device.ReceivedFrames < c.Queues[0].ReceivedFrames || c.Device.SentFrames < c.Queues[0].SentFrames || c.Queues[0].SentFrames == 0 {
		t.Errorf("counted: %+v, %+v", c, c.Device)
	}
}

// TestQueues: each queue gets its own frames, and those of other queues stay with the
// kernel's network.
func TestQueues(t *testing.T) {
	leaktest.Parallel(t)
	a, b := pair(t, 4)
	left := open(t, "afxdp:"+a, ethernet.Options{Queues: 4, ReceiveDescriptors: 64})
	kernel := raw(t, b)
	right := open(t, "afxdp:"+b+"?queue=1", ethernet.Options{Queues: 2, ReceiveDescriptors: 64, Interrupts: true})
	should.Be(t, right.Info().Vectors, 2, "vectors")
	should.Hold(t, left.Queue(-1) == nil && right.Queue(2) == nil, "a queue that there is not")
	for i := range 2 { // veth keeps the number of the queue
		porttest.Exchange(t, left.Queue(i+1), right.Queue(i), 500, 32)
		porttest.Exchange(t, right.Queue(i), left.Queue(i+1), 500, 32)
	}
	got := make([]byte, 2048)
	for i, number := range []int{0, 3} {
		must.Be(t, porttest.Send(t, left.Queue(number), i, 1), 1, "not")
		want := make([]byte, porttest.Length(i))
		porttest.Fill(want, i)
		for ours := true; ours; { // the socket also sees what was sent from there
			n, from := must.Two(unix.Recvfrom(kernel, got, 0))(t)
			ours = from.(*unix.SockaddrLinklayer).Pkttype == unix.PACKET_OUTGOING
			should.Hold(t, ours || bytes.Equal(got[:n], want), "queue %d: the kernel got %d bytes", number, n)
		}
	}
	for i := range 2 {
		should.Give(right.Queue(i).Receive(make([]ethernet.Frame, 1)))(t, 0, "queue %d got a frame of another", i+1)
	}
}

// TestBadFrames: frames that cannot be sent are refused, and those before them are sent.
func TestBadFrames(t *testing.T) {
	leaktest.Parallel(t)
	a, b := pair(t, 1)
	left, right := open(t, "afxdp:"+a, ethernet.Options{}), open(t, "afxdp:"+b, ethernet.Options{})
	q := left.Queue(0)
	for name, spoil := range map[string]func(f *ethernet.Frame){
		"beyond the pool":   func(f *ethernet.Frame) { f.Buffer = 1 << 20 },
		"beyond its buffer": func(f *ethernet.Frame) { f.Offset = 2100 },
		"short":             func(f *ethernet.Frame) { f.Length = 13 },
		"long":              func(f *ethernet.Frame) { f.Length = 1519 },
		"tag":               func(f *ethernet.Frame) { f.Flags = ethernet.VLANTagged },
		"checksum":          func(f *ethernet.Frame) { f.Flags = ethernet.SumUDP },
		"segments":          func(f *ethernet.Frame) { f.Segment = 1000 },
	} {
		f := make([]ethernet.Frame, 2)
		must.Be(t, q.Cache().Alloc(f), 2, "no buffers")
		f[0].Length, f[1].Length = 60, 60
		bad := f[1].Buffer
		spoil(&f[1])
		n, err := q.Send(f)
		should.Hold(t, n == 1 && errors.Is(err, ethernet.ErrBadFrame), "%s: %d, %v", name, n, err)
		q.Cache().Give(bad)
	}
	got := 0
	frames := make([]ethernet.Frame, 8)
	waittest.Until(t, "the good frames", func() bool {
		n := must.Get(right.Queue(0).Receive(frames))(t)
		right.Queue(0).Cache().Free(frames[:n])
		got += n
		return got == 7
	})
	// The same buffer twice.
	f := make([]ethernet.Frame, 1)
	q.Cache().Alloc(f)
	f[0].Length = 60
	n, err := q.Send([]ethernet.Frame{f[0], f[0]})
	should.Hold(t, n == 1 && errors.Is(err, ethernet.ErrBadFrame), "a buffer twice: %d, %v", n, err)
}

// TestLongFrames: what the interface receives and the port does not is dropped and
// counted.
func TestLongFrames(t *testing.T) {
	leaktest.Parallel(t)
	a, b := pair(t, 1)
	p := open(t, "afxdp:"+a, ethernet.Options{Pool: porttest.NewPool(t, ethernet.PoolOptions{Size: 4032})})
	kernel := raw(t, b)
	for sent := uint64(1); sent <= 1400; sent++ { // more than there are receive buffers
		must.Get(unix.Write(kernel, make([]byte, []int{1519, 3000}[sent%2])))(t)
		waittest.Until(t, "the frame is counted", func() bool {
			must.Give(p.Queue(0).Receive(make([]ethernet.Frame, 8)))(t, 0)
			return p.Stats().Queues[0].BadLengths == sent
		})
	}
	frame := make([]byte, 60)
	porttest.Fill(frame, 0)
	must.Get(unix.Write(kernel, frame))(t)
	f := make([]ethernet.Frame, 1)
	waittest.Until(t, "a frame", func() bool { n, _ := p.Queue(0).Receive(f); return n == 1 })
	p.Queue(0).Cache().Free(f)
}

// TestNoBuffers: a pool without free buffers keeps frames in the ring, and nothing is lost
// of what has arrived there.
func TestNoBuffers(t *testing.T) {
	leaktest.Parallel(t)
	a, b := pair(t, 1)
	pool := porttest.NewPool(t, ethernet.PoolOptions{Buffers: 64})
	p, kernel := open(t, "afxdp:"+a, ethernet.Options{Pool: pool, ReceiveDescriptors: 64, Interrupts: true}), raw(t, b)
	frame := make([]byte, 60)
	porttest.Fill(frame, 0)
	for range 100 {
		must.Get(unix.Write(kernel, frame))(t)
	}
	q, f := p.Queue(0), make([]ethernet.Frame, 80)
	waittest.Until(t, "NoBuffers counted", func() bool {
		must.Give(q.Receive(f))(t, 0)
		return p.Stats().Queues[0].NoBuffers > 0
	})
	waittest.Until(t, "Missed counted", func() bool { return p.Stats().Device.Missed > 0 })
	must.OK(t, q.Wait(t.Context()))
}

// TestMissed: a frame that finds no buffer counts once.
func TestMissed(t *testing.T) {
	leaktest.Parallel(t)
	a, b := pair(t, 1)
	p, kernel := open(t, "afxdp:"+a, ethernet.Options{ReceiveDescriptors: 64}), raw(t, b)
	frame := make([]byte, 60)
	porttest.Fill(frame, 0)
	const all = 300
	for range all {
		must.Get(unix.Write(kernel, frame))(t)
	}
	q, f, got := p.Queue(0), make([]ethernet.Frame, 64), 0
	waittest.Until(t, "all are received or missed", func() bool {
		n := must.Get(q.Receive(f))(t)
		got += n
		q.Cache().Free(f[:n])
		return n == 0 && got+int(p.Stats().Device.Missed) >= all
	})
	missed := p.Stats().Device.Missed
	should.Hold(t, missed != 0 && got+int(missed) == all, "of %d frames %d were received and %d missed", all, got, missed)
}

// TestLink: the link is told, and frames go on when it has been down.
func TestLink(t *testing.T) {
	leaktest.Parallel(t)
	a, b := pair(t, 1)
	c := ethernet.Options{Timeout: 200 * time.Millisecond, Pool: porttest.NewPool(t, ethernet.PoolOptions{})}
	left, right := open(t, "afxdp:"+a, c), open(t, "afxdp:"+b, c)
	l, err := left.Link()
	must.Hold(t, err == nil && l.Up && l.Speed == 10000 && l.FullDuplex, "%+v, %v", l, err)
	for round := range 3 {
		porttest.Exchange(t, left.Queue(0), right.Queue(0), 200, 64)
		down := []string{a, b, a}[round]
		must.OK(t, netlink.LinkSetDown(linkOf(t, down)))
		must.Be(t, must.Get(left.Link())(t).Up, false)
		// Frames stand still, or are dropped by the kernel; the port lives.
		for range 20 {
			porttest.Send(t, left.Queue(0), 0, 32)
			must.OK(t, left.Queue(0).Wait(t.Context()))
		}
		up(t, down)
		ctx, cancel := context.WithTimeout(t.Context(), timeout)
		must.Get(ethernet.WaitLink(ctx, left))(t)
		cancel()
		settle(t, left.Queue(0), right.Queue(0))
	}
	should.Be(t, left.Stats().Queues[0].Restarts, 0, "restarts")
}

// TestWait: it returns with a frame, without one, and when its context ends.
func TestWait(t *testing.T) {
	leaktest.Parallel(t)
	for _, interrupts := range []bool{false, true} {
		t.Run(fmt.Sprint(interrupts), func(t *testing.T) {
			leaktest.Check(t)
			a, b := pair(t, 1)
			p, kernel := open(t, "afxdp:"+a, ethernet.Options{Interrupts: interrupts}), raw(t, b)
			q := p.Queue(0)
			must.OK(t, q.Wait(t.Context()))
			frame, f := make([]byte, 60), make([]ethernet.Frame, 1)
			porttest.Fill(frame, 0)
			for range 50 {
				go unix.Write(kernel, frame)
				waittest.Until(t, "a frame", func() bool {
					must.OK(t, q.Wait(t.Context()))
					n := must.Get(q.Receive(f))(t)
					return n == 1
				})
				q.Cache().Free(f)
			}
			n := p.Stats().Queues[0].Interrupts
			should.Hold(t, (n > 0) == interrupts, "%d interrupts", n)
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			should.Fail(t, q.Wait(ctx), context.Canceled)
		})
	}
}

// TestAllocations: sending and receiving allocate nothing.
func TestAllocations(t *testing.T) {
	a, b := pair(t, 1)
	c := ethernet.Options{Pool: porttest.NewPool(t, ethernet.PoolOptions{})}
	left, right := open(t, "afxdp:"+a, c).Queue(0), open(t, "afxdp:"+b, c).Queue(0)
	frames := make([]ethernet.Frame, 32)
	burst := func() {
		n := left.Cache().Alloc(frames)
		for i := range frames[:n] {
			frames[i].Length = 60
		}
		must.Get(left.Send(frames[:n]))(t)
		for got := 0; got < n; runtime.Gosched() {
			m := must.Get(right.Receive(frames))(t)
			right.Cache().Free(frames[:m])
			got += m
		}
		must.Get(left.Unsent())(t)
	}
	// The ports look at their interfaces now and then, which allocates.
	allocations := 1.0
	for range 100 {
		if allocations = testing.AllocsPerRun(5, burst); allocations == 0 {
			return
		}
	}
	t.Errorf("%v allocations", allocations)
}
