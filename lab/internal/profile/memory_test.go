package profile_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

func TestMemorySystems(t *testing.T) {
	want := []string{"pcie4-x16-100g", "pcie5-x16-400g", "sonic-via", "sonic-via-1200", "sonic-via-800"}
	if got := profile.Systems.Names(); !slices.Equal(got, want) {
		t.Fatalf("%v, want %v", got, want)
	}
	for _, name := range want {
		s, err := profile.Systems.Load(name)
		if err != nil {
			t.Fatal(err)
		}
		if s.Name != name || s.Summary == "" || (s.Bus == nil) != strings.HasPrefix(name, "pcie") || (s.PCIe == nil) == strings.HasPrefix(name, "pcie") {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestDataCycles: data takes whole cycles, at the bus's rate or at a slower engine's.
func TestDataCycles(t *testing.T) {
	s, err := profile.Systems.Load("sonic-via")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		bytes int
		rate  float64
		want  int
	}{{32, 1600, 2}, {32, 1200, 3}, {32, 800, 4}, {32, 1599, 3}, {32, 1e6, 2}, {1, 1600, 1}, {8, 1600, 1}, {17, 1600, 2}, {128, 1200, 11}} {
		if got := s.Bus.Data(c.bytes, c.rate); got != c.want {
			t.Errorf("%d bytes at %g MB/s: %d cycles, want %d", c.bytes, c.rate, got, c.want)
		}
	}
	if s.Bus.Peak() != 1600 || s.L1.Sets() != 512 || s.L2.Sets() != 4096 {
		t.Errorf("peak %v MB/s, %d and %d sets", s.Bus.Peak(), s.L1.Sets(), s.L2.Sets())
	}
	for n, want := range map[int]int{1: 1, 1500: 1, 1501: 2, 4096: 3} {
		if got := s.NIC.Frames(n); got != want {
			t.Errorf("%d bytes in %d frames, want %d", n, got, want)
		}
	}
}

func TestBadMemorySystems(t *testing.T) {
	source := func(name string) string {
		text, err := profile.Systems.Source(name)
		if err != nil {
			t.Fatal(err)
		}
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
		{"not TOML", "bus = [", "", profile.ErrSyntax},
		{"empty", "", "processor.clock", profile.ErrMissing},
		{"unknown key", bus + "speed = 1\n", "nic.speed", profile.ErrUnknownKey},
		{"key of a cost profile", bus + "[link]\nlatency = \"1 us\"\n", "link", profile.ErrUnknownKey},
		{"no clock", replace(bus, `clock = "1 GHz"`, ""), "processor.clock", profile.ErrMissing},
		{"clock without a unit", replace(bus, `"1 GHz"`, `"1"`), "processor.clock", profile.ErrValue},
		{"clock that stands", replace(bus, `"1 GHz"`, `"0 GHz"`), "processor.clock", profile.ErrValue},
		{"clock that is no number", replace(bus, `"1 GHz"`, `"NaN GHz"`), "processor.clock", profile.ErrValue},
		{"negative work", replace(bus, "work  = 3", "work = -1"), "processor.work", profile.ErrValue},
		{"work in part", replace(bus, "work  = 3", "work = 2.5"), "processor.work", profile.ErrValue},
		{"work without end", replace(bus, "work  = 3", "work = 100001"), "processor.work", profile.ErrValue},
		{"long words", replace(bus, `word  = "8 B"`, `word = "16 B"`), "processor.word", profile.ErrValue},
		{"words that do not fill a block", replace(bus, `word  = "8 B"`, `word = "3 B"`), "processor.word", profile.ErrValue},
		{"no address", replace(bus, "address     = 1", "address = 0"), "bus.address", profile.ErrValue},
		{"no arbitration", replace(bus, "arbitration = 1", ""), "bus.arbitration", profile.ErrMissing},
		{"sets by three", replace(bus, `"32 KiB"`, `"48 KiB"`), "l1.size", profile.ErrValue},
		{"line by three", replace(bus, `line    = "32 B"`, `line = "48 B"`), "l1.size", profile.ErrValue},
		{"no ways", replace(bus, "ways    = 2", "ways = 0"), "l1.ways", profile.ErrValue},
		{"cache of a line", replace(bus, `"32 KiB"`, `"64 B"`) + "\n[extra]\n", "extra", profile.ErrUnknownKey},
		{"more ways than lines", replace(bus, "ways    = 2", "ways = 64") + "\n", "", nil},
		{"short lines behind long ones", replace(bus, `line    = "128 B"`, `line = "16 B"`), "l2.line", profile.ErrValue},
		{"block on a bus", bus + "block = \"64 B\"\n", "nic.block", profile.ErrValue},
		{"rate", replace(bus, `"1600 MB/s"`, `"-1600 MB/s"`), "nic.dma", profile.ErrValue},
		{"mtu", replace(bus, `"1500 B"`, `"1 B"`), "nic.mtu", profile.ErrValue},
		{"queue", replace(bus, `"8 KiB"`, `"8 B"`), "nic.queue", profile.ErrValue},
		{"bus and PCIe", "profile = \"pcie4-x16-100g\"\n" + bus, "bus", profile.ErrMissing},
		{"neither", replace(pcie, `profile = "pcie4-x16-100g"`, ""), "bus", profile.ErrMissing},
		{"profile of another kind", replace(pcie, `= "pcie4-x16-100g"`, `= "alcor"`), "profile", profile.ErrBase},
		{"profile that is not there", replace(pcie, `= "pcie4-x16-100g"`, `= "pcie9"`), "profile", profile.ErrBase},
		{"profile elsewhere", replace(pcie, `= "pcie4-x16-100g"`, `= "/etc/passwd"`), "profile", profile.ErrBase},
		{"no block", replace(pcie, `block  = "64 B"`, ""), "nic.block", profile.ErrMissing},
		{"base that is not there", "base = \"none\"\n", "base", profile.ErrBase},
		{"base with a base", "base = \"sonic-via-800\"\n", "", nil},
		{"table as a value", "bus = 5\n", "bus", profile.ErrValue},
		{"table of another kind", replace(bus, "[bus]", "[[bus]]"), "bus", profile.ErrValue},
		{"value as a table", replace(bus, "[bus]", "[bus.clock]"), "bus.clock", profile.ErrUnknownKey},
		{"base in a file", "base = \"mine.toml\"\n", "base", profile.ErrBase},
	} {
		_, err := profile.ParseMemory("dir/mine.toml", []byte(c.text))
		var e *profile.Error
		if !errors.Is(err, c.want) || err != nil && !errors.As(err, &e) {
			t.Errorf("%s: %v, want %v", c.name, err, c.want)
			continue
		}
		if err != nil && (e.Key != c.key || !strings.HasPrefix(err.Error(), "dir/mine.toml")) {
			t.Errorf("%s: key %q, want %q: %v", c.name, e.Key, c.key, err)
		}
		if c.want == profile.ErrValue && e.Allowed == "" {
			t.Errorf("%s: no allowed range: %v", c.name, err)
		}
	}
	for name, want := range map[string]error{"vax": profile.ErrUnknown, "none.toml": profile.ErrUnreadable, "../platforms/alcor": profile.ErrUnknown} {
		if _, err := profile.Systems.Load(name); !errors.Is(err, want) {
			t.Errorf("%s: %v, want %v", name, err, want)
		}
	}
}

// FuzzParseMemory: any text gives a usable memory system or an *Error.
func FuzzParseMemory(f *testing.F) {
	for _, name := range profile.Systems.Names() {
		text, err := profile.Systems.Source(name)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Fuzz(func(t *testing.T, text string) {
		s, err := profile.ParseMemory("fuzz.toml", []byte(text))
		var e *profile.Error
		if err != nil {
			if !errors.As(err, &e) {
				t.Fatalf("%T %v", err, err)
			}
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
