package bridge_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/bridge"
)

const age = 300 * time.Second

func frame(to, from ethernet.MAC) []byte {
	return append(append(append(make([]byte, 0, 60), to[:]...), from[:]...), make([]byte, 48)...)
}

func station(n int) ethernet.MAC { return ethernet.MAC{2, 0, 0, 0, 0, byte(n)} }

// goes says where one frame goes.
func goes(t *bridge.Table, port int, now time.Duration, f []byte) int {
	var to [1]int
	t.Ports(port, now, [][]byte{f}, to[:])
	return to[0]
}

// TestTable compares with a model that remembers everything.
func TestTable(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		most := rapid.IntRange(1, 12).Draw(r, "most")
		table := bridge.NewTable(most, age)
		type place struct {
			port int
			seen time.Duration
		}
		model := map[ethernet.MAC]place{}
		now := time.Duration(0)
		for range rapid.IntRange(1, 100).Draw(r, "frames") {
			now += rapid.SampledFrom([]time.Duration{0, time.Millisecond, 1500 * time.Millisecond, age + 1}).Draw(r, "later")
			from, to := station(rapid.IntRange(0, 15).Draw(r, "from")), station(rapid.IntRange(0, 15).Draw(r, "to"))
			port := rapid.IntRange(0, 3).Draw(r, "port")
			before := table.Counts()
			got := goes(table, port, now, frame(to, from))
			after := table.Counts()
			if after.Stations > most {
				r.Fatalf("%d stations, %d at most", after.Stations, most)
			}
			if got == port {
				r.Fatal("a frame goes back where it came from")
			}
			was, known := model[from]
			if known && was.port != port && now-was.seen < bridge.HoldDown {
				if got != bridge.Refused || after.Loops != before.Loops+1 {
					r.Fatalf("%d although its sender was just at %d", got, was.port)
				}
				continue
			}
			if after.Full == before.Full {
				model[from] = place{port, now}
			} else {
				fresh := 0
				for _, p := range model {
					if now-p.seen <= age {
						fresh++
					}
				}
				// Those that are too old are removed once a second.
				if _, known := model[from]; known && now-model[from].seen <= age || len(model) < most {
					r.Fatalf("no room for %v beside %d", from, fresh)
				}
			}
			want := bridge.Flood
			if p, known := model[to]; known && now-p.seen <= age {
				if want = p.port; want == port {
					want = bridge.Refused
				}
			}
			if got != want {
				r.Fatalf("to %v: %d, want %d", to, got, want)
			}
		}
	})
}

func TestRefused(t *testing.T) {
	table := bridge.NewTable(10, age)
	group := ethernet.MAC{1, 0, 0x5e, 0, 0, 1}
	all := ethernet.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	for name, c := range map[string]struct {
		frame []byte
		want  int
	}{
		"from a group":    {frame(station(1), group), bridge.Refused},
		"from everybody":  {frame(station(1), all), bridge.Refused},
		"from nobody":     {frame(station(1), ethernet.MAC{}), bridge.Refused},
		"too short":       {frame(station(1), station(2))[:13], bridge.Refused},
		"spanning tree":   {frame(ethernet.MAC{1, 0x80, 0xc2, 0, 0, 0}, station(2)), bridge.Refused},
		"pause":           {frame(ethernet.MAC{1, 0x80, 0xc2, 0, 0, 1}, station(2)), bridge.Refused},
		"LLDP":            {frame(ethernet.MAC{1, 0x80, 0xc2, 0, 0, 0xe}, station(2)), bridge.Refused},
		"bridged group":   {frame(ethernet.MAC{1, 0x80, 0xc2, 0, 0, 0x10}, station(2)), bridge.Flood},
		"to a group":      {frame(group, station(2)), bridge.Flood},
		"to everybody":    {frame(all, station(2)), bridge.Flood},
		"to somebody new": {frame(station(9), station(2)), bridge.Flood},
		"to its sender":   {frame(station(2), station(2)), bridge.Refused},
	} {
		if got := goes(table, 0, 0, c.frame); got != c.want {
			t.Errorf("%s: %d, want %d", name, got, c.want)
		}
	}
	if c := table.Counts(); c != (bridge.Counts{Stations: 1, BadSources: 4, Reserved: 3, Local: 1}) {
		t.Errorf("%+v", c)
	}
}

// TestFull: a table that is full forgets those that are too old, and floods for others.
func TestFull(t *testing.T) {
	table := bridge.NewTable(2, age)
	for i := range 4 {
		goes(table, i, time.Second, frame(station(9), station(i)))
	}
	if got := goes(table, 3, time.Second, frame(station(2), station(0))); got != bridge.Refused {
		t.Errorf("a station that was at 0: %d", got)
	}
	if got := goes(table, 0, time.Second, frame(station(2), station(0))); got != bridge.Flood {
		t.Errorf("to one without room: %d", got)
	}
	if c := table.Counts(); c.Stations != 2 || c.Full != 2 || c.Loops != 1 {
		t.Errorf("%+v", c)
	}
	goes(table, 3, 2*age, frame(station(9), station(3)))
	if got := goes(table, 1, 2*age, frame(station(3), station(2))); got != 3 {
		t.Errorf("after the others were forgotten: %d", got)
	}
}

func TestAllocations(t *testing.T) {
	table := bridge.NewTable(1000, age)
	frames, to := make([][]byte, 64), make([]int, 64)
	for i := range frames {
		frames[i] = frame(station(i+1), station(i))
	}
	now := time.Duration(0)
	if n := testing.AllocsPerRun(100, func() { now += time.Millisecond; table.Ports(1, now, frames, to) }); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkPorts(b *testing.B) {
	table := bridge.NewTable(4096, age)
	frames, to := make([][]byte, 64), make([]int, 64)
	for i := range frames {
		frames[i] = frame(station(i+1), station(i))
	}
	b.ReportAllocs()
	for b.Loop() {
		table.Ports(1, time.Second, frames, to)
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*64), "ns/frame")
}
