package profile_test

import (
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

func TestMemorySystems(t *testing.T) {
	want := []string{"pcie4-x16-100g", "pcie5-x16-400g", "sonic-via", "sonic-via-1200", "sonic-via-800"}
	must.Same(t, profile.Systems.Names(), want)
	for _, name := range want {
		s := must.Get(profile.Systems.Load(name))(t)
		if s.Name != name || s.Summary == "" || (s.Bus == nil) != strings.HasPrefix(name, "pcie") || (s.PCIe == nil) == strings.HasPrefix(name, "pcie") {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestDataCycles: data takes whole cycles, at the bus's rate or at a slower engine's.
func TestDataCycles(t *testing.T) {
	s := must.Get(profile.Systems.Load("sonic-via"))(t)
	for _, c := range []struct {
		bytes int
		rate  float64
		want  int
	}{{32, 1600, 2}, {32, 1200, 3}, {32, 800, 4}, {32, 1599, 3}, {32, 1e6, 2}, {1, 1600, 1}, {8, 1600, 1}, {17, 1600, 2}, {128, 1200, 11}} {
		should.Be(t, s.Bus.Data(c.bytes, c.rate), c.want, "%d bytes at %g MB/s: cycles", c.bytes, c.rate)
	}
	if s.Bus.Peak() != 1600 || s.L1.Sets() != 512 || s.L2.Sets() != 4096 {
		t.Errorf("peak %v MB/s, %d and %d sets", s.Bus.Peak(), s.L1.Sets(), s.L2.Sets())
	}
	for n, want := range map[int]int{1: 1, 1500: 1, 1501: 2, 4096: 3} {
		should.Be(t, s.NIC.Frames(n), want, "%d bytes in frames", n)
	}
}

func TestBadMemorySystems(t *testing.T) {
	source := func(name string) string {
		text := must.Get(profile.Systems.Source(name))(t)
		return string(text)
	}
	bus, pcie := source("sonic-via"), source("pcie4-x16-100g")
	replace := func(text, old, new string) string {
		if !strings.Contains(text, old) {
			t.Fatalf("no %q to replace", old)
		}
		return strings.Replace(text, old, new, 1)
	}
	for _, c := range []struct {
		name, text, key string
		want            error
	}{
		{"empty", "", "bus", profile.ErrValue},
		{"unknown key", bus + "speed = 1\n", "nic.speed", profile.ErrUnknownKey},
		{"clock that stands", replace(bus, `"1 GHz"`, `"0 GHz"`), "processor.clock", profile.ErrValue},
		{"long words", replace(bus, `word  = "8 B"`, `word = "16 B"`), "processor.word", profile.ErrValue},
		{"words that do not fill a block", replace(bus, `word  = "8 B"`, `word = "3 B"`), "processor.word", profile.ErrValue},
		{"sets by three", replace(bus, `"32 KiB"`, `"48 KiB"`), "l1.size", profile.ErrValue},
		{"line by three", replace(bus, `line    = "32 B"`, `line = "48 B"`), "l1.size", profile.ErrValue},
		{"cache of a line", replace(bus, `"32 KiB"`, `"64 B"`) + "\n[extra]\nx = 1\n", "extra.x", profile.ErrUnknownKey},
		{"more ways than lines", replace(bus, "ways    = 2", "ways = 64") + "\n", "", nil},
		{"short lines behind long ones", replace(bus, `line    = "128 B"`, `line = "16 B"`), "l2.line", profile.ErrValue},
		{"block on a bus", bus + "block = \"64 B\"\n", "nic.block", profile.ErrValue},
		{"queue", replace(bus, `"8 KiB"`, `"8 B"`), "nic.queue", profile.ErrValue},
		{"bus and PCIe", "profile = \"pcie4-x16-100g\"\n" + bus, "bus", profile.ErrValue},
		{"neither", replace(pcie, `profile = "pcie4-x16-100g"`, ""), "bus", profile.ErrValue},
		{"profile of another kind", replace(pcie, `= "pcie4-x16-100g"`, `= "alcor"`), "profile", profile.ErrBase},
		{"profile that is not there", replace(pcie, `= "pcie4-x16-100g"`, `= "pcie9"`), "profile", profile.ErrBase},
		{"profile elsewhere", replace(pcie, `= "pcie4-x16-100g"`, `= "/etc/passwd"`), "profile", profile.ErrBase},
		{"no block", replace(pcie, `block  = "64 B"`, ""), "nic.block", profile.ErrMissing},
		{"base with a base", "base = \"sonic-via-800\"\n", "", nil},
		{"table as a value", "bus = 5\n", "bus", profile.ErrUnknownKey},
		{"table of another kind", replace(bus, "[bus]", "[[bus]]"), "bus", profile.ErrUnknownKey},
		{"value as a table", replace(bus, "[bus]", "[bus.clock]"), "bus.clock.address", profile.ErrUnknownKey},
		{"base in a file", "base = \"mine.toml\"\n", "base", profile.ErrBase},
	} {
		_, err := profile.ParseMemory("dir/mine.toml", []byte(c.text))
		if c.want == nil && err != nil {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.want != nil {
			refused(t, c.name, err, c.key, c.want)
		}
	}
	for name, want := range map[string]error{"vax": profile.ErrUnknown, "none.toml": profile.ErrUnreadable, "../platforms/alcor": profile.ErrUnknown} {
		should.Refuse(profile.Systems.Load(name))(t, want, "%s", name)
	}
}

// FuzzParseMemory: any text gives a usable memory system or an *Error.
func FuzzParseMemory(f *testing.F) {
	for _, name := range profile.Systems.Names() {
		text := must.Get(profile.Systems.Source(name))(f)
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := profile.ParseMemory("fuzz.toml", []byte(text))
		if failed(t, err) {
			return
		}
		if s.Processor.Cycle <= 0 || s.Processor.Word < 1 || s.NIC.Block%s.Processor.Word != 0 || s.NIC.MTU < 1 || (s.Bus == nil) == (s.PCIe == nil) {
			t.Fatalf("%+v", s)
		}
		if b := s.Bus; b != nil && (b.Cycle <= 0 || b.Data(1, s.NIC.DMA) < 1 || s.L1.Sets() < 1 || s.L2.Sets() < 1 || s.L2.Line < s.L1.Line || s.NIC.Queue < s.NIC.Block) {
			t.Fatalf("%+v", s)
		}
	})
}
