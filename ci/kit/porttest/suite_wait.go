package porttest

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// wait waits for frames, polling and by interrupts.
func (s suite) wait(t *testing.T) {
	for _, interrupts := range []bool{false, true} {
		d, p := s.open(t, ethernet.Options{Interrupts: interrupts})
		q := p.Queue(0)
		for i := range 50 {
			var arrival sync.WaitGroup
			arrival.Go(func() {
				time.Sleep(time.Duration(i%3) * time.Millisecond)
				d.Arrive(FrameTo(Own, 60+i))
			})
			var data [][]byte
			for len(data) == 0 {
				must.OK(t, q.Wait(Context(t)))
				_, data = ReceiveAll(t, q)
			}
			arrival.Wait()
			must.Hold(t, len(data) == 1 && len(data[0]) == 60+i, "got %d frames", len(data))
		}
		n := p.Stats().Queues[0].Interrupts
		should.Hold(t, n > 0 == interrupts, "%d interrupts", n)
		over, cancel := context.WithCancel(t.Context())
		cancel()
		should.Fail(t, q.Wait(over), context.Canceled, "context that is over")
	}
}

// storm has interrupts come all the time: Wait does not spin on them.
func (s suite) storm(t *testing.T) {
	d, p := s.open(t, ethernet.Options{Interrupts: true})
	stop := make(chan struct{})
	var storm sync.WaitGroup
	storm.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				d.Raise()
			}
		}
	})
	const waits = 200
	start := time.Now()
	for range waits {
		must.OK(t, p.Queue(0).Wait(Context(t)))
	}
	// All but the first few are as long as the pauses between looks without interrupts.
	if d := time.Since(start); d < (waits-20)*50*time.Microsecond {
		t.Errorf("%d waits took %v", waits, d)
	}
	d.Arrive(FrameTo(Own, 60))
	waittest.Until(t, "a frame comes", func() bool {
		must.OK(t, p.Queue(0).Wait(Context(t)))
		frames, _ := ReceiveAll(t, p.Queue(0))
		return len(frames) == 1
	})
	close(stop)
	storm.Wait()
}

// concurrently receives and sends on four queues, asks and changes things, and restarts the port, all
// at once; then closes it while they go on.
func (s suite) concurrently(t *testing.T) {
	pool := NewPool(t, ethernet.PoolOptions{})
	d, p := s.open(t, ethernet.Options{Pool: pool, Queues: 4, ReceiveDescriptors: 64, SendDescriptors: 64, Interrupts: true})
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(Context(t))
	for i := range 4 {
		all.Go(func() { echo(ctx, t, p.Queue(i)) })
	}
	all.Go(func() {
		b := FrameTo(Own, 1000)
		b[12], b[13], b[14], b[23] = 8, 0, 0x45, 17
		for i := 0; ctx.Err() == nil; i++ {
			b[33] = byte(i) // flows of IPv4
			d.Arrive(b[:60+i%900])
		}
	})
	for i := range 20 {
		should.OK(t, p.SetPromiscuous(i%2 == 0))
		must.Get(p.Link())(t)
		p.Stats()
		if i%5 == 4 {
			should.OK(t, p.Restart(ctx))
		}
	}
	should.OK(t, p.Close())
	cancel()
	all.Wait()
	should.Be(t, pool.Free(), 4096, "buffers are back")
}

// echo sends what a queue receives until it is closed.
func echo(ctx context.Context, t *testing.T, q ethernet.Queue) {
	frames := make([]ethernet.Frame, 32)
	for {
		n, err := q.Receive(frames)
		sent := 0
		if err == nil && n > 0 {
			sent, err = q.Send(frames[:n])
		}
		q.Cache().Free(frames[sent:n])
		if errors.Is(err, ethernet.ErrClosed) {
			return
		}
		if err != nil {
			t.Error(err)
			return
		}
		if n > 0 {
			continue
		}
		if err := q.Wait(ctx); err != nil && !errors.Is(err, ethernet.ErrClosed) && !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
}

// restartBesideCache restarts a port while its queue's user takes and gives buffers: each stays in
// one hand, and none is lost.
func (s suite) restartBesideCache(t *testing.T) {
	pool := NewPool(t, ethernet.PoolOptions{Buffers: 1024})
	_, p := s.open(t, ethernet.Options{Pool: pool, ReceiveDescriptors: 64, SendDescriptors: 64})
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
		}
	}()
	for range 200 {
		should.OK(t, p.Restart(Context(t)))
	}
	should.OK(t, p.Close())
	should.Fail(t, <-ended, ethernet.ErrClosed)
	should.Be(t, pool.Free(), 1024, "of 1024 buffers are back")
}

// linkFlaps sends and receives while the link goes up and down.
func (s suite) linkFlaps(t *testing.T) {
	d, p := s.open(t, ethernet.Options{})
	sent := 0
	d.Sends(func([]byte) { sent++ })
	for i := range 400 {
		d.SetLink(i%3 == 0)
		SendOne(t, p.Queue(0), FrameTo(Own, 60))
		d.Arrive(FrameTo(Own, 60))
		link, err := p.Link()
		must.Hold(t, err == nil && link.Up == (i%3 == 0), "link %+v, %v", link, err)
		frames, _ := ReceiveAll(t, p.Queue(0))
		must.Hold(t, len(frames) == 1, "received %d", len(frames))
	}
	should.Be(t, sent, 400)
}

// standsStill makes a send ring stand still: it is restarted, unless there is no link.
func (s suite) standsStill(t *testing.T) {
	const soon = 40 * time.Millisecond
	pool := NewPool(t, ethernet.PoolOptions{Buffers: 256})
	d, p := s.open(t, ethernet.Options{Pool: pool, ReceiveDescriptors: 64, SendDescriptors: 64, Timeout: soon})
	must.Get(ethernet.WaitLink(Context(t), p))(t)
	end := d.StandStill()
	restarts := func() uint64 { return p.Stats().Queues[0].Restarts }
	fill := func(enough func() bool) {
		t.Helper()
		waittest.Until(t, "enough", func() bool {
			must.Get(TrySend(p.Queue(0), FrameTo(Own, 60), nil))(t)
			return enough()
		})
	}
	fill(func() bool { return restarts() > 1 })
	c := p.Stats().Queues[0]
	should.Hold(t, c.Lost != 0, "counted %+v", c)
	// Without a link nothing can be sent: that is no fault of the ring.
	d.SetLink(false)
	before := restarts()
	until := time.Now().Add(3 * soon)
	fill(func() bool { return time.Now().After(until) })
	n := restarts()
	should.Hold(t, n <= before+1, "%d restarts without a link", n-before)
	d.SetLink(true)
	end()
	must.OK(t, p.Restart(Context(t)))
	SendOne(t, p.Queue(0), FrameTo(Own, 60))
	should.Give(p.Queue(0).Unsent())(t, 0, "unsent")
}
