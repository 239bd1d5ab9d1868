package pipeline_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/pipeline"
	"pgregory.net/rapid"
)

func eager() pipeline.Policy { return pipeline.Eager{MinPulse: 1} }

func paths(t testing.TB, policy func() pipeline.Policy, s pipeline.Shape) *pipeline.Device {
	t.Helper()
	d, err := pipeline.NewPaths(policy, s)
	must(t, err)
	return d
}

func TestPathsRefuse(t *testing.T) {
	good := pipeline.Shape{Sources: 2, Sinks: 2, Buffers: 1}
	for name, spoil := range map[string]func(*pipeline.Shape){
		"sources": func(s *pipeline.Shape) { s.Sources = 0 },
		"sinks":   func(s *pipeline.Shape) { s.Sinks = pipeline.MaxBuffers + 1 },
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
	for name, policy := range map[string]func() pipeline.Policy{"none": nil, "nil": func() pipeline.Policy { return nil }} {
		if _, err := pipeline.NewPaths(policy, good); !errors.Is(err, pipeline.ErrParameter) {
			t.Errorf("%s: %v", name, err)
		}
	}
	d := paths(t, eager, good)
	for _, to := range []int{-1, 2} {
		if _, err := d.Source(1).StartTo(to, 10); !errors.Is(err, pipeline.ErrSink) {
			t.Errorf("sink %d: %v", to, err)
		}
		if _, _, ok := d.Serve(to); ok || !errors.Is(d.Served(to), pipeline.ErrProgress) {
			t.Errorf("sink %d moves something", to)
		}
	}
	if d.Source(-1) != nil || d.Source(2) != nil {
		t.Error("sources that are not there")
	}
	start(t, d, 10)
	must(t, d.Arrived(10))
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
	d := paths(t, eager, pipeline.Shape{Sources: 3, Sinks: 2, Buffers: 1})
	for i := range 3 {
		if _, err := d.Source(i).StartTo(1, 100); err != nil {
			t.Fatal(err)
		}
	}
	serve := func(want, bytes int) {
		t.Helper()
		source, tr, ok := d.Serve(1)
		if !ok || source != want || tr.Bytes != bytes {
			t.Fatalf("source %d moves %+v (%v), want source %d with %d bytes", source, tr, ok, want, bytes)
		}
		must(t, d.Served(1))
	}
	must(t, d.Source(1).Arrived(10))
	serve(1, 10)
	must(t, d.Source(0).Arrived(100))
	must(t, d.Source(2).Arrived(100))
	if source, _, ok := d.Serve(1); ok {
		t.Fatalf("source %d goes while source 1 holds the path", source)
	}
	if holder, held := d.Holder(1); !held || holder != 1 {
		t.Fatalf("held %v by %d", held, holder)
	}
	if _, held := d.Holder(0); held {
		t.Fatal("a path that is free is held")
	}
	must(t, d.Source(1).Arrived(100))
	serve(1, 90)
	serve(2, 100)
	serve(0, 100)
}

// TestPacketsFreeThePath: with fragments that are delimited two sources alternate.
func TestPacketsFreeThePath(t *testing.T) {
	d := paths(t, eager, pipeline.Shape{Sources: 2, Sinks: 1, Buffers: 1, Packet: 40})
	for i := range 2 {
		if _, err := d.Source(i).Start(100); err != nil {
			t.Fatal(err)
		}
		must(t, d.Source(i).Arrived(100))
	}
	for _, want := range []struct{ source, bytes int }{{0, 40}, {1, 40}, {0, 40}, {1, 40}, {0, 20}, {1, 20}} {
		source, tr, ok := d.Serve(0)
		if !ok || source != want.source || tr.Bytes != want.bytes || !tr.Ends || tr.Last != (want.bytes == 20) {
			t.Fatalf("source %d: %+v, want %+v", source, tr, want)
		}
		must(t, d.Served(0))
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
		d := paths(t, func() pipeline.Policy { return pipeline.Static{Pulse: 10} }, pipeline.Shape{Sources: 2, Sinks: 1, Buffers: 2})
		start(t, d, 100)
		must(t, d.Arrived(c.arrived))
		for n := 10; n <= c.served; n += 10 {
			if _, _, ok := d.Serve(0); !ok {
				t.Fatalf("%s: nothing moves at %d", name, n)
			}
			if n < c.served || !c.moving {
				must(t, d.Served(0))
			}
		}
		rest, err := d.Abort()
		if err != nil || rest != c.rest {
			t.Fatalf("%s: %d bytes, %v, want %d", name, rest, err, c.rest)
		}
		if _, err := d.Abort(); !errors.Is(err, pipeline.ErrProgress) {
			t.Errorf("%s: a second time: %v", name, err)
		}
		if c.moving {
			must(t, d.Served(0))
		}
		for left := rest; left > 0; left -= 10 {
			source, tr, ok := d.Serve(0)
			if !ok || source != 0 || tr.Broken != (left == 10) || tr.Last != (left == 10) {
				t.Fatalf("%s: %+v of source %d with %d left", name, tr, source, left)
			}
			must(t, d.Served(0))
		}
		if d.Frames() != 0 {
			t.Errorf("%s: %d frames stay", name, d.Frames())
		}
		if _, err := d.Source(1).Start(5); err != nil {
			t.Fatal(err)
		}
		must(t, d.Source(1).Arrived(5))
		if source, _, ok := d.Serve(0); !ok || source != 1 {
			t.Errorf("%s: the path is not free", name)
		}
	}
}

// TestAbortBehindOthers: the newest of several frames goes, and those before it stay.
func TestAbortBehindOthers(t *testing.T) {
	d := device(t, eager(), 3)
	start(t, d, 30)
	must(t, d.Arrived(30))
	start(t, d, 40)
	if rest, err := d.Abort(); rest != 0 || err != nil {
		t.Fatal(rest, err)
	}
	start(t, d, 50)
	must(t, d.Arrived(20))
	if rest, err := d.Abort(); rest != 20 || err != nil {
		t.Fatal(rest, err)
	}
	for _, want := range []pipeline.Transfer{{Bytes: 30, Last: true, Ends: true}, {Frame: 2, Buffer: 1, Bytes: 20, Last: true, Ends: true, Broken: true}} {
		if tr, ok := d.Next(); !ok || tr != want {
			t.Fatalf("%+v, want %+v", tr, want)
		}
		must(t, d.Done())
	}
}

// TestPathsProperties drives a device of any shape: each byte leaves once, in order and by
// its sink; a packet has its sink to itself; and no source waits for more packets of others
// than there are other sources.
func TestPathsProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := pipeline.Shape{Sources: rapid.IntRange(1, 4).Draw(t, "sources"), Sinks: rapid.IntRange(1, 4).Draw(t, "sinks"),
			Buffers: rapid.IntRange(1, 3).Draw(t, "buffers"), Packet: rapid.SampledFrom([]int{0, 1, 64, 700}).Draw(t, "packet")}
		d, err := pipeline.NewPaths(func() pipeline.Policy { _, p := anyPolicy(t); return p }, s)
		if err != nil {
			t.Fatal(err)
		}
		type line struct {
			frames                   []int // lengths
			to                       []int
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
				lines[i].to = append(lines[i].to, rapid.IntRange(0, s.Sinks-1).Draw(t, "to"))
			}
		}
		moving := make([]*pipeline.Transfer, s.Sinks)
		by := make([]int, s.Sinks) // source of moving
		inPacket := make([]int, s.Sinks)
		for i := range inPacket {
			inPacket[i] = -1
		}
		ready := func(i int) bool { // its head frame is whole, so that no policy lets it wait
			l := &lines[i]
			return l.oldest < l.started && (l.oldest < l.started-1 || l.arrived == l.frames[l.oldest])
		}
		for left, idle := all, 0; left > 0; idle++ {
			if idle > 50_000 {
				t.Fatalf("%d frames stand still", left)
			}
			i, to := rapid.IntRange(0, s.Sources-1).Draw(t, "source"), rapid.IntRange(0, s.Sinks-1).Draw(t, "sink")
			l, p := &lines[i], d.Source(i)
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				if l.started < len(l.frames) && p.CanStart() {
					if _, err := p.StartTo(l.to[l.started], l.frames[l.started]); err != nil {
						t.Fatal(err)
					}
					l.started, l.arrived = l.started+1, 0
				}
			case 1:
				if p.Filling() {
					l.arrived += rapid.IntRange(0, l.frames[l.started-1]-l.arrived).Draw(t, "arrive")
					if err := p.Arrived(l.arrived); err != nil {
						t.Fatal(err)
					}
				}
			case 2:
				source, tr, ok := d.Serve(to)
				if !ok {
					continue
				}
				l := &lines[source]
				if moving[to] != nil || inPacket[to] >= 0 && inPacket[to] != source || l.to[l.oldest] != to {
					t.Fatalf("source %d moves %+v by sink %d, which source %d holds", source, tr, to, inPacket[to])
				}
				if int(tr.Frame) != l.oldest || tr.Offset != l.sent || tr.Bytes < 1 || l.sent+tr.Bytes > l.frames[l.oldest] || tr.Broken {
					t.Fatalf("%+v after %d bytes of frame %d", tr, l.sent, l.oldest)
				}
				if s.Packet > 0 && tr.Offset/s.Packet != (tr.Offset+tr.Bytes-1)/s.Packet {
					t.Fatalf("%+v crosses the end of a packet", tr)
				}
				if inPacket[to] < 0 { // a new packet: the others that could go wait once more
					for j := range lines {
						if o := &lines[j]; j != source && ready(j) && o.to[o.oldest] == to {
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
				moving[to], by[to], inPacket[to] = &tr, source, source
			case 3:
				tr := moving[to]
				if tr == nil {
					continue
				}
				if err := d.Served(to); err != nil {
					t.Fatal(err)
				}
				if moving[to] = nil; tr.Ends {
					inPacket[to] = -1
				}
				if o := &lines[by[to]]; tr.Last {
					o.oldest, o.sent = o.oldest+1, 0
					left--
				}
				idle = 0
			}
		}
		for i := range lines {
			if d.Source(i).Frames() != 0 {
				t.Fatalf("source %d keeps %d frames", i, d.Source(i).Frames())
			}
		}
	})
}

func TestPathsAllocateNothing(t *testing.T) {
	d := paths(t, eager, pipeline.Shape{Sources: 3, Sinks: 2, Buffers: 2, Packet: 100})
	if n := testing.AllocsPerRun(1000, func() {
		for i := range 3 {
			if _, err := d.Source(i).StartTo(1, 150); err != nil {
				t.Fatal(err)
			}
			must(t, d.Source(i).Arrived(150))
		}
		for range 6 {
			if _, _, ok := d.Serve(1); !ok {
				t.Fatal("nothing moves")
			}
			must(t, d.Served(1))
		}
	}); n != 0 {
		t.Errorf("%v allocations for three frames", n)
	}
}
