package igb_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/fakeigb"
)

func TestWait(t *testing.T) {
	for _, interrupts := range []bool{false, true} {
		d := newFake(t, fakeigb.Options{})
		p := open(t, d, ethernet.Options{Interrupts: interrupts})
		q := p.Queue(0)
		for i := range 50 {
			go func() {
				time.Sleep(time.Duration(i%3) * time.Millisecond)
				d.Arrive(frame(own, 60+i))
			}()
			var data [][]byte
			for len(data) == 0 {
				if err := q.Wait(contextFor(t)); err != nil {
					t.Fatal(err)
				}
				_, data = receiveAll(t, p, 0)
			}
			if len(data) != 1 || len(data[0]) != 60+i {
				t.Fatalf("got %d frames", len(data))
			}
		}
		if n := p.Stats().Queues[0].Interrupts; n > 0 != interrupts {
			t.Errorf("%d interrupts", n)
		}
		over, cancel := context.WithCancel(t.Context())
		cancel()
		if err := q.Wait(over); !errors.Is(err, context.Canceled) {
			t.Errorf("context that is over: %v", err)
		}
	}
}

// TestNoInterrupt has an interrupt never come: frames are found all the same.
func TestNoInterrupt(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	d.OnWrite = func(offset uint64, _ uint32) bool { return offset == fakeigb.EIMS }
	p := open(t, d, ethernet.Options{Interrupts: true})
	for range 3 {
		start := time.Now()
		go func() {
			time.Sleep(time.Millisecond)
			d.Arrive(frame(own, 60))
		}()
		eventually(t, "a frame comes", func() bool {
			if err := p.Queue(0).Wait(contextFor(t)); err != nil {
				t.Fatal(err)
			}
			frames, _ := receiveAll(t, p, 0)
			return len(frames) == 1
		})
		t.Logf("after %v", time.Since(start))
	}
	if n := p.Stats().Queues[0].Interrupts; n != 0 {
		t.Errorf("%d interrupts", n)
	}
}

// TestInterruptStorm has interrupts come all the time: Wait does not spin on them.
func TestInterruptStorm(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	p := open(t, d, ethernet.Options{Interrupts: true})
	stop := make(chan struct{})
	var storm sync.WaitGroup
	storm.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
				d.With(func() { d.Interrupt(0) })
			}
		}
	})
	const waits = 200
	start := time.Now()
	for range waits {
		if err := p.Queue(0).Wait(contextFor(t)); err != nil {
			t.Fatal(err)
		}
	}
	// All but the first few are as long as the pauses between looks without interrupts.
	if d := time.Since(start); d < (waits-20)*50*time.Microsecond {
		t.Errorf("%d waits took %v", waits, d)
	}
	d.Arrive(frame(own, 60))
	eventually(t, "a frame comes", func() bool {
		if err := p.Queue(0).Wait(contextFor(t)); err != nil {
			t.Fatal(err)
		}
		frames, _ := receiveAll(t, p, 0)
		return len(frames) == 1
	})
	close(stop)
	storm.Wait()
}

// TestFewVectors asks for interrupts of a device that has not enough: it is polled.
func TestFewVectors(t *testing.T) {
	d := newFake(t, fakeigb.Options{Vectors: 3})
	p := open(t, d, ethernet.Options{Interrupts: true, Queues: 4, ReceiveDescriptors: 64})
	if n := p.Info().Vectors; n != 0 {
		t.Errorf("%d vectors", n)
	}
	if err := p.Queue(3).Wait(contextFor(t)); err != nil {
		t.Error(err)
	}
}

// TestVectorsOfQueues has each queue woken by its own vector.
func TestVectorsOfQueues(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	p := open(t, d, ethernet.Options{Interrupts: true, Queues: 16, ReceiveDescriptors: 64, Moderation: time.Millisecond})
	if n := p.Info().Vectors; n != 16 {
		t.Fatalf("%d vectors", n)
	}
	for i := range 16 {
		eventually(t, "an interrupt", func() bool {
			go d.Deliver(i, frame(own, 60), 0, 0, 0)
			if err := p.Queue(i).Wait(contextFor(t)); err != nil {
				t.Fatal(err)
			}
			receiveAll(t, p, i)
			return p.Stats().Queues[i].Interrupts > 0
		})
		d.With(func() {
			if v := d.Get(fakeigb.EITR + 4*uint64(i)); v&0x7ffc != 1000<<2 {
				t.Errorf("moderation of vector %d is %#x", i, v)
			}
		})
	}
}

// TestConcurrently receives and sends on four queues, asks and changes things, and
// restarts the port, all at once; then closes it while they go on.
func TestConcurrently(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	pool := porttest.NewPool(t, ethernet.PoolOptions{})
	p := open(t, d, ethernet.Options{Pool: pool, Queues: 4, ReceiveDescriptors: 64, SendDescriptors: 64, Interrupts: true})
	var all sync.WaitGroup
	ctx, cancel := context.WithCancel(contextFor(t))
	for i := range 4 {
		all.Go(func() {
			q := p.Queue(i)
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
				if n == 0 {
					if err := q.Wait(ctx); err != nil && !errors.Is(err, ethernet.ErrClosed) && !errors.Is(err, context.Canceled) {
						t.Error(err)
					}
				}
			}
		})
	}
	all.Go(func() {
		for i := 0; ctx.Err() == nil; i++ {
			d.Deliver(i%4, frame(own, 60+i%1000), 0, 0, 0)
		}
	})
	for i := range 20 {
		if err := p.SetPromiscuous(i%2 == 0); err != nil {
			t.Error(err)
		}
		if _, err := p.Link(); err != nil {
			t.Error(err)
		}
		p.Stats()
		if i%5 == 4 {
			if err := p.Restart(ctx); err != nil {
				t.Error(err)
			}
		}
	}
	if err := p.Close(); err != nil {
		t.Error(err)
	}
	cancel()
	all.Wait()
	if n := pool.Free(); n != 4096 {
		t.Errorf("%d buffers are back", n)
	}
}
