package mqnic_test

import (
	"errors"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/fakemqnic"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ethernet"
)

var own = porttest.Own

// rings are those of one queue of 64 entries, its pool small so that a buffer that is lost is missed.
func rings(t testing.TB, c ethernet.Options) (*fakemqnic.Device, *ethernet.Pool, ethernet.Port) {
	t.Helper()
	d := newFake(t, fakemqnic.Options{})
	c.Pool = porttest.NewPool(t, ethernet.PoolOptions{Buffers: 200})
	c.ReceiveDescriptors, c.SendDescriptors = 64, 64
	return d, c.Pool, open(t, d, c)
}

// back closes a port, and checks that all buffers are back.
func back(t testing.TB, pool *ethernet.Pool, p ethernet.Port) {
	t.Helper()
	must.OK(t, p.Close())
	n, want := pool.Free(), pool.Options().Buffers
	should.Hold(t, n == want, "%d of %d buffers are back", n, want)
}

// TestBadLengths: frames whose length cannot be are dropped and counted, and the next good frame
// comes.
func TestBadLengths(t *testing.T) {
	for _, length := range []uint16{0, 13, 1519, 2048, 0xffff} {
		d, pool, p := rings(t, ethernet.Options{Promiscuous: true})
		for i := range uint64(150) {
			d.With(func() {
				index := d.Take(0, 0)
				d.Complete(0, 0, fakemqnic.Completion{Index: index, Length: length})
			})
			good := porttest.FrameTo(own, 100)
			d.Arrive(0, good)
			_, data := porttest.ReceiveAll(t, p.Queue(0))
			porttest.Same(t, [][]byte{good}, data)
			c := p.Stats().Queues[0]
			must.Hold(t, c.BadLengths == i+1 && c.ReceivedFrames == i+1, "length %d: counted %+v", length, c)
		}
		back(t, pool, p)
	}
}

// TestBadCompletions makes the device report what it was not given. The queue is restarted, and works
// again.
func TestBadCompletions(t *testing.T) {
	type completion = fakemqnic.Completion
	for _, tt := range []struct {
		name string
		cq   int
		list func(d *fakemqnic.Device) []completion
	}{
		{"receive: of another queue", 0, func(d *fakemqnic.Device) []completion { return []completion{{Queue: 7, Length: 60}} }},
		{"receive: twice", 0, func(d *fakemqnic.Device) []completion {
			c := completion{Index: d.Take(0, 0), Length: 60}
			return []completion{c, c}
		}},
		{"receive: twice, out of order", 0, func(d *fakemqnic.Device) []completion {
			c := completion{Index: 9, Length: 60}
			return []completion{c, c}
		}},
		{"send: of another queue", 1, func(d *fakemqnic.Device) []completion { return []completion{{Queue: 1}} }},
		{"send: never given", 1, func(d *fakemqnic.Device) []completion { return []completion{{Index: 3}} }},
		{"send: far outside", 1, func(d *fakemqnic.Device) []completion { return []completion{{Index: 0x8003}} }},
		{"send: twice", 1, func(d *fakemqnic.Device) []completion { return []completion{{Index: 1}, {Index: 1}} }},
		{"send: all bits", 1, func(d *fakemqnic.Device) []completion { return []completion{{Queue: 0xffff, Index: 0xffff}} }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, pool, p := rings(t, ethernet.Options{Promiscuous: true})
			q := p.Queue(0)
			end := nic{d}.StandStill()
			for range 3 {
				porttest.SendOne(t, q, porttest.FrameTo(own, 60))
			}
			d.With(func() {
				for _, c := range tt.list(d) {
					d.Complete(0, tt.cq, c)
				}
			})
			waittest.Until(t, "the queue is restarted", func() bool {
				frames := make([]ethernet.Frame, 32)
				n := must.Get(q.Receive(frames))(t)
				q.Cache().Free(frames[:n])
				must.Get(q.Unsent())(t)
				return p.Stats().Queues[0].Restarts == 1
			})
			end()
			c := p.Stats().Queues[0]
			should.Hold(t, c.Lost >= 2, "counted %+v", c)
			sent := 0
			nic{d}.Sends(func([]byte) { sent++ })
			for i := range 200 {
				porttest.SendOne(t, q, porttest.FrameTo(own, 60))
				d.Arrive(0, porttest.FrameTo(own, 60+i))
				frames, _ := porttest.ReceiveAll(t, q)
				must.Hold(t, len(frames) == 1, "received %d", len(frames))
			}
			should.Be(t, sent, 200)
			back(t, pool, p)
		})
	}
}

// TestAlwaysBad: a queue that goes on to break the rules fails the port.
func TestAlwaysBad(t *testing.T) {
	d, _, p := rings(t, ethernet.Options{})
	var err error
	waittest.Until(t, "the port fails", func() bool {
		d.With(func() { d.Complete(0, 1, fakemqnic.Completion{Queue: 9}) })
		_, err = p.Queue(0).Unsent()
		return err != nil
	})
	should.Fail(t, err, ethernet.ErrProtocol)
	must.OK(t, p.Restart(contextFor(t)))
	porttest.SendOne(t, p.Queue(0), porttest.FrameTo(own, 60))
}

// TestOutOfOrder: completions may come in any order.
func TestOutOfOrder(t *testing.T) {
	d, pool, p := rings(t, ethernet.Options{Promiscuous: true})
	d.With(func() { d.Backward = true })
	q := p.Queue(0)
	var got [][]byte
	nic{d}.Sends(func(b []byte) { got = append(got, b) })
	frames := make([]ethernet.Frame, 64)
	for round := range 50 {
		n := 1 + round*7%64
		q.Cache().Alloc(frames[:n])
		for i := range frames[:n] {
			frames[i].Length = 60
		}
		must.Give(q.Send(frames[:n]))(t, n)
		must.Give(q.Unsent())(t, 0, "unsent")
		// Received ones, too: each is in its own buffer.
		d.With(func() {
			first := d.Take(0, 0)
			for range 4 {
				d.Take(0, 0)
			}
			for _, i := range []uint16{3, 1, 4, 0, 2} {
				d.Complete(0, 0, fakemqnic.Completion{Index: first + i, Length: 60 + i})
			}
		})
		received, err := q.Receive(frames)
		must.Hold(t, received == 5 && err == nil && frames[0].Length == 63 && frames[3].Length == 60, "received %d, %v", received, err)
		held := map[uint32]bool{}
		for _, f := range frames[:5] {
			held[f.Buffer] = true
		}
		must.Be(t, len(held), 5, "buffers")
		q.Cache().Free(frames[:5])
	}
	c := p.Stats().Queues[0]
	should.Hold(t, c.Restarts == 0, "counted %+v", c)
	back(t, pool, p)
}

// TestPhaseFlips: entries whose phase turns by itself are no frames.
func TestPhaseFlips(t *testing.T) {
	d, pool, p := rings(t, ethernet.Options{})
	frames := make([]ethernet.Frame, 8)
	for i := range 300 {
		d.With(func() { d.FlipPhase(0, i%2) })
		n, err := p.Queue(0).Receive(frames)
		if err != nil {
			break // the queue does it again and again, and so the port ends
		}
		p.Queue(0).Cache().Free(frames[:n])
		if _, err := p.Queue(0).Unsent(); err != nil {
			break
		}
	}
	back(t, pool, p)
}

// TestReceiveFull has more frames arrive than there are entries.
func TestReceiveFull(t *testing.T) {
	d, _, p := rings(t, ethernet.Options{})
	taken := 0
	for range 100 {
		if d.Arrive(0, porttest.FrameTo(own, 60)) {
			taken++
		}
	}
	frames, _ := porttest.ReceiveAll(t, p.Queue(0))
	should.Hold(t, taken == 64 && len(frames) == taken, "%d frames were taken, %d came", taken, len(frames))
}

// TestRegisterWrites counts register accesses: one for a burst of frames, however long, and one more
// each 32 frames for the completion queue.
func TestRegisterWrites(t *testing.T) {
	d := newFake(t, fakemqnic.Options{})
	p := open(t, d, ethernet.Options{})
	q := p.Queue(0)
	frames := make([]ethernet.Frame, 64)
	const bursts = 512
	for _, size := range []int{1, 8, 32} {
		before := d.Log()
		for range bursts {
			for range size {
				d.Arrive(0, porttest.FrameTo(own, 60))
			}
			n, err := q.Receive(frames[:size])
			must.Give(n, err)(t, size)
			n, err = q.Send(frames[:size])
			must.Hold(t, n == size && err == nil, "sent %d, %v", n, err)
		}
		after := d.Log()
		// Two completion queues, told each time that a quarter of their 1024 entries was used.
		most := 2*bursts + 2*(bursts*size/256+1)
		// The watch over the link reads and writes nothing else.
		writes := after.Writes - before.Writes
		should.Hold(t, writes <= most, "bursts of %d: %d writes, want %d", size, writes, most)
	}
	before := d.Log()
	_, _ = q.Send(nil)
	n, _ := q.Receive(nil)
	should.Hold(t, n == 0, "received without room")
	after := d.Log()
	should.Hold(t, after.Writes == before.Writes, "an empty burst writes a register")
}

// TestNoAllocation: the data path allocates nothing.
func TestNoAllocation(t *testing.T) {
	d := newFake(t, fakemqnic.Options{})
	p := open(t, d, ethernet.Options{Promiscuous: true})
	q := p.Queue(0)
	frames := make([]ethernet.Frame, 32)
	d.Quick = true
	defer func() { d.Quick = false }()
	allocations := testing.AllocsPerRun(200, func() {
		d.Fill(0, 0, 60, 32)
		n, _ := q.Receive(frames)
		n, _ = q.Send(frames[:n])
		q.Cache().Free(frames[n:])
		d.Drain(0, 0)
	})
	should.Hold(t, allocations == 0, "%v allocations", allocations)
	c := p.Stats().Queues[0]
	should.Hold(t, c.SentFrames >= 6000, "counted %+v", c)
}

// TestSlowQueues: queues that need long to end are waited for, however many reads that takes.
func TestSlowQueues(t *testing.T) {
	d, pool, p := rings(t, ethernet.Options{})
	reads := 0
	d.With(func() {
		d.OnRead = func(offset uint64, v uint32) uint32 {
			if offset == d.TX(0, 0)+8 && v&1 == 0 {
				if reads++; reads%100 != 0 {
					v |= 1 << 3
				}
			}
			return v
		}
	})
	must.OK(t, p.Restart(contextFor(t)))
	porttest.SendOne(t, p.Queue(0), porttest.FrameTo(own, 60))
	back(t, pool, p)
	should.Be(t, reads, 200, "reads")
}

// TestCannotBeStopped makes a transmit queue stand still that cannot be switched off: the port fails,
// and can be restarted.
func TestCannotBeStopped(t *testing.T) {
	d, _, p := rings(t, ethernet.Options{Timeout: soon})
	end := nic{d}.StandStill()
	d.With(func() { stuck(d, d.TX(0, 0), 1<<3) })
	var err error
	for start := time.Now(); err == nil && time.Since(start) < timeout; {
		_, err = porttest.TrySend(p.Queue(0), porttest.FrameTo(own, 60), nil)
	}
	must.Hold(t, errors.Is(err, ethernet.ErrNotReady), "got %v", err)
	end()
	d.With(func() { d.OnRead = nil })
	must.OK(t, p.Restart(contextFor(t)))
	porttest.SendOne(t, p.Queue(0), porttest.FrameTo(own, 60))
}

// TestNeedsReset: a NIC whose logic is gone says what to do, and comes back with it.
func TestNeedsReset(t *testing.T) {
	d, _, p := rings(t, ethernet.Options{})
	d.With(func() { d.OnRead = func(uint64, uint32) uint32 { return allOnes } })
	var err error
	waittest.Until(t, "the port fails", func() bool {
		_, err = p.Queue(0).Receive(nil)
		return err != nil
	})
	var e *ethernet.Error
	should.Hold(t, errors.Is(err, ethernet.ErrNeedsReset) && errors.As(err, &e) && e.Hint != "", "%v", err)
	d.With(func() { d.OnRead = nil })
	must.OK(t, p.Restart(contextFor(t)))
	porttest.SendOne(t, p.Queue(0), porttest.FrameTo(own, 60))
}

// FuzzCompletions makes the device report anything of its receive and transmit queue. Frames that come
// lie in their buffers, and no buffer is lost or in two hands.
func FuzzCompletions(f *testing.F) {
	f.Add([]byte{0, 0, 60, 1, 0, 0, 0, 1, 100, 1, 1, 0})
	f.Add([]byte{0, 5, 60, 0, 0, 5, 60, 0})
	f.Add([]byte{1, 0, 0, 0, 1, 2, 0, 0, 1, 1, 0, 0, 1, 2, 0, 0})
	f.Add([]byte{2, 0, 0, 0, 3, 0, 0, 0, 0, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, b []byte) {
		d, pool, p := rings(t, ethernet.Options{Promiscuous: true, Offloads: ethernet.OffloadHash | ethernet.OffloadReceiveSum})
		nic{d}.StandStill()
		q := p.Queue(0)
		frames := make([]ethernet.Frame, 32)
		held := map[uint32]bool{}
		for len(b) >= 4 {
			for range 3 {
				_, _ = porttest.TrySend(q, porttest.FrameTo(own, 60), nil)
			}
			d.With(func() {
				for range 8 {
					if len(b) < 4 {
						break
					}
					if b[0]&2 != 0 {
						d.FlipPhase(0, int(b[0]&1))
					} else {
						d.Complete(0, int(b[0]&1), fakemqnic.Completion{Queue: uint16(b[0] >> 2), Index: uint16(b[1]), Length: uint16(b[2]) | uint16(b[3])<<8, HashType: b[3]})
					}
					b = b[4:]
				}
			})
			n, err := q.Receive(frames)
			for _, f := range frames[:n] {
				must.Hold(t, pool.Contains(&f) && f.Length >= ethernet.HeaderSize && f.Length <= 1518 && !held[f.Buffer], "got %+v", f)
				held[f.Buffer] = true
			}
			clear(held)
			q.Cache().Free(frames[:n])
			unsent, uerr := q.Unsent()
			must.Hold(t, unsent >= 0 && unsent <= 64, "%d unsent, %v", unsent, uerr)
			must.Hold(t, err == nil || errors.Is(err, ethernet.ErrProtocol), "%v", err)
		}
		back(t, pool, p)
	})
}
