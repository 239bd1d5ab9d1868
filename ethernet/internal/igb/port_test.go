package igb_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/fakeigb"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ethernet"
)

var own = ethernet.MAC{2, 0, 0, 0, 0, 1}

func TestOpen(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	pool := porttest.NewPool(t, ethernet.PoolOptions{})
	p := open(t, d, ethernet.Options{Pool: pool})
	i := p.Info()
	if i.Device != "fake:" || i.Driver != "igb" || i.Model != "82576" || !i.Tested || i.MAC != own || i.Options.MTU != 1500 || i.Vectors != 0 {
		t.Errorf("info %+v", i)
	}
	if p.Queue(-1) != nil || p.Queue(1) != nil || p.Queue(0) == nil {
		t.Error("queues")
	}
	link, err := ethernet.WaitLink(contextFor(t), p)
	if err != nil || link != (ethernet.Link{Up: true, Speed: 1000, FullDuplex: true}) {
		t.Errorf("link %+v, %v", link, err)
	}
	d.SetLink(false)
	if link, err := p.Link(); err != nil || link.Up {
		t.Errorf("link %+v, %v", link, err)
	}
	if err := pool.Close(); !errors.Is(err, ethernet.ErrInUse) {
		t.Errorf("close of a pool in use: %v", err)
	}
	for range 2 {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	}
	if n := pool.Free(); n != 4096 {
		t.Errorf("%d buffers are back", n)
	}
	// Everything says so from now on.
	_, lerr := p.Link()
	_, rerr := p.Queue(0).Receive(make([]ethernet.Frame, 1))
	_, serr := p.Queue(0).Send(make([]ethernet.Frame, 1))
	_, uerr := p.Queue(0).Unsent()
	for _, err := range []error{lerr, rerr, serr, uerr, p.Queue(0).Wait(t.Context()), p.SetMAC(own), p.SetPromiscuous(true), p.Restart(t.Context())} {
		if !errors.Is(err, ethernet.ErrClosed) {
			t.Errorf("after Close: %v", err)
		}
	}
	p.Stats()
}

func TestReceive(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	p := open(t, d, ethernet.Options{ReceiveDescriptors: 64})
	if _, err := ethernet.WaitLink(contextFor(t), p); err != nil {
		t.Fatal(err)
	}
	// More than the ring holds, several times around, in bursts of all sizes.
	bytesWant := uint64(0)
	count := 0
	for round := range 40 {
		var want [][]byte
		for i := range round + 1 {
			want = append(want, porttest.FrameTo(own, 60+(round*41+i)%1459))
			bytesWant += uint64(len(want[i]))
			if !d.Arrive(want[i]) {
				t.Fatalf("frame %d of round %d was not taken", i, round)
			}
		}
		frames, got := porttest.ReceiveAll(t, p.Queue(0))
		porttest.Same(t, want, got)
		for _, f := range frames {
			if f.Offset != 64 || f.Flags != 0 {
				t.Errorf("frame %+v", f)
			}
		}
		count += len(frames)
	}
	c := p.Stats()
	if q := c.Queues[0]; q.ReceivedFrames != uint64(count) || q.ReceivedBytes != bytesWant {
		t.Errorf("counted %d frames and %d bytes, want %d and %d", q.ReceivedFrames, q.ReceivedBytes, count, bytesWant)
	}
	if c.Device == nil || c.Device.ReceivedFrames != uint64(count) {
		t.Errorf("the device counted %+v", c.Device)
	}
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
	if taken != 63 {
		t.Errorf("%d frames were taken, want 63", taken)
	}
	if frames, _ := porttest.ReceiveAll(t, p.Queue(0)); len(frames) != taken {
		t.Errorf("%d frames came", len(frames))
	}
	if c := p.Stats(); c.Device == nil || c.Device.Missed != 37 {
		t.Errorf("missed: %+v, want 37", c.Device)
	}
}

func TestSend(t *testing.T) {
	d := newFake(t, fakeigb.Options{})
	var got [][]byte
	d.OnSend = func(s fakeigb.Sent) { got = append(got, s.Bytes) }
	pool := porttest.NewPool(t, ethernet.PoolOptions{Buffers: 256})
	p := open(t, d, ethernet.Options{Pool: pool, ReceiveDescriptors: 64, SendDescriptors: 64})
	q := p.Queue(0)
	var want [][]byte
	total := uint64(0)
	for round := range 50 {
		frames := make([]ethernet.Frame, 1+round)
		if n := q.Cache().Alloc(frames); n != len(frames) {
			t.Fatalf("round %d: %d buffers", round, n)
		}
		for i := range frames {
			data := porttest.FrameTo(own, 14+(round*53+i*7)%1505)
			frames[i].Length = uint16(len(data))
			copy(pool.Bytes(frames[i]), data)
			want = append(want, data)
			total += uint64(len(data))
		}
		for len(frames) > 0 {
			n, err := q.Send(frames)
			if err != nil {
				t.Fatal(err)
			}
			frames = frames[n:]
		}
	}
	porttest.Same(t, want, got)
	if n, err := q.Unsent(); n != 0 || err != nil {
		t.Errorf("%d unsent, %v", n, err)
	}
	c := p.Stats()
	if q := c.Queues[0]; q.SentFrames != uint64(len(want)) || q.SentBytes != total {
		t.Errorf("counted %+v", q)
	}
	if c.Device.SentFrames != uint64(len(want)) {
		t.Errorf("the device counted %+v", c.Device)
	}
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
		if n != size || err != nil {
			t.Fatalf("received %d, %v", n, err)
		}
		if n, err = q.Send(frames[:size]); n != size || err != nil {
			t.Fatalf("sent %d, %v", n, err)
		}
		after := d.Log()
		if after.Reads != before.Reads || after.Writes-before.Writes != 2 {
			t.Errorf("bursts of %d: %d reads and %d writes, want 0 and 2", size, after.Reads-before.Reads, after.Writes-before.Writes)
		}
	}
	before := d.Log()
	_, _ = q.Send(nil)
	if n, _ := q.Receive(nil); n != 0 {
		t.Error("received without room")
	}
	if after := d.Log(); after.Writes != before.Writes {
		t.Error("an empty burst writes a tail")
	}
}

func TestNoAllocation(t *testing.T) {
	d := newFake(t, fakeigb.Options{Mapped: true})
	p := open(t, d, ethernet.Options{})
	q := p.Queue(0)
	frames := make([]ethernet.Frame, 32)
	n := testing.AllocsPerRun(200, func() {
		d.Fill(0, 60, 32)
		n, _ := q.Receive(frames)
		n, _ = q.Send(frames[:n])
		q.Cache().Free(frames[n:])
		d.Drain(0)
	})
	if n != 0 {
		t.Errorf("%v allocations", n)
	}
	if c := p.Stats().Queues[0]; c.SentFrames < 6000 {
		t.Errorf("counted %+v", c)
	}
}
