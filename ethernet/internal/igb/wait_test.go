package igb_test

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/fakeigb"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ethernet"
)

// TestNoInterrupt makes an interrupt never come: frames are found all the same.
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
		waittest.Until(t, "a frame comes", func() bool {
			must.OK(t, p.Queue(0).Wait(contextFor(t)))
			frames, _ := porttest.ReceiveAll(t, p.Queue(0))
			return len(frames) == 1
		})

		t.Logf("after %v", time.Since(start))
	}
	should.Be(t, p.Stats().Queues[0].Interrupts, 0, "interrupts")
}

// TestFewVectors asks for interrupts of a device that has not enough: it is polled.
func TestFewVectors(t *testing.T) {
	d := newFake(t, fakeigb.Options{Vectors: 3})
	p := open(t, d, ethernet.Options{Interrupts: true, Queues: 4, ReceiveDescriptors: 64})
	should.Be(t, p.Info().Vectors, 0, "vectors")
	should.OK(t, p.Queue(3).Wait(contextFor(t)))
}

// TestVectorsOfQueues has each queue woken by its own vector.
func TestVectorsOfQueues(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	p := open(t, d, ethernet.Options{Interrupts: true, Queues: 16, ReceiveDescriptors: 64, Moderation: time.Millisecond})
	must.Be(t, p.Info().Vectors, 16, "vectors")
	for i := range 16 {
		waittest.Until(t, "an interrupt", func() bool {
			go d.Deliver(i, porttest.FrameTo(own, 60), 0, 0, 0)
			must.OK(t, p.Queue(i).Wait(contextFor(t)))
			porttest.ReceiveAll(t, p.Queue(i))
			return p.Stats().Queues[i].Interrupts > 0
		})

		d.With(func() {
			v := d.Get(fakeigb.EITR + 4*uint64(i))
			should.Hold(t, v&0x7ffc == 1000<<2, "moderation of vector %d is %#x", i, v)
		})
	}
}
