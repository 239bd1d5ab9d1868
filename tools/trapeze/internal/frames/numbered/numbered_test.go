package numbered_test

import (
	"bytes"
	"net/netip"
	"testing"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/numbered"
)

var (
	from = netip.MustParseAddrPort("10.0.0.1:5001")
	to   = netip.MustParseAddrPort("10.0.0.2:9")
)

func sizes(t testing.TB, s string) numbered.Sizes {
	t.Helper()
	return must.Get(numbered.ParseSizes(s))(t)
}

func generator(t testing.TB, o numbered.Options) *numbered.Generator {
	t.Helper()
	o.Source, o.Destination = ethernet.MAC{2, 0, 0, 0, 0, 1}, ethernet.MAC{2, 0, 0, 0, 0, 2}
	return must.Get(numbered.NewGenerator(o))(t)
}

// next makes the next frame, as it arrives: padded.
func next(g *numbered.Generator) []byte {
	b := make([]byte, 9018)
	n := g.Next(b)
	return b[:max(n, ethernet.MinFrame)]
}

func end(g *numbered.Generator) []byte {
	b := make([]byte, 9018)
	n := g.End(b)
	return b[:max(n, ethernet.MinFrame)]
}

// kinds of stream.
func kinds(t testing.TB) []numbered.Options {
	return []numbered.Options{
		{Sizes: sizes(t, "60"), Stream: 1},
		{Sizes: sizes(t, "30-9000"), Stream: 2},
		{Sizes: sizes(t, "imix"), VLAN: 7, Stream: 3},
		{Sizes: sizes(t, "58"), From: from, To: to, Stream: 4},
		{Sizes: sizes(t, "62-1514"), From: from, To: to, VLAN: 4094, Stream: 5},
	}
}

// payloads is where in the frames of kinds, by their Stream, the payload begins.
var payloads = map[uint32]int{1: 14, 2: 14, 3: 18, 4: 42, 5: 46}

// TestFrames: what is made is what it should be, to other programs too.
func TestFrames(t *testing.T) {
	for _, o := range kinds(t) {
		g := generator(t, o)
		c := numbered.NewChecker()
		lengths := map[int]int{}
		for range 1200 {
			frame := next(g)
			lengths[len(frame)]++
			p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.NoCopy)
			if v, ok := p.Layer(layers.LayerTypeDot1Q).(*layers.Dot1Q); (o.VLAN != 0) != ok || ok && v.VLANIdentifier != o.VLAN {
				t.Fatalf("%+v: %v", o, p)
			}
			if o.To.IsValid() {
				udp, ok := p.TransportLayer().(*layers.UDP)
				if ok {
					must.OK(t, udp.SetNetworkLayerForChecksum(p.NetworkLayer()))
				}
				if err, bad := p.VerifyChecksums(); err != nil || len(bad) > 0 || !ok || udp.DstPort != 9 || udp.SrcPort != 5001 || p.ErrorLayer() != nil {
					t.Fatalf("%+v: %v, %v in %v", o, err, bad, p)
				}
			}
			c.Frame(frame)
		}
		c.Frame(end(g))
		got := c.Totals()
		should.Hold(t, got == (numbered.Totals{Frames: 1200, Streams: 1, Ended: 1}) && got.Complete(), "%+v: %+v", o, got)
		if o.Stream == 3 && (lengths[60] != 700 || lengths[590] != 400 || lengths[1514] != 100) || o.Stream == 2 && len(lengths) < 800 {
			t.Errorf("%+v: lengths %v", o, lengths)
		}
	}
}

func TestSizes(t *testing.T) {
	for _, s := range []string{"", "a", "60-", "-60", "61-60", "65536", "60-65536", "-1", "IMIX", "60 "} {
		should.Refuse(numbered.ParseSizes(s))(t, numbered.ErrSize, "%q", s)
	}
	for _, o := range []numbered.Options{{Sizes: sizes(t, "29")}, {Sizes: sizes(t, "33-60"), VLAN: 1}, {Sizes: sizes(t, "57"), From: from, To: to}} {
		should.Refuse(numbered.NewGenerator(o))(t, numbered.ErrSize, "%+v", o)
	}
}

// TestChecker drops, doubles, delays and damages frames, and compares what the checker says
// with what was done.
func TestChecker(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		var all [][]byte
		o := kinds(t)[rapid.IntRange(0, 4).Draw(r, "kind")]
		g := generator(t, o)
		n := rapid.IntRange(1, 200).Draw(r, "frames")
		for range n {
			all = append(all, next(g))
		}
		c := numbered.NewChecker()
		var want numbered.Totals
		came := map[int]bool{}
		highest := -1
		arrive := func(i int) {
			c.Frame(all[i])
			switch {
			case came[i]:
				want.Doubled++
				return
			case i < highest:
				want.Reordered++
			}
			highest = max(highest, i)
			came[i] = true
			want.Frames++
		}
		var delayed []int
		for i := range all {
			switch rapid.IntRange(0, 9).Draw(r, "fate") {
			case 0: // lost
			case 1:
				arrive(i)
				arrive(i)
			case 2:
				delayed = append(delayed, i)
			case 3:
				damaged := bytes.Clone(all[i])
				damaged[payloads[o.Stream]+rapid.IntRange(2, 15).Draw(r, "where")] ^= 1
				c.Frame(damaged)
				want.Damaged++
			default:
				arrive(i)
			}
			if len(delayed) > 0 && rapid.Bool().Draw(r, "arrives") {
				arrive(delayed[0])
				delayed = delayed[1:]
			}
		}
		c.Frame(make([]byte, rapid.IntRange(0, 60).Draw(r, "other")))
		want.Other++
		if rapid.Bool().Draw(r, "ended") {
			c.Frame(end(g))
			want.Streams, want.Ended = 1, 1
			want.Lost = uint64(n) - want.Frames
		} else if highest >= 0 {
			want.Streams = 1
			want.Lost = uint64(highest+1) - want.Frames
		}
		must.Be(r, c.Totals(), want)
	})
}

// TestWindow: what is far too old is told apart from what is lost, and numbers go on
// beyond gaps of any length.
func TestWindow(t *testing.T) {
	g := generator(t, kinds(t)[0])
	c := numbered.NewChecker()
	first, second := next(g), next(g)
	c.Frame(first)
	for range 70_000 {
		next(g)
	}
	c.Frame(next(g))
	c.Frame(first)
	c.Frame(second)
	should.Be(t, c.Totals(), numbered.Totals{Frames: 2, Lost: 70_001, Late: 2, Streams: 1})
	c.Frame(next(g))
	got := c.Totals()
	should.Hold(t, got.Frames == 3 && got.Lost == 70_001, "%+v", got)
}

// TestStreams: there is a limit to how many are remembered.
func TestStreams(t *testing.T) {
	c := numbered.NewChecker()
	for i := range uint32(300) {
		c.Frame(next(generator(t, numbered.Options{Sizes: sizes(t, "60"), Stream: i})))
	}
	got := c.Totals()
	should.Hold(t, got.Streams == 256 && got.Frames == 256 && got.Other == 44, "%+v", got)
}

func TestAllocations(t *testing.T) {
	g, c, b := generator(t, kinds(t)[3]), numbered.NewChecker(), make([]byte, 60)
	c.Frame(next(g))
	should.Be(t, testing.AllocsPerRun(100, func() { c.Frame(b[:g.Next(b)]) }), 0, "allocations")
	got := c.Totals()
	should.Hold(t, got.Lost == 0 && got.Frames == 102, "%+v", got)
}

func FuzzChecker(f *testing.F) {
	for _, o := range kinds(f) {
		g := generator(f, o)
		f.Add(next(g)[:60], end(g)[:60])
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		c := numbered.NewChecker()
		for _, frame := range [][]byte{a, b, a, b} {
			c.Frame(frame)
		}
		got := c.Totals()
		seen := got.Frames + got.Doubled + got.Late + got.Damaged + got.Other
		must.Hold(t, seen <= 4 && got.Streams <= 2 && got.Ended <= got.Streams, "%+v", got)
	})
}
