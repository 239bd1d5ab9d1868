package igb_test

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/fakeigb"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// TestNoInterrupt has an interrupt never come: frames are found all the same.
func TestNoInterrupt(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	d.OnWrite = func(offset uint64, _ uint32) bool { return offset == fakeigb.EIMS }
	p := open(t, d, ethernet.Options{Interrupts: true})
	for range 3 {
		start := time.Now()
		go func() {
			time.Sleep(time.Millisecond)
			d.Arrive(porttest.FrameTo(own, 60))
		}()
		porttest.Eventually(t, "a frame comes", func() bool {
			if err := p.Queue(0).Wait(contextFor(t)); err != nil {
				t.Fatal(err)
			}
			frames, _ := porttest.ReceiveAll(t, p.Queue(0))
			return len(frames) == 1
		})

		t.Logf("after %v", time.Since(start))
	}
	if n := p.Stats().Queues[0].Interrupts; n != 0 {
		t.Errorf("%d interrupts", n)
	}
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
		porttest.Eventually(t, "an interrupt", func() bool {
			go d.Deliver(i, porttest.FrameTo(own, 60), 0, 0, 0)
			if err := p.Queue(i).Wait(contextFor(t)); err != nil {
				t.Fatal(err)
			}
			porttest.ReceiveAll(t, p.Queue(i))
			return p.Stats().Queues[i].Interrupts > 0
		})

		d.With(func() {
			if v := d.Get(fakeigb.EITR + 4*uint64(i)); v&0x7ffc != 1000<<2 {
				t.Errorf("moderation of vector %d is %#x", i, v)
			}
		})
	}
}
