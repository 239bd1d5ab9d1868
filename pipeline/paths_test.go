package pipeline_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/pipeline"
	"pgregory.net/rapid"
)

func eager() pipeline.Policy { return pipeline.Eager{MinPulse: 1} }

func paths(t testing.TB, policy func() pipeline.Policy, s pipeline.Shape) *pipeline.Device {
	t.Helper()
	d := must.Get(pipeline.NewPaths(policy, s))(t)
	return d
}

func TestPathsRefuse(t *testing.T) {
	good := pipeline.Shape{Sources: 2, Buffers: 1}
	for name, spoil := range map[string]func(*pipeline.Shape){
		"sources": func(s *pipeline.Shape) { s.Sources = 0 },
		"buffers": func(s *pipeline.Shape) { s.Buffers = 0 },
		"packet":  func(s *pipeline.Shape) { s.Packet = -1 },
	} {
		s := good
		spoil(&s)
		var bad *pipeline.ParameterError
		if _, err := pipeline.NewPaths(eager, s); !errors.As(err, &bad) || bad.Name != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	should.Refuse(pipeline.NewPaths(func() pipeline.Policy { return nil }, good))(t, pipeline.ErrParameter, "no policy")
	d := paths(t, eager, good)
	if _, _, ok := d.Serve(); ok || !errors.Is(d.Served(), pipeline.ErrProgress) {
		t.Error("the sink moves something")
	}
	if d.Source(-1) != nil || d.Source(2) != nil {
		t.Error("sources that are not there")
	}
	start(t, d, 10)
	must.OK(t, d.Arrived(10))
	if _, ok := d.Next(); ok {
		t.Error("a path moves bytes past the arbitration of its device")
	}
	if n, _ := d.Move(); n != 0 || !errors.Is(d.Done(), pipeline.ErrProgress) {
		t.Error("the same by Move and Done")
	}
}

// TestPathIsHeld: a sink stays with a frame whose source stalls, and the next source has its
// turn after it.
func TestPathIsHeld(t *testing.T) {
	d := paths(t, eager, pipeline.Shape{Sources: 3, Buffers: 1})
	for i := range 3 {
		must.Get(d.Source(i).Start(100))(t)
	}
	serve := func(want, bytes int) {
		t.Helper()
		source, tr, ok := d.Serve()
		if !ok || source != want || tr.Bytes != bytes {
			t.Fatalf("source %d moves %+v (%v), want source %d with %d bytes", source, tr, ok, want, bytes)
		}
		must.OK(t, d.Served())
	}
	must.OK(t, d.Source(1).Arrived(10))
	serve(1, 10)
	must.OK(t, d.Source(0).Arrived(100))
	must.OK(t, d.Source(2).Arrived(100))
	if source, _, ok := d.Serve(); ok {
		t.Fatalf("source %d goes while source 1 holds the path", source)
	}
	if holder, held := d.Holder(); !held || holder != 1 {
		t.Fatalf("held %v by %d", held, holder)
	}
	must.OK(t, d.Source(1).Arrived(100))
	serve(1, 90)
	serve(2, 100)
	serve(0, 100)
}

// TestPacketsFreeThePath: with fragments that are delimited two sources alternate.
func TestPacketsFreeThePath(t *testing.T) {
	d := paths(t, eager, pipeline.Shape{Sources: 2, Buffers: 1, Packet: 40})
	for i := range 2 {
		must.Get(d.Source(i).Start(100))(t)
		must.OK(t, d.Source(i).Arrived(100))
	}
	for _, want := range []struct{ source, bytes int }{{0, 40}, {1, 40}, {0, 40}, {1, 40}, {0, 20}, {1, 20}} {
		source, tr, ok := d.Serve()
		if !ok || source != want.source || tr.Bytes != want.bytes || !tr.Ends || tr.Last != (want.bytes == 20) {
			t.Fatalf("source %d: %+v, want %+v", source, tr, want)
		}
		must.OK(t, d.Served())
	}
}

// TestAbort: a frame that its source gives up leaves as far as it has come, and frees the path.
func TestAbort(t *testing.T) {
	for name, c := range map[string]struct {
		arrived, served int
		moving          bool
		rest            int
	}{
		"nothing has come":    {},
		"some is still here":  {arrived: 50, served: 20, rest: 30},
		"all of it has left":  {arrived: 50, served: 50},
		"its last bytes move": {arrived: 50, served: 50, moving: true},
	} {
		d := paths(t, func() pipeline.Policy { return pipeline.Static{Pulse: 10} }, pipeline.Shape{Sources: 2, Buffers: 2})
		start(t, d, 100)
		must.OK(t, d.Arrived(c.arrived))
		for n := 10; n <= c.served; n += 10 {
			if _, _, ok := d.Serve(); !ok {
				t.Fatalf("%s: nothing moves at %d", name, n)
			}
			if n < c.served || !c.moving {
				must.OK(t, d.Served())
			}
		}
		rest, err := d.Abort()
		if err != nil || rest != c.rest {
			t.Fatalf("%s: %d bytes, %v, want %d", name, rest, err, c.rest)
		}
		should.Refuse(d.Abort())(t, pipeline.ErrProgress, "%s: a second time", name)
		if c.moving {
			must.OK(t, d.Served())
		}
		for left := rest; left > 0; left -= 10 {
			source, tr, ok := d.Serve()
			if !ok || source != 0 || tr.Broken != (left == 10) || tr.Last != (left == 10) {
				t.Fatalf("%s: %+v of source %d with %d left", name, tr, source, left)
			}
			must.OK(t, d.Served())
		}
		should.Be(t, d.Frames(), 0, "%s: frames stay", name)
		must.Get(d.Source(1).Start(5))(t)
		must.OK(t, d.Source(1).Arrived(5))
		if source, _, ok := d.Serve(); !ok || source != 1 {
			t.Errorf("%s: the path is not free", name)
		}
	}
}

// TestAbortBehindOthers: the newest of several frames goes, and those before it stay.
func TestAbortBehindOthers(t *testing.T) {
	d := device(t, eager(), 3)
	start(t, d, 30)
	must.OK(t, d.Arrived(30))
	start(t, d, 40)
	must.Give(d.Abort())(t, 0)
	start(t, d, 50)
	must.OK(t, d.Arrived(20))
	must.Give(d.Abort())(t, 20)
	for _, want := range []pipeline.Transfer{{Bytes: 30, Last: true, Ends: true}, {Frame: 2, Buffer: 1, Bytes: 20, Last: true, Ends: true, Broken: true}} {
		if tr, ok := d.Next(); !ok || tr != want {
			t.Fatalf("%+v, want %+v", tr, want)
		}
		must.OK(t, d.Done())
	}
}

// TestPathsProperties drives a device of any shape: each byte leaves once, in order;
// a packet has the sink to itself; and no source waits for more packets of others
// than there are other sources.
func TestPathsProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := pipeline.Shape{Sources: rapid.IntRange(1, 4).Draw(t, "sources"),
			Buffers: rapid.IntRange(1, 3).Draw(t, "buffers"), Packet: rapid.SampledFrom([]int{0, 1, 64, 700}).Draw(t, "packet")}
		d := must.Get(pipeline.NewPaths(func() pipeline.Policy { _, p := anyPolicy(t); return p }, s))(t)
		type line struct {
			frames                   []int // lengths
			started, arrived, oldest int
			sent, waited             int
		}
		lines := make([]line, s.Sources)
		all := 0
		for i := range lines {
			n := rapid.IntRange(1, 5).Draw(t, "frames")
			all += n
			for range n {
				lines[i].frames = append(lines[i].frames, rapid.IntRange(1, 2000).Draw(t, "length"))
			}
		}
		var moving *pipeline.Transfer
		by, inPacket := 0, -1       // sources of moving and of the packet
		ready := func(i int) bool { // its head frame is whole, so that no policy lets it wait
			l := &lines[i]
			return l.oldest < l.started && (l.oldest < l.started-1 || l.arrived == l.frames[l.oldest])
		}
		for left, idle := all, 0; left > 0; idle++ {
			if idle > 50_000 {
				t.Fatalf("%d frames stand still", left)
			}
			i := rapid.IntRange(0, s.Sources-1).Draw(t, "source")
			l, p := &lines[i], d.Source(i)
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				if l.started < len(l.frames) && p.CanStart() {
					must.Get(p.Start(l.frames[l.started]))(t)
					l.started, l.arrived = l.started+1, 0
				}
			case 1:
				if p.Filling() {
					l.arrived += rapid.IntRange(0, l.frames[l.started-1]-l.arrived).Draw(t, "arrive")
					must.OK(t, p.Arrived(l.arrived))
				}
			case 2:
				source, tr, ok := d.Serve()
				if !ok {
					continue
				}
				l := &lines[source]
				if moving != nil || inPacket >= 0 && inPacket != source {
					t.Fatalf("source %d moves %+v by the sink, which source %d holds", source, tr, inPacket)
				}
				if int(tr.Frame) != l.oldest || tr.Offset != l.sent || tr.Bytes < 1 || l.sent+tr.Bytes > l.frames[l.oldest] || tr.Broken {
					t.Fatalf("%+v after %d bytes of frame %d", tr, l.sent, l.oldest)
				}
				if s.Packet > 0 && tr.Offset/s.Packet != (tr.Offset+tr.Bytes-1)/s.Packet {
					t.Fatalf("%+v crosses the end of a packet", tr)
				}
				if inPacket < 0 { // a new packet: the others that could go wait once more
					for j := range lines {
						if o := &lines[j]; j != source && ready(j) {
							if o.waited++; o.waited >= s.Sources {
								t.Fatalf("source %d has waited for %d packets", j, o.waited)
							}
						}
					}
				}
				l.waited = 0
				l.sent += tr.Bytes
				if tr.Last != (l.sent == l.frames[l.oldest]) || tr.Ends != (tr.Last || s.Packet > 0 && l.sent%s.Packet == 0) {
					t.Fatalf("%+v of %d bytes", tr, l.frames[l.oldest])
				}
				moving, by, inPacket = &tr, source, source
			case 3:
				tr := moving
				if tr == nil {
					continue
				}
				must.OK(t, d.Served())
				if moving = nil; tr.Ends {
					inPacket = -1
				}
				if o := &lines[by]; tr.Last {
					o.oldest, o.sent = o.oldest+1, 0
					left--
				}
				idle = 0
			}
		}
		for i := range lines {
			must.Be(t, d.Source(i).Frames(), 0, "source %d keeps frames", i)
		}
	})
}

func TestPathsAllocateNothing(t *testing.T) {
	d := paths(t, eager, pipeline.Shape{Sources: 3, Buffers: 2, Packet: 100})
	should.Be(t, testing.AllocsPerRun(1000, func() {
		for i := range 3 {
			must.Get(d.Source(i).Start(150))(t)
			must.OK(t, d.Source(i).Arrived(150))
		}
		for range 6 {
			if _, _, ok := d.Serve(); !ok {
				t.Fatal("nothing moves")
			}
			must.OK(t, d.Served())
		}
	}), 0, "allocations for three frames")
}
