package igb_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/fakeigb"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
)

var own = ethernet.MAC{2, 0, 0, 0, 0, 1}

func TestOpen(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	p := open(t, d, ethernet.Options{})
	i := p.Info()
	if i.Device != "fake:" || i.Driver != "igb" || i.Model != "82576" || !i.Tested || i.MAC != own || i.Options.MTU != 1500 || i.Vectors != 0 {
		t.Errorf("info %+v", i)
	}
	should.Give(ethernet.WaitLink(contextFor(t), p))(t, ethernet.Link{Up: true, Speed: 1000, FullDuplex: true}, "link")
}

// TestReceiveFull has more frames arrive than there are descriptors: the rest is counted.
func TestReceiveFull(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	p := open(t, d, ethernet.Options{ReceiveDescriptors: 64})
	taken := 0
	for range 100 {
		if d.Arrive(porttest.FrameTo(own, 60)) {
			taken++
		}
	}
	should.Be(t, taken, 63, "frames were taken")
	frames, _ := porttest.ReceiveAll(t, p.Queue(0))
	should.Hold(t, len(frames) == taken, "%d frames came", len(frames))
	c := p.Stats()
	should.Hold(t, c.Device != nil && c.Device.Missed == 37, "missed: %+v, want 37", c.Device)
}

// TestTailWrites counts register accesses: one for a burst, however long.
func TestTailWrites(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	p := open(t, d, ethernet.Options{})
	q := p.Queue(0)
	frames := make([]ethernet.Frame, 64)
	for range 64 {
		d.Arrive(porttest.FrameTo(own, 60))
	}
	for _, size := range []int{1, 8, 32} {
		before := d.Log()
		n, err := q.Receive(frames[:size])
		must.Give(n, err)(t, size)
		n, err = q.Send(frames[:size])
		must.Hold(t, n == size && err == nil, "sent %d, %v", n, err)
		after := d.Log()
		if after.Reads != before.Reads || after.Writes-before.Writes != 2 {
			t.Errorf("bursts of %d: %d reads and %d writes, want 0 and 2", size, after.Reads-before.Reads, after.Writes-before.Writes)
		}
	}
	before := d.Log()
	_, _ = q.Send(nil)
	n, _ := q.Receive(nil)
	should.Hold(t, n == 0, "received without room")
	after := d.Log()
	should.Hold(t, after.Writes == before.Writes, "an empty burst writes a tail")
}

func TestNoAllocation(t *testing.T) {
	d := newFake(t, fakeigb.Options{Mapped: true})
	p := open(t, d, ethernet.Options{})
	q := p.Queue(0)
	frames := make([]ethernet.Frame, 32)
	should.Be(t, testing.AllocsPerRun(200, func() {
		d.Fill(0, 60, 32)
		n, _ := q.Receive(frames)
		n, _ = q.Send(frames[:n])
		q.Cache().Free(frames[n:])
		d.Drain(0)
	}), 0, "allocations")
	c := p.Stats().Queues[0]
	should.Hold(t, c.SentFrames >= 6000, "counted %+v", c)
}
