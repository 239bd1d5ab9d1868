package ethernet_test

import (
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/vfio"
)

func TestPoolConfig(t *testing.T) {
	small := must.Get(vfio.AllocMemory(4096, vfio.MemoryOptions{}))(t)
	defer small.Close()
	for _, tt := range []struct {
		config ethernet.PoolOptions
		field  string
	}{
		{ethernet.PoolOptions{Buffers: -1}, "Buffers"},
		{ethernet.PoolOptions{Buffers: 1<<20 + 1}, "Buffers"},
		{ethernet.PoolOptions{Headroom: -2}, "Headroom"},
		{ethernet.PoolOptions{Headroom: 63}, "Headroom"},
		{ethernet.PoolOptions{Headroom: 1026}, "Headroom"},
		{ethernet.PoolOptions{Size: 255}, "Size"},
		{ethernet.PoolOptions{Size: 65536 - 64}, "Size"},
		{ethernet.PoolOptions{Buffers: 2, Memory: small}, "Memory"},
	} {
		_, err := ethernet.NewPool(tt.config)
		var c *ethernet.ConfigError
		if !errors.Is(err, ethernet.ErrConfig) || !errors.As(err, &c) || c.Field != "PoolOptions."+tt.field || !strings.Contains(err.Error(), tt.field) {
			t.Errorf("%+v: %v, want one about %s", tt.config, err, tt.field)
		}
	}
	p := porttest.NewPool(t, ethernet.PoolOptions{Buffers: 1, Memory: small})
	if c := p.Options(); c.Headroom != 64 || c.Size != 2048 || p.Stride() != 2112 {
		t.Errorf("defaults are %+v, stride %d", c, p.Stride())
	}
}

func TestPoolBytes(t *testing.T) {
	p := porttest.NewPool(t, ethernet.PoolOptions{Buffers: 3, Headroom: 16, Size: 256})
	must.Be(t, p.Stride(), 320, "stride")
	for _, tt := range []struct {
		frame ethernet.Frame
		want  int // -1: not in its buffer
	}{
		{ethernet.Frame{}, 0},
		{ethernet.Frame{Buffer: 2, Offset: 16, Length: 256}, 256},
		{ethernet.Frame{Buffer: 2, Offset: 0, Length: 320}, 320},
		{ethernet.Frame{Buffer: 2, Offset: 1, Length: 320}, -1},
		{ethernet.Frame{Buffer: 2, Offset: 320}, 0},
		{ethernet.Frame{Buffer: 2, Offset: 321}, -1},
		{ethernet.Frame{Buffer: 0, Offset: 65535, Length: 65535}, -1},
		{ethernet.Frame{Buffer: 3}, -1},
		{ethernet.Frame{Buffer: 1<<32 - 1}, -1},
	} {
		b := p.Bytes(tt.frame)
		if got := len(b); b == nil && tt.want != -1 || b != nil && got != tt.want {
			t.Errorf("%+v: %d bytes (nil: %t), want %d", tt.frame, got, b == nil, tt.want)
		}
		if cap(b) > p.Stride() || p.Contains(&tt.frame) != (tt.want >= 0) {
			t.Errorf("%+v: capacity %d, contained: %t", tt.frame, cap(b), p.Contains(&tt.frame))
		}
	}
	// Each buffer is where the device is told that it is, and none overlaps another.
	for i := range uint32(3) {
		for j := range p.Buffer(i) {
			p.Buffer(i)[j] = byte(i + 1)
		}
	}
	for i, b := range p.Memory().Bytes()[:3*320] {
		must.Be(t, int(b), i/320+1, "byte %d belongs to buffer %d", i, int(b)-1)
	}
}

func TestPoolClose(t *testing.T) {
	p := porttest.NewPool(t, ethernet.PoolOptions{Buffers: 8})
	must.OK(t, p.Hold())
	should.Fail(t, p.Close(), ethernet.ErrInUse, "close of a pool in use")
	p.Release()
	for range 2 {
		should.OK(t, p.Close())
	}
	should.Fail(t, p.Hold(), ethernet.ErrClosed, "hold of a closed pool")
	should.Hold(t, p.Buffer(0) == nil && p.Bytes(ethernet.Frame{}) == nil, "a closed pool still has bytes")
	own := must.Get(vfio.AllocMemory(1<<16, vfio.MemoryOptions{}))(t)
	p = porttest.NewPool(t, ethernet.PoolOptions{Buffers: 8, Memory: own})
	err := p.Close()
	should.Hold(t, err == nil && own.Bytes() != nil, "memory of the caller was closed, or %v", err)
	should.OK(t, own.Close())
}

// TestCache has several goroutines take and give buffers: none is ever in two hands.
func TestCache(t *testing.T) {
	const buffers, workers = 300, 4
	p := porttest.NewPool(t, ethernet.PoolOptions{Buffers: buffers, Size: 256})
	owner := make([]sync.Mutex, buffers)
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			c := p.NewCache()
			defer c.Close()
			frames := make([]ethernet.Frame, 48)
			for round := range 2000 {
				n := c.Alloc(frames[:1+round%len(frames)])
				for _, f := range frames[:n] {
					if !owner[f.Buffer].TryLock() {
						t.Errorf("buffer %d was given out twice", f.Buffer)
						return
					}
					should.Be(t, f, ethernet.Frame{Buffer: f.Buffer, Offset: 64})
				}
				for _, f := range frames[:n] {
					owner[f.Buffer].Unlock()
				}
				c.Free(frames[:n])
			}
		})
	}
	all.Wait()
	should.Be(t, p.Free(), buffers, "buffers are left")
}

// TestCacheGiveAll makes a driver give buffers back in the background, as one does that
// restarts a ring, while the queue's user takes and gives: none gets lost or doubled.
func TestCacheGiveAll(t *testing.T) {
	const buffers, rounds = 64, 30_000
	p := porttest.NewPool(t, ethernet.PoolOptions{Buffers: buffers, Size: 256})
	c := p.NewCache()
	owner := make([]sync.Mutex, buffers)
	user := func(take func() []ethernet.Frame, give func([]ethernet.Frame)) {
		for range rounds {
			frames := take()
			for _, f := range frames {
				if !owner[f.Buffer].TryLock() {
					t.Errorf("buffer %d was given out twice", f.Buffer)
					return
				}
			}
			for _, f := range frames {
				owner[f.Buffer].Unlock()
			}
			give(frames)
		}
	}
	var all sync.WaitGroup
	all.Go(func() {
		frames := make([]ethernet.Frame, 7)
		user(func() []ethernet.Frame { return frames[:c.Alloc(frames)] }, c.Free)
	})
	all.Go(func() {
		own := p.NewCache()
		defer own.Close()
		frames, list := make([]ethernet.Frame, 5), make([]uint32, 0, 5)
		user(func() []ethernet.Frame { return frames[:own.Alloc(frames)] }, func(frames []ethernet.Frame) {
			list = list[:0]
			for _, f := range frames {
				list = append(list, f.Buffer)
			}
			c.GiveAll(list)
		})
	})
	all.Wait()
	c.Close()
	should.Be(t, p.Free(), buffers, "buffers are left")
}

func TestCacheLimits(t *testing.T) {
	p := porttest.NewPool(t, ethernet.PoolOptions{Buffers: 20, Size: 256})
	c := p.NewCache()
	frames := make([]ethernet.Frame, 21)
	must.Be(t, c.Alloc(frames), 20, "buffers")
	_, ok := c.Take()
	should.Hold(t, !ok, "a buffer more than there are")
	// What was given back twice, or is no buffer, does not make the pool grow.
	c.Free(frames[:20])
	c.Free(frames[:20])
	c.Give(20)
	c.Give(1<<32 - 1)
	c.Close()
	should.Be(t, p.Free(), 20, "buffers are free")
	// A closed cache can be used, and keeps nothing.
	if n := c.Alloc(frames[:3]); n != 3 || p.Free() != 17 {
		t.Errorf("%d buffers, and %d are free, want 17", n, p.Free())
	}
	if c.Free(frames[:3]); p.Free() != 20 {
		t.Errorf("%d buffers are free, want 20", p.Free())
	}
}

func TestCacheAllocates(t *testing.T) {
	c := porttest.NewPool(t, ethernet.PoolOptions{}).NewCache()
	defer c.Close()
	frames := make([]ethernet.Frame, 1000)
	should.Be(t, testing.AllocsPerRun(100, func() { c.Free(frames[:c.Alloc(frames)]) }), 0, "allocations")
}
