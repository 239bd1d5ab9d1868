package wire_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/speed"
	"github.com/trapeze-nic/trapeze/wire"
)

// shapedWire is a wire in memory of which one end has a speed, on a clock of its own.
type shapedWire struct {
	progressivePort
	engine.Paced
	wire.Drainer
	far *wire.Memory
	now time.Duration
	o   wire.ShaperOptions
}

func newShapedWire(t must.TB, o wire.ShaperOptions) *shapedWire {
	near, far := must.Two(wire.NewMemory(wire.MemoryOptions{MTU: 2048}))(t)
	s := &shapedWire{far: far, o: o}
	o.Clock = func() time.Duration { return s.now }
	p := must.Get(wire.NewShaper(lossy{near}, o))(t)
	s.progressivePort, s.Paced, s.Drainer = p.(progressivePort), p.(engine.Paced), p.(wire.Drainer)
	return s
}

// lossy hides that nothing is lost on a wire.
type lossy struct{ progressivePort }

// TestShaperHoldsBack: over a wire that loses nothing a frame begins to arrive once the other end asks for it, and all behind it
// is as much later.
func TestShaperHoldsBack(t *testing.T) {
	now := time.Duration(0)
	near, far := must.Two(wire.NewMemory(wire.MemoryOptions{MTU: 2048}))(t)
	shaped := func(p wire.Port) wire.Port {
		return must.Get(wire.NewShaper(p, wire.ShaperOptions{Path: speed.Path{Rate: 1e9}, Delay: 100, Clock: func() time.Duration { return now }}))(t)
	}
	a, b := shaped(near), shaped(far)
	must.Be(t, b.Receive() != nil, false, "a frame without a sender")
	for range 2 {
		send(a, make([]byte, 1000)) // takes 1 us
	}
	whole := func(at time.Duration) bool {
		now = at
		a.Flush()
		f := b.Receive()
		n, _ := b.(engine.Progressive).Arrived()
		return f != nil && n == len(f)
	}
	must.Be(t, whole(1099) || !whole(1100), false, "the first frame does not arrive when it should")
	b.Release()
	now = 5000
	if busy, _ := a.(engine.Paced).Left(); busy != 2000+2900-5000+1000 { // its first byte stands at the other end
		t.Errorf("the wire is busy for %v", busy)
	}
	should.Be(t, whole(6000) || whole(6999) || !whole(7000), false, "the second frame does not arrive a microsecond after it was asked for")
}

// TestShaperKeepsTime: no byte arrives before it has left and crossed the wire, nor after, nor
// another one in its place, however frames are published, committed and aborted.
func TestShaperKeepsTime(t *testing.T) {
	type piece struct {
		to    int
		begin time.Duration
	}
	type frame struct {
		bytes          []byte
		pieces         []piece
		ended, aborted bool
	}
	rapid.Check(t, func(t *rapid.T) {
		o := wire.ShaperOptions{Path: speed.Path{Rate: rapid.Int64Range(speed.MinRate, 1e9).Draw(t, "rate"), Setup: time.Duration(rapid.IntRange(0, 2000).Draw(t, "setup"))},
			Burst: rapid.OneOf(rapid.Just(0), rapid.IntRange(64, 900)).Draw(t, "burst"), Delay: time.Duration(rapid.IntRange(0, 20_000).Draw(t, "delay"))}
		s := newShapedWire(t, o)
		takes := func(n int) time.Duration { return time.Duration((int64(n)*1e9 + o.Rate - 1) / o.Rate) }
		var sent []*frame
		var open *frame
		var buf []byte
		free, number := time.Duration(0), byte(0)
		hand := func(n int) {
			from := 0
			if l := len(open.pieces); l > 0 {
				from = open.pieces[l-1].to
			} else {
				sent = append(sent, open)
			}
			begin := max(free, s.now) + o.Setup
			open.pieces = append(open.pieces, piece{n, begin})
			free = begin + takes(n-from)
		}
		// there is how much of a frame has arrived by now.
		there := func(f *frame) (n int, ended bool) {
			whole := 0
			for _, p := range f.pieces {
				passed := s.now - o.Delay - p.begin
				if passed < 0 {
					break
				}
				if passed < takes(p.to-whole) {
					if n = whole; o.Burst > 0 {
						n += int(int64(passed) * o.Rate / 1e9)
					}
					break
				}
				whole, n = p.to, p.to
			}
			if f.ended && n == f.pieces[len(f.pieces)-1].to {
				return n, true
			}
			if n < datasheet.HeaderSize {
				return 0, false
			}
			if o.Burst == 0 {
				return n, false
			}
			return n - (n-datasheet.HeaderSize)%o.Burst, false
		}
		abort := func() {
			if open != nil && len(open.pieces) > 0 {
				open.ended, open.aborted = true, true
			}
			open = nil
		}
		t.Repeat(map[string]func(*rapid.T){
			"time": func(t *rapid.T) { s.now += time.Duration(rapid.IntRange(0, 5000).Draw(t, "passes")) },
			"reserve": func(t *rapid.T) {
				if open != nil && len(open.pieces) > 0 {
					return
				}
				n := rapid.IntRange(1, s.MTU()).Draw(t, "size")
				if open, buf = nil, s.Reserve(n); buf != nil {
					number++
					open = &frame{bytes: bytes.Repeat([]byte{number}, n)}
					copy(buf, open.bytes)
				}
			},
			"publish": func(t *rapid.T) {
				if open == nil || len(open.bytes) < 2 {
					return
				}
				n := rapid.IntRange(1, len(open.bytes)-1).Draw(t, "shown")
				if l := len(open.pieces); l == 0 || n > open.pieces[l-1].to {
					hand(n)
				}
				s.Publish(n)
			},
			"commit": func(*rapid.T) {
				if open != nil {
					hand(len(open.bytes))
					open.ended, open = true, nil
				}
				s.Commit()
			},
			"abort": func(*rapid.T) { s.Abort(); abort() },
			"receive": func(t *rapid.T) {
				busy, all := s.Left()
				must.Be(t, busy, free-s.now, "busy")
				for len(sent) > 0 {
					n, ended := there(sent[0])
					got := s.far.Receive()
					if n == 0 && !ended {
						must.Hold(t, got == nil && all > 0, "a frame that has not come: %d bytes, all in %v", len(got), all)
						return
					}
					if gone := sent[0].aborted && ended; gone && (got == nil || got[0] != sent[0].bytes[0]) {
						sent = sent[1:] // given up before it was seen
						continue
					}
					must.Be(t, got == nil, false, "%d of %d bytes are late", n, len(sent[0].bytes))
					if arrived, aborted := s.far.Arrived(); len(got) != len(sent[0].bytes) || aborted != (ended && sent[0].aborted) ||
						!aborted && arrived != n || !bytes.Equal(got[:arrived], sent[0].bytes[:arrived]) {
						t.Fatalf("%d of %d bytes, aborted %v; want %d of %d", arrived, len(got), aborted, n, len(sent[0].bytes))
					}
					if !ended {
						return
					}
					s.far.Release()
					sent = sent[1:]
				}
			},
		})
	})
}

// TestShaperWaitsForRoom: while the peer takes nothing frames wait, their number is bounded, and
// none is lost.
func TestShaperWaitsForRoom(t *testing.T) {
	s := newShapedWire(t, wire.ShaperOptions{Path: speed.Path{Rate: 1e9}})
	sent := 0
	for range 100_000 {
		buf := s.Reserve(1000)
		if s.now += time.Microsecond; buf == nil {
			continue
		}
		buf[0], buf[1] = byte(sent), byte(sent>>8)
		s.Commit()
		sent++
	}
	must.Be(t, sent > wire.DefaultMemoryRing/1000+8, false, "%d frames are under way", sent)
	if _, all := s.Left(); all <= 0 || s.Drained() {
		t.Error("all is said to have arrived")
	}
	for i := range sent {
		f := s.far.Receive()
		must.Hold(t, len(f) == 1000 && f[0] == byte(i) && f[1] == byte(i>>8), "frame %d of %d: %d bytes", i, sent, len(f))
		s.far.Release()
		s.far.Receive() // looks, and gives back what it has released
		s.now += 10 * time.Microsecond
		s.Flush()
	}
	if _, all := s.Left(); all > 0 || !s.Drained() {
		t.Error("something is said to be under way")
	}
}

// TestShaperOnWholeFrames: a wire that does not hand frames over in parts gets them at their end.
func TestShaperOnWholeFrames(t *testing.T) {
	near, far := must.Two(wire.NewMemory(wire.MemoryOptions{}))(t)
	whole := must.Get(wire.NewFault(near, wire.FaultOptions{Seed: 1}))(t)
	now := time.Duration(0)
	p := must.Get(wire.NewShaper(whole, wire.ShaperOptions{Path: speed.Path{Rate: 1e6}, Delay: time.Microsecond,
		Clock: func() time.Duration { return now }}))(t)
	if _, parts := p.(engine.Progressive); parts {
		t.Error("frames come in parts")
	}
	send(p, bytes.Repeat([]byte{1}, 1000)) // takes 1 ms
	for _, c := range []struct {
		at   time.Duration
		came bool
	}{{time.Millisecond, false}, {time.Millisecond + 999, false}, {time.Millisecond + time.Microsecond, true}} {
		now = c.at
		p.Flush()
		if f := far.Receive(); (f != nil) != c.came {
			t.Errorf("at %v %d bytes have come", c.at, len(f))
		}
	}
}

func TestBadSpeeds(t *testing.T) {
	near, _ := must.Two(wire.NewMemory(wire.MemoryOptions{}))(t)
	for _, o := range []wire.ShaperOptions{{Path: speed.Path{Rate: -1}}, {Path: speed.Path{Rate: speed.MinRate - 1}}, {Path: speed.Path{Rate: speed.MaxRate + 1}}, {Delay: -1}, {Delay: speed.MaxDelay + 1},
		{Path: speed.Path{Setup: -1}}, {Path: speed.Path{Setup: speed.MaxSetup + 1}}, {Burst: -1}} {
		if p, err := wire.NewShaper(near, o); p != nil || !errors.Is(err, wire.ErrOptions) {
			t.Errorf("%+v: %v", o, err)
		}
	}
}
