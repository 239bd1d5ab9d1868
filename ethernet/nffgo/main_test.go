//go:build nffgo

package nffgo_test

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/intel-go/nff-go/flow"
	"github.com/intel-go/nff-go/packet"

	"github.com/trapeze-nic/trapeze/ci/kit/fakeigb"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
	_ "github.com/trapeze-nic/trapeze/ethernet/drivers"
	"github.com/trapeze-nic/trapeze/ethernet/nffgo"
	"github.com/trapeze-nic/trapeze/ethernet/nffgo/internal/firewall"
)

// timeout is far more than anything here takes.
const timeout = 5 * time.Minute

// A process can have one nff-go, and that one graph.
func TestMain(m *testing.M) {
	if err := firewall.Init(5); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func newPool(t *testing.T, c ethernet.PoolOptions) *ethernet.Pool {
	t.Helper()
	p := must.Get(ethernet.NewPool(c))(t)
	t.Cleanup(func() {
		should.Be(t, p.Free(), p.Options().Buffers)
		should.OK(t, p.Close())
	})
	return p
}

func open(t *testing.T, c ethernet.Options) (*fakeigb.Device, ethernet.Port) {
	t.Helper()
	d := must.Get(fakeigb.New(fakeigb.Options{}))(t)
	c.Logger = slog.New(slog.DiscardHandler)
	p := must.Get(ethernet.New(t.Context(), d, c))(t)
	t.Cleanup(func() {
		should.OK(t, p.Close())
		l := d.Log()
		should.Hold(t, len(l.Strays) == 0, "stray accesses: %q", l.Strays)
	})
	return d, p
}

func TestJoinRefuses(t *testing.T) {
	pool := newPool(t, ethernet.PoolOptions{Size: 9216})
	for _, tt := range []struct {
		config ethernet.Options
		queue  int
		field  string
	}{
		{ethernet.Options{}, -1, "queue"},
		{ethernet.Options{}, 1, "queue"},
		{ethernet.Options{MTU: 2031}, 0, "Options.MTU"},
		{ethernet.Options{Offloads: ethernet.OffloadVLAN}, 0, "Options.Offloads"},
		{ethernet.Options{Queues: 2, MTU: 2030}, 1, ""},
	} {
		tt.config.Pool = pool
		_, p := open(t, tt.config)
		q, err := nffgo.Join(p, tt.queue)
		var bad *ethernet.ConfigError
		switch {
		case tt.field == "":
			should.Hold(t, err == nil && q != nil, "%+v: %v", tt, err)
		case !errors.As(err, &bad) || !errors.Is(err, ethernet.ErrConfig) || bad.Field != tt.field:
			t.Errorf("%+v: %v, want one about %s", tt, err, tt.field)
		}
	}
}

// What the graph of TestGraph does to a frame: its byte 14.
const (
	pass = iota
	shorten
	lengthen
)

// mangle makes of some packets what cannot be sent.
func mangle(packets []*packet.Packet, mask *[32]bool, _ flow.UserContext) {
	for i, p := range packets {
		if !mask[i] {
			continue
		}
		switch n := p.GetPacketLen(); p.GetRawPacketBytes()[14] {
		case shorten:
			p.DecapsulateTail(ethernet.HeaderSize-1, n-(ethernet.HeaderSize-1))
		case lengthen:
			p.EncapsulateTail(n, 1519-n)
		}
	}
}

// wire is what a device has sent.
type wire struct {
	mu     sync.Mutex
	frames [][]byte
}

func (w *wire) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.frames)
}

// frame makes one with a number, which makes its length.
func frame(number, what int) []byte {
	b := make([]byte, 60+number*389%1455)
	copy(b, []byte{2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 99, 0x88, 0xb5, byte(what)})
	binary.BigEndian.PutUint32(b[16:], uint32(number))
	for i := 20; i < len(b); i++ {
		b[i] = byte(number*31 + i*7)
	}
	return b
}

func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	for end := time.Now().Add(timeout); !is(); time.Sleep(50 * time.Microsecond) {
		must.Hold(t, time.Now().Before(end), "waited in vain until %s", what)
	}
}

// TestGraph has one graph, from one port to another that has less buffers than there are
// frames, go through what may happen to it.
func TestGraph(t *testing.T) {
	from, in := open(t, ethernet.Options{Pool: newPool(t, ethernet.PoolOptions{}), ReceiveDescriptors: 64})
	to, out := open(t, ethernet.Options{Pool: newPool(t, ethernet.PoolOptions{Buffers: 96}), ReceiveDescriptors: 64, SendDescriptors: 64, Timeout: timeout})
	var sent wire
	held, tail := false, uint32(0) // with the device's lock: whether it leaves frames, and up to where
	to.OnWrite = func(offset uint64, v uint32) bool {
		if offset != fakeigb.TDT {
			return false
		}
		tail = v
		return held
	}
	to.OnSend = func(s fakeigb.Sent) {
		sent.mu.Lock()
		defer sent.mu.Unlock()
		sent.frames = append(sent.frames, s.Bytes)
	}
	source := must.Get(nffgo.Join(in, 0))(t)
	sink := must.Get(nffgo.Join(out, 0))(t)
	frames := must.Get(source.SetReceiver())(t)
	should.Refuse(source.SetReceiver())(t, ethernet.ErrInUse, "a second source")
	must.OK(t, flow.SetVectorHandler(frames, mangle, nil))
	must.OK(t, sink.SetSender(frames))
	should.Fail(t, sink.SetSender(frames), ethernet.ErrInUse, "a second sink")

	ctx, stop := context.WithCancel(t.Context())
	started, ended := make(chan struct{}), make(chan error)
	go func() { ended <- firewall.Run(ctx, func() { close(started) }) }()
	defer func() {
		stop()
		should.OK(t, <-ended)
	}()
	select {
	case <-started:
	case <-time.After(timeout):
		t.Fatal("nff-go does not start")
	}
	deliver := func(t *testing.T, number, what int) {
		t.Helper()
		b := frame(number, what)
		until(t, fmt.Sprintf("there is room for frame %d", number), func() bool { return from.Deliver(0, b, 0, 0, 0) })
	}

	t.Run("order", func(t *testing.T) {
		const count = 100_000
		for i := range count {
			deliver(t, i, pass)
		}
		until(t, "all frames were sent", func() bool { return sent.count() == count })
		for i, b := range sent.frames {
			must.Be(t, string(b), string(frame(i, pass)), "frame %d", i)
		}
		should.Be(t, source.Stats(), (nffgo.Counters{Received: count}), "source")
		should.Be(t, sink.Stats(), (nffgo.Counters{Sent: count}), "sink")
	})
	t.Run("a sink that stands still", func(t *testing.T) {
		before, counted := sent.count(), sink.Stats()
		to.With(func() { held = true })
		count := 0
		for last := time.Now(); time.Since(last) < time.Second/4; {
			if from.Deliver(0, frame(count, pass), 0, 0, 0) {
				last = time.Now()
				count++
			} else {
				time.Sleep(time.Millisecond)
			}
		}
		to.With(func() {
			held = false
			to.Write(fakeigb.TDT, tail)
		})
		until(t, "all frames were sent", func() bool {
			c := sink.Stats()
			return sent.count()-before == count && c.Sent-counted.Sent == uint64(count)
		})
		for i, b := range sent.frames[before:] {
			must.Be(t, string(b), string(frame(i, pass)), "frame %d", i)
		}
	})
	t.Run("bad frames", func(t *testing.T) {
		before, counted := sent.count(), sink.Stats()
		for i := range 999 {
			deliver(t, i, i%3)
		}
		until(t, "all frames are counted", func() bool { c := sink.Stats(); return c.Sent+c.Bad-counted.Sent-counted.Bad == 999 })
		if c := sink.Stats(); c.Bad != 666 || c.Unsent != 0 || sent.count() != before+333 || sink.Err() != nil {
			t.Errorf("%+v, %v", c, sink.Err())
		}
	})
	t.Run("a sink that is closed", func(t *testing.T) {
		before := sink.Stats()
		must.OK(t, out.Close())
		for i := range 100 {
			deliver(t, i, pass)
		}
		until(t, "frames are counted", func() bool { c := sink.Stats(); return c.Sent+c.Unsent-before.Sent == 100 })
		if err := sink.Err(); !errors.Is(err, ethernet.ErrClosed) || source.Err() != nil {
			t.Errorf("%v, and the source: %v", err, source.Err())
		}
	})
	t.Run("a source that is closed", func(t *testing.T) {
		must.OK(t, in.Close())
		until(t, "it is noticed", func() bool { return errors.Is(source.Err(), ethernet.ErrClosed) })
	})
}
