package virtio_test

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/virtqueuetest"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ethernet"
	_ "github.com/trapeze-nic/trapeze/ethernet/internal/virtio"
	"github.com/trapeze-nic/trapeze/vfio"
)

// mute is for tests that have the driver complain.
var mute = slog.New(slog.NewTextHandler(io.Discard, nil))

// connect opens the port of a back end. It is closed with the test.
func connect(t testing.TB, b *fakeBack, c ethernet.Options) ethernet.Port {
	t.Helper()
	if c.Pool == nil {
		c.Pool = porttest.NewPool(t, ethernet.PoolOptions{})
	}
	c.Logger = mute
	p := must.Get(ethernet.Open(t.Context(), b.address(), c))(t)
	porttest.CloseAtEnd(t, p)
	return p
}

// TestVhostUser exchanges frames with a back end that is ours.
func TestVhostUser(t *testing.T) {
	for _, tt := range []struct {
		name               string
		features, protocol uint64
		config             ethernet.Options
	}{
		{"packed", defaultFeatures, defaultProtocol, ethernet.Options{}},
		{"split", defaultFeatures &^ (1 << 34), defaultProtocol, ethernet.Options{}},
		{"no event index", defaultFeatures &^ (1 << 29), defaultProtocol, ethernet.Options{Interrupts: true}},
		{"split, no event index", defaultFeatures &^ (1<<34 | 1<<29), defaultProtocol, ethernet.Options{Interrupts: true}},
		{"interrupts", defaultFeatures, defaultProtocol, ethernet.Options{Interrupts: true}},
		{"no merging", defaultFeatures &^ (1 << 15), defaultProtocol, ethernet.Options{}},
		{"no protocol features", defaultFeatures, 0, ethernet.Options{}},
		{"two queues", defaultFeatures | 1<<22, defaultProtocol, ethernet.Options{Queues: 2}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			leaktest.Check(t)
			b := newBack(t)
			b.features, b.protocol = tt.features, tt.protocol
			if b.protocol == 0 {
				b.status = 4
			}
			p := connect(t, b.serve(), tt.config)
			for i := range max(1, tt.config.Queues) {
				porttest.Exchange(t, p.Queue(i), p.Queue(i), 3000, 64)
			}
			c := p.Stats().Queues[0]
			if c.SentFrames != 3000 || c.ReceivedFrames != 3000 || c.ReceivedBytes != c.SentBytes || c.Lost+c.Restarts+c.BadLengths+c.Unended != 0 {
				t.Errorf("%+v", c)
			}
			should.Hold(t, p.Queue(2) == nil && p.Queue(-1) == nil, "a queue that there is not")
			l, err := p.Link()
			should.Hold(t, err == nil && l.Up && p.MAC().IsStation(), "%+v, %v, %v", l, err, p.MAC())
		})
	}
}

func TestAddresses(t *testing.T) {
	pool := porttest.NewPool(t, ethernet.PoolOptions{})
	for _, address := range []string{"", "vhost-user", "vhost-user:", "vhost-user:x", "vhost-user:/x?ring=round", "vhost-user:/x?ring=", "vhost-user:/x?size=1", "vhost-user:/x?ring=split&a=b"} {
		should.Refuse(ethernet.Open(t.Context(), address, ethernet.Options{Pool: pool}))(t, vfio.ErrBadAddress, "%q", address)
	}
	_, err := ethernet.Open(t.Context(), "vhost-user:/nowhere/s", ethernet.Options{Pool: pool})
	should.Hold(t, errors.Is(err, unix.ENOENT) && strings.Contains(err.Error(), "start the back end first"), "no back end: %v", err)
	should.Refuse(ethernet.Open(t.Context(), "vhost-user:/nowhere/s", ethernet.Options{}))(t, ethernet.ErrConfig, "no pool")
	b := newBack(t).serve()
	for _, c := range []ethernet.Options{{Pool: pool, Offloads: ethernet.OffloadTSO}, {Pool: pool, Queues: 3, ReceiveDescriptors: 64}} {
		should.Refuse(ethernet.Open(t.Context(), b.address(), c))(t, ethernet.ErrNotSupported, "%+v", c)
	}
	_, err = ethernet.Open(t.Context(), b.address(), ethernet.Options{Pool: porttest.NewPool(t, ethernet.PoolOptions{Headroom: 10})})
	should.Hold(t, errors.Is(err, ethernet.ErrConfig), "headroom: %v", err)
}

// TestHostileReplies: nothing that a back end says while it is opened does harm.
func TestHostileReplies(t *testing.T) {
	// change changes the reply to one request.
	change := func(request uint32, do func(c *net.UnixConn, reply []byte) []byte) func(b *fakeBack) {
		return func(b *fakeBack) {
			b.reply = func(c *net.UnixConn, r uint32, reply []byte) []byte {
				if r != request {
					return reply
				}
				return do(c, reply)
			}
		}
	}
	set := func(at int, v uint32) func(*net.UnixConn, []byte) []byte {
		return func(_ *net.UnixConn, reply []byte) []byte {
			binary.NativeEndian.PutUint32(reply[at:], v)
			return reply
		}
	}
	for _, tt := range []struct {
		name string
		do   func(b *fakeBack)
		want error
	}{
		{"no answer", change(reqGetFeatures, func(*net.UnixConn, []byte) []byte { return nil }), ethernet.ErrNotReady},
		{"half an answer", change(reqGetFeatures, func(_ *net.UnixConn, r []byte) []byte { return r[:14] }), ethernet.ErrNotReady},
		{"no acknowledgement", change(reqSetMemTable, func(*net.UnixConn, []byte) []byte { return nil }), ethernet.ErrNotReady},
		{"another request", change(reqGetFeatures, set(0, 2)), ethernet.ErrProtocol},
		{"another version", change(reqGetFeatures, set(4, 4|2)), ethernet.ErrProtocol},
		{"no reply", change(reqGetFeatures, set(4, 1)), ethernet.ErrProtocol},
		{"too long", change(reqGetFeatures, set(8, 0xffffffff)), ethernet.ErrProtocol},
		{"too short", change(reqGetFeatures, func(_ *net.UnixConn, r []byte) []byte {
			binary.NativeEndian.PutUint32(r[8:], 0)
			return r[:12]
		}), ethernet.ErrProtocol},
		{"twice", change(reqGetProtocol, func(_ *net.UnixConn, r []byte) []byte { return append(r, r...) }), ethernet.ErrProtocol},
		{"all ones", change(reqGetFeatures, func(_ *net.UnixConn, r []byte) []byte {
			for i := range r {
				r[i] = 0xff
			}
			return r
		}), ethernet.ErrProtocol},
		{"descriptors", change(reqGetFeatures, func(c *net.UnixConn, r []byte) []byte {
			_, _, _ = c.WriteMsgUnix(r[:4], unix.UnixRights(1, 1), nil)
			return r[4:]
		}), ethernet.ErrProtocol},
		{"end", change(reqGetFeatures, func(c *net.UnixConn, r []byte) []byte { c.Close(); return r }), ethernet.ErrDeviceGone},
		{"refusal", change(reqSetMemTable, set(12, 1)), ethernet.ErrNotSupported},
		{"features not wanted", change(reqGetStatus, set(12, 3)), ethernet.ErrNotSupported},
		{"an old device", func(b *fakeBack) { b.features &^= 1 << 32 }, ethernet.ErrNotSupported},
		{"no queues", func(b *fakeBack) { b.pairs = 0 }, ethernet.ErrProtocol},
	} {
		t.Run(tt.name, func(t *testing.T) {
			leaktest.Check(t)
			b := newBack(t)
			tt.do(b)
			b.serve()
			pool := porttest.NewPool(t, ethernet.PoolOptions{})
			c := ethernet.Options{Pool: pool}
			if tt.want == ethernet.ErrNotReady {
				c.Timeout = 200 * time.Millisecond
			}
			_, err := ethernet.Open(t.Context(), b.address(), c)
			var e *ethernet.Error
			should.Hold(t, errors.Is(err, tt.want) && errors.As(err, &e) && strings.Contains(err.Error(), b.path),
				"%v, want %v", err, tt.want)
		})
	}
}

// TestHostileQueue: a back end that says once what cannot be has its queue restarted, and
// one that goes on so is given up.
func TestHostileQueue(t *testing.T) {
	for _, packed := range []bool{false, true} {
		for _, tt := range []struct {
			name string
			do   func(queue int, b virtqueuetest.Buffer, length uint32) (virtqueuetest.Buffer, uint32)
		}{
			{"no such buffer", func(_ int, b virtqueuetest.Buffer, n uint32) (virtqueuetest.Buffer, uint32) {
				b.Number = 0xffff
				return b, n
			}},
			{"always the same buffer", func(_ int, b virtqueuetest.Buffer, n uint32) (virtqueuetest.Buffer, uint32) {
				b.Number = 3
				return b, n
			}},
			{"longer than the buffer", func(queue int, b virtqueuetest.Buffer, n uint32) (virtqueuetest.Buffer, uint32) {
				if queue == 0 {
					n = 2061
				}
				return b, n
			}},
		} {
			for _, always := range []bool{false, true} {
				t.Run(fmt.Sprintf("packed %v, %s, always %v", packed, tt.name, always), func(t *testing.T) {
					leaktest.Check(t)
					b := newBack(t)
					if !packed {
						b.features &^= 1 << 34
					}
					uses := 0
					b.use = func(q int, f virtqueuetest.Buffer, n uint32) (virtqueuetest.Buffer, uint32) {
						if uses++; always || uses >= 100 && uses < 104 {
							return tt.do(q, f, n)
						}
						return f, n
					}
					p := connect(t, b.serve(), ethernet.Options{ReceiveDescriptors: 64, SendDescriptors: 64})
					err := provoke(t, p, func(c ethernet.QueueStats) bool { return c.Restarts > 0 && c.ReceivedFrames > 200 })
					should.Hold(t, (!always || errors.Is(err, ethernet.ErrProtocol)) && (always || err == nil), "%v, %+v", err, p.Stats())
				})
			}
		}
	}
}

// provoke sends and receives until a condition holds or the port fails, and returns why.
func provoke(t *testing.T, p ethernet.Port, until func(c ethernet.QueueStats) bool) error {
	t.Helper()
	q := p.Queue(0)
	frames := make([]ethernet.Frame, 32)
	for end := time.Now().Add(timeout); !until(p.Stats().Queues[0]); {
		n := q.Cache().Alloc(frames)
		for i := range n {
			frames[i].Length = 64
		}
		sent, err := q.Send(frames[:n])
		q.Cache().Free(frames[sent:n])
		if err != nil {
			return err
		}
		if n, err = q.Receive(frames); err != nil {
			return err
		}
		for _, f := range frames[:n] {
			must.Be(t, len(q.Cache().Pool().Bytes(f)), 64, "a frame of %d bytes", f.Length)
		}
		q.Cache().Free(frames[:n])
		if n == 0 {
			if err := q.Wait(t.Context()); err != nil {
				return err
			}
		}
		must.Hold(t, time.Now().Before(end), "in vain: %+v", p.Stats())
	}
	return nil
}

// TestHostileFrames: frames that make no sense are dropped and counted, and the others come.
func TestHostileFrames(t *testing.T) {
	type counters = ethernet.QueueStats
	for _, tt := range []struct {
		name   string
		header func(h []byte)
		length uint32
		until  func(c counters) bool
	}{
		{"no buffer", func(h []byte) { h[10] = 0 }, 0, func(c counters) bool { return c.Unended > 10 }},
		{"three buffers", func(h []byte) { h[10] = 3 }, 0, func(c counters) bool { return c.Unended > 10 }},
		{"a frame without end", func(h []byte) { h[10], h[11] = 0xff, 0xff }, 0, func(c counters) bool { return c.Unended > 0 }},
		{"an empty buffer", nil, 1, func(c counters) bool { return c.BadLengths > 10 }},
		{"a header only", nil, 12, func(c counters) bool { return c.BadLengths > 10 }},
		{"less than a frame's header", nil, 25, func(c counters) bool { return c.BadLengths > 10 }},
		{"more than the MTU", nil, 12 + 1519, func(c counters) bool { return c.BadLengths > 10 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			leaktest.Check(t)
			b := newBack(t)
			frames := 0
			b.header = func(h []byte) {
				if frames++; frames%10 == 0 && tt.header != nil {
					tt.header(h)
				}
			}
			b.use = func(q int, f virtqueuetest.Buffer, n uint32) (virtqueuetest.Buffer, uint32) {
				if q == 0 && frames%10 == 0 && tt.length > 0 {
					n = tt.length
				}
				return f, n
			}
			p := connect(t, b.serve(), ethernet.Options{ReceiveDescriptors: 64, SendDescriptors: 64})
			should.OK(t, provoke(t, p, tt.until))
			c := p.Stats().Queues[0]
			should.Hold(t, c.ReceivedFrames != 0 && c.Restarts == 0, "%+v", c)
		})
	}
}

// TestInterruptsThatLie: interrupts come always, or never, or their eventfd is tampered with.
func TestInterruptsThatLie(t *testing.T) {
	for name, call := range map[string]func(bool) bool{
		"always": func(bool) bool { return true },
		"never":  func(bool) bool { return false },
	} {
		t.Run(name, func(t *testing.T) {
			leaktest.Check(t)
			b := newBack(t)
			b.call = call
			p := connect(t, b.serve(), ethernet.Options{Interrupts: true})
			porttest.Exchange(t, p.Queue(0), p.Queue(0), 300, 64)
		})
	}
	t.Run("waits for ever", func(t *testing.T) {
		leaktest.Check(t)
		b := newBack(t)
		b.use = func(_ int, f virtqueuetest.Buffer, n uint32) (virtqueuetest.Buffer, uint32) {
			for _, q := range b.queues {
				for _, fd := range []int{q.call, q.kick} {
					if fd > 0 {
						_ = unix.SetNonblock(fd, false)
					}
				}
			}
			return f, n
		}
		b.call = func(bool) bool { return false }
		p := connect(t, b.serve(), ethernet.Options{Interrupts: true})
		porttest.Exchange(t, p.Queue(0), p.Queue(0), 300, 64)
	})
}

// TestBackEndEnds: the port says so, and Restart connects to the next.
func TestBackEndEnds(t *testing.T) {
	leaktest.Check(t)
	b := newBack(t).serve()
	p := connect(t, b, ethernet.Options{})
	porttest.Exchange(t, p.Queue(0), p.Queue(0), 300, 64)
	b.stop()
	err := provoke(t, p, func(ethernet.QueueStats) bool { return false })
	should.Fail(t, err, ethernet.ErrDeviceGone, "the back end has ended")
	should.Refuse(p.Link())(t, ethernet.ErrDeviceGone, "link")
	err = p.Restart(t.Context())
	should.Hold(t, err != nil, "restarted without a back end")
	b.serve()
	must.OK(t, p.Restart(t.Context()))
	porttest.Exchange(t, p.Queue(0), p.Queue(0), 300, 64)
}

// TestNotStopped: buffers that a back end may still use are not given back.
func TestNotStopped(t *testing.T) {
	b := newBack(t)
	b.reply = func(_ *net.UnixConn, r uint32, reply []byte) []byte {
		if r == reqGetBase {
			return nil
		}
		return reply
	}
	pool := must.Get(ethernet.NewPool(ethernet.PoolOptions{}))(t)
	p := must.Get(ethernet.Open(t.Context(), b.serve().address(), ethernet.Options{Pool: pool, Timeout: 100 * time.Millisecond, Logger: mute}))(t)
	should.Fail(t, p.Restart(t.Context()), ethernet.ErrNotStopped, "restart")
	should.Refuse(p.Queue(0).Receive(make([]ethernet.Frame, 1)))(t, ethernet.ErrNotStopped, "receive")
	should.OK(t, p.Close())
	should.OK(t, pool.Close())
}

// TestBadFrames: what cannot be sent is refused, and nothing before it is lost.
func TestBadFrames(t *testing.T) {
	b := newBack(t).serve()
	p := connect(t, b, ethernet.Options{})
	q := p.Queue(0)
	good := make([]ethernet.Frame, 1)
	must.Be(t, q.Cache().Alloc(good), 1)
	good[0].Length = 60
	for _, bad := range []ethernet.Frame{
		{Buffer: 1 << 31, Offset: 64, Length: 60},
		{Buffer: good[0].Buffer, Offset: 11, Length: 60},
		{Buffer: good[0].Buffer, Offset: 64, Length: 13},
		{Buffer: good[0].Buffer, Offset: 64, Length: 1519},
		{Buffer: good[0].Buffer, Offset: 65535, Length: 60},
		{Buffer: good[0].Buffer, Offset: 64, Length: 60, Flags: ethernet.SumTCP},
		{Buffer: good[0].Buffer, Offset: 64, Length: 60, Segment: 1000},
	} {
		n, err := q.Send([]ethernet.Frame{bad})
		should.Hold(t, n == 0 && errors.Is(err, ethernet.ErrBadFrame), "%+v: %d, %v", bad, n, err)
	}
	n, err := q.Send([]ethernet.Frame{good[0], {}})
	should.Hold(t, n == 1 && errors.Is(err, ethernet.ErrBadFrame), "%d, %v", n, err)
	waittest.Until(t, "all is sent", func() bool { return must.Get(q.Unsent())(t) == 0 })
}

// TestClose: a port that is closed answers so, whoever asks.
func TestClose(t *testing.T) {
	leaktest.Check(t)
	p := connect(t, newBack(t).serve(), ethernet.Options{})
	waited := make(chan error, 1)
	go func() {
		for {
			if err := p.Queue(0).Wait(t.Context()); err != nil {
				waited <- err
				return
			}
		}
	}()
	for range 2 {
		should.OK(t, p.Close())
	}
	_, rerr := p.Queue(0).Receive(nil)
	_, serr := p.Queue(0).Send(nil)
	_, uerr := p.Queue(0).Unsent()
	_, lerr := p.Link()
	for _, err := range []error{<-waited, rerr, serr, uerr, lerr, p.Restart(t.Context()), p.SetPromiscuous(true)} {
		should.Fail(t, err, ethernet.ErrClosed)
	}
}

func TestNoAllocation(t *testing.T) {
	var hold, holds atomic.Bool
	b := newBack(t)
	b.idle = func(int) bool {
		for hold.Load() { // it would allocate too
			holds.Store(true)
			time.Sleep(time.Millisecond)
		}
		return true
	}
	p := connect(t, b.serve(), ethernet.Options{})
	q := p.Queue(0)
	frames := make([]ethernet.Frame, 32)
	hold.Store(true)
	defer hold.Store(false)
	waittest.Until(t, "the back end stands", holds.Load)
	n := testing.AllocsPerRun(20, func() {
		n := q.Cache().Alloc(frames)
		for i := range n {
			frames[i].Length = 64
		}
		sent, _ := q.Send(frames[:n])
		q.Cache().Free(frames[sent:n])
		n, _ = q.Receive(frames)
		q.Cache().Free(frames[:n])
	})
	should.Be(t, n, 0)
}

// TestRestartWhileUsed restarts a port, asks it things and closes it while its queue is used.
func TestRestartWhileUsed(t *testing.T) {
	leaktest.Check(t)
	p := connect(t, newBack(t).serve(), ethernet.Options{Interrupts: true})
	ended := make(chan error, 1)
	go func() { ended <- provoke(t, p, func(ethernet.QueueStats) bool { return false }) }()
	for range 5 {
		received := p.Stats().Queues[0].ReceivedFrames
		waittest.Until(t, "frames", func() bool { return p.Stats().Queues[0].ReceivedFrames != received })
		must.OK(t, p.Restart(t.Context()))
		_, err := p.Link()
		should.Hold(t, err == nil && p.Info().Vectors == 1 && p.MAC().IsStation(), "%v, %+v", err, p.Info())
	}
	should.OK(t, p.Close())
	should.Fail(t, <-ended, ethernet.ErrClosed)
}

// TestRestartBesideCache restarts a port while its queue's user takes and gives buffers: each
// stays in one hand, and none is lost.
func TestRestartBesideCache(t *testing.T) {
	leaktest.Check(t)
	pool := porttest.NewPool(t, ethernet.PoolOptions{Buffers: 2048})
	p := connect(t, newBack(t).serve(), ethernet.Options{Pool: pool, ReceiveDescriptors: 64, SendDescriptors: 64})
	q := p.Queue(0)
	ended := make(chan error, 1)
	go func() {
		frames := make([]ethernet.Frame, 16)
		for {
			n := q.Cache().Alloc(frames)
			for i := range n {
				frames[i].Length = 60
			}
			sent, err := q.Send(frames[:n])
			q.Cache().Free(frames[sent:n])
			if err != nil {
				ended <- err
				return
			}
			if sent == 0 { // the ring is full, or stopped
				time.Sleep(20 * time.Microsecond)
			}
		}
	}()
	for range 20 {
		time.Sleep(time.Millisecond)
		should.OK(t, p.Restart(t.Context()))
	}
	should.OK(t, p.Close())
	should.Fail(t, <-ended, ethernet.ErrClosed)
	should.Be(t, pool.Free(), 2048)
}
