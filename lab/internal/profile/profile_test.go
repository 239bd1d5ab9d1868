package profile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

func TestBuiltIn(t *testing.T) {
	want := []string{"alcor", "alcor-hpdc97", "alcor-miata", "p6-natoma", "pcie3-x8-10g", "pcie4-x16-100g", "pcie5-x16-400g", "pcie6-x16-800g", "pii-440lx"}
	must.Same(t, profile.Hosts.Names(), want)
	for _, name := range want {
		p := must.Get(profile.Hosts.Load(name))(t)
		if p.Name != name || p.Summary == "" || p.Sender.FullDuplex != strings.HasPrefix(name, "pcie") {
			t.Errorf("%s: %+v", name, p)
		}
	}
}

const good = `
[bus]
duplex = "half"
read = "100 MB/s"
write = "50 MB/s"
overhead = "3 us"
[host]
cost = "10 us"
[nic]
decision = "1 us"
completion = "0 us"
packet = "500 ns"
buffers = 2
[link]
bandwidth = "1.28 Gb/s"
overhead = "0 us"
latency = "1 us"
header = "128 B"
`

func TestUnits(t *testing.T) {
	p := must.Get(profile.Parse("mine.toml", []byte(good+"[sender.bus]\nread = \"7 GB/s\"\nread_overhead = \"0.2 us\"\n")))(t)
	if p.Name != "mine" || p.Link.Pulse.Bandwidth() != 160 || p.NIC.Packet != 500_000 || p.Receiver.Read.Bandwidth() != 100 {
		t.Errorf("%+v", p)
	}
	// 143 fs a byte is 6.993 GB/s: costs are whole femtoseconds.
	if p.Sender.Read != (profile.Cost{Overhead: 200_000, PerByte: 142857}) || p.Sender.Write.Overhead != 3_000_000 {
		t.Errorf("sender: %+v", p.Sender)
	}
	should.Be(t, p.Receiver.Write.Transfer(1000), profile.Micros(23), "1000 bytes at 50 MB/s after 3 us")
}

// replaced is a text in which one thing stands in place of another, which is there.
func replaced(t *testing.T, text, old, new string) string {
	t.Helper()
	if !strings.Contains(text, old) {
		t.Fatalf("no %q to replace", old)
	}
	return strings.Replace(text, old, new, 1)
}

func TestBadProfiles(t *testing.T) {
	replace := func(old, new string) string { return replaced(t, good, old, new) }
	for _, c := range []struct {
		name, text, key string
		want            error
	}{
		{"not TOML", "bus = [", "", profile.ErrSyntax},
		{"unknown key", good + "[nic2]\nx = 1\n", "nic2.x", profile.ErrUnknownKey},
		{"unknown key in a table", replace(`duplex = "half"`, "duplex = \"half\"\nspeed = \"1 MB/s\""), "bus.speed", profile.ErrUnknownKey},
		{"missing bandwidth", replace(`read = "100 MB/s"`, ""), "bus.read", profile.ErrMissing},
		{"negative", replace(`"3 us"`, `"-3 us"`), "bus.overhead", profile.ErrValue},
		{"zero bandwidth", replace(`"100 MB/s"`, `"0 MB/s"`), "bus.read", profile.ErrValue},
		{"not a number", replace(`"100 MB/s"`, `"NaN MB/s"`), "bus.read", profile.ErrValue},
		{"underscore", replace(`"100 MB/s"`, `"1_00 MB/s"`), "bus.read", profile.ErrValue},
		{"hexadecimal", replace(`"100 MB/s"`, `"0x1p6 MB/s"`), "bus.read", profile.ErrValue},
		{"in the host's own table", good + "[receiver.bus]\nwrite = \"-1 MB/s\"\n", "receiver.bus.write", profile.ErrValue},
		{"own overhead of one direction", good + "[sender.bus]\nread_overhead = \"1 s\"\n", "sender.bus.read_overhead", profile.ErrValue},
		{"part of a byte", replace(`"128 B"`, `"1.5 B"`), "link.header", profile.ErrValue},
		{"same key twice", replace(`cost = "10 us"`, "cost = \"10 us\"\ncost = \"10 us\""), "", profile.ErrSyntax},
		{"buffers too large for a number", replace("buffers = 2", "buffers = 99999999999999999999"), "", profile.ErrSyntax},
		{"buffers as text", replace("buffers = 2", `buffers = "2"`), "nic.buffers", profile.ErrValue},
		{"no unit", replace(`"100 MB/s"`, `"100"`), "bus.read", profile.ErrValue},
		{"unknown unit", replace(`"100 MB/s"`, `"100 furlongs"`), "bus.read", profile.ErrValue},
		{"bare number", replace(`"100 MB/s"`, `100`), "bus.read", profile.ErrValue},
		{"bad duplex", replace(`"half"`, `"both"`), "bus.duplex", profile.ErrValue},
		{"too many buffers", replace("buffers = 2", "buffers = 99999"), "nic.buffers", profile.ErrValue},
		{"unknown base", "base = \"_nothing\"\n" + good, "base", profile.ErrBase},
	} {
		_, err := profile.Parse("dir/mine.toml", []byte(c.text))
		refused(t, c.name, err, c.key, c.want)
	}
}

// refused checks that an error is of a file's key, speaks of no Go types, and says what is allowed.
func refused(t *testing.T, name string, err error, key string, want error) {
	t.Helper()
	var e *profile.Error
	if !errors.Is(err, want) || !errors.As(err, &e) || e.Key != key || !strings.HasPrefix(err.Error(), "dir/mine.toml") ||
		want == profile.ErrValue && e.Allowed == "" || strings.Contains(err.Error(), "struct") {
		t.Errorf("%s: %v, want key %q, %v", name, err, key, want)
	}
}

// written writes a file.
func written(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	must.OK(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func TestFiles(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string { return written(t, dir, name, text) }
	write("common.toml", good)
	p := must.Get(profile.Hosts.Load(write("fast.toml", "base = \"common.toml\"\n[bus]\nread = \"200 MB/s\"\n")))(t)
	if p.Name != "fast" || p.Sender.Read.Bandwidth() != 200 || p.Sender.Write.Bandwidth() != 50 {
		t.Errorf("%+v", p)
	}
	for name, want := range map[string]error{
		write("self.toml", "base = \"self.toml\"\n"): profile.ErrBase,
		filepath.Join(dir, "none.toml"):              profile.ErrUnreadable,
		"nonsense":                                   profile.ErrUnknown,
		"../platforms/alcor":                         profile.ErrUnknown,
	} {
		should.Refuse(profile.Hosts.Load(name))(t, want, "%s", name)
	}
	must.OK(t, os.Mkdir(filepath.Join(dir, "dir.toml"), 0o700))
	should.Refuse(profile.Hosts.Load(filepath.Join(dir, "dir.toml")))(t, profile.ErrUnreadable, "a directory")
}

// TestBases: what a file says goes before what its base says, whichever table or key
// the base uses.
func TestBases(t *testing.T) {
	for _, c := range []struct {
		name, text string
		check      func(own, base *profile.Profile) bool
	}{
		{"p6-natoma", "[bus]\nread = \"50 MB/s\"\n", func(own, base *profile.Profile) bool {
			return own.Sender.Read.Bandwidth() == 50 && own.Sender.Write == base.Sender.Write && own.Host == base.Host && own.NIC == base.NIC
		}},
		{"alcor-miata", "[bus]\nwrite = \"50 MB/s\"\n", func(own, _ *profile.Profile) bool {
			return own.Sender.Write.Bandwidth() == 50 && own.Receiver.Write.Bandwidth() == 50
		}},
		{"pcie4-x16-100g", "[bus]\noverhead = \"1 us\"\n", func(own, base *profile.Profile) bool {
			return own.Sender.Read.Overhead == profile.Micros(1) && own.Receiver.Write.Overhead == profile.Micros(1) && own.Sender.Read.PerByte == base.Sender.Read.PerByte
		}},
		{"pcie4-x16-100g", "[receiver.bus]\nduplex = \"half\"\n", func(own, _ *profile.Profile) bool {
			return own.Sender.FullDuplex && !own.Receiver.FullDuplex
		}},
	} {
		own := must.Get(profile.Parse("mine.toml", []byte("base = \""+c.name+"\"\n"+c.text)))(t)
		base := must.Get(profile.Hosts.Load(c.name))(t)
		if !c.check(own, base) {
			t.Errorf("%s with %q: %+v", c.name, c.text, own)
		}
	}
}

// FuzzParse: any text gives a usable profile or an *Error.
func FuzzParse(f *testing.F) {
	f.Add(good)
	f.Add("base = \"_trapeze-1997\"\n[bus]\nread = \"1e3 MB/s\"\n")
	f.Fuzz(func(t *testing.T, text string) {
		p, err := profile.Parse("fuzz.toml", []byte(text))
		if failed(t, err) {
			return
		}
		for _, c := range []profile.Cost{p.Sender.Read, p.Sender.Write, p.Receiver.Read, p.Receiver.Write, p.Link.Pulse} {
			if c.PerByte < 1 || c.Overhead < 0 {
				t.Fatalf("%+v", c)
			}
		}
		if p.NIC.Buffers < 1 || p.Link.Header < 0 || p.Host < 0 {
			t.Fatalf("%+v", p)
		}
	})
}

// failed reports whether there is an error, which must be an *Error.
func failed(t *testing.T, err error) bool {
	t.Helper()
	var e *profile.Error
	if err != nil && !errors.As(err, &e) {
		t.Fatalf("%T %v", err, err)
	}
	return err != nil
}

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
	source := func(name string) string { return string(must.Get(profile.Systems.Source(name))(t)) }
	bus, pcie := source("sonic-via"), source("pcie4-x16-100g")
	replace := func(text, old, new string) string { return replaced(t, text, old, new) }
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
		f.Add(string(must.Get(profile.Systems.Source(name))(f)))
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

// TestMini: the steps are the paper's.
func TestMini(t *testing.T) {
	must.Same(t, profile.CellHosts.Names(), []string{"mini"})
	got := must.Get(profile.CellHosts.Load("mini"))(t)
	want := profile.Cells{Name: "mini", Summary: got.Summary, Period: 20_000, Send: 400_000, Receive: 300_000, Path: 270_000, Bytes: 56, Store: 230_000, Turnaround: 750_000}
	if d := cmp.Diff(want, *got); d != "" || got.Summary == "" {
		t.Error(d)
	}
}

const goodCells = `
[clock]
period = "20 ns"
[nic]
send = 20
receive = 15
cell = "56 B"
[path]
latency = "0 ns"
[host]
store = "230 ns"
turnaround = "1 us"
`

func TestBadCellFiles(t *testing.T) {
	for _, c := range []struct {
		old, new, key string
		want          error
	}{
		{"[clock]", "base = \"none\"\n[clock]", "base", profile.ErrBase},
		{`period = "20 ns"`, "", "clock.period", profile.ErrMissing},
		{`"20 ns"`, `"0 ns"`, "clock.period", profile.ErrValue},
		{`"20 ns"`, `"1 ms"`, "nic.send", profile.ErrValue},
		{"send = 20", "send = 0", "nic.send", profile.ErrValue},
		{"send = 20", "send = 9223372036854775807", "nic.send", profile.ErrValue},
		{`"56 B"`, `"47 B"`, "nic.cell", profile.ErrValue},
	} {
		_, err := profile.ParseCells("dir/mine.toml", []byte(replaced(t, goodCells, c.old, c.new)))
		refused(t, c.new, err, c.key, c.want)
	}
}

// FuzzParseCells: any text is a platform whose steps take some time, or an *Error.
func FuzzParseCells(f *testing.F) {
	f.Add(goodCells)
	f.Add(strings.Replace(goodCells, "20 ns", "1e-9 ms", 1))
	f.Fuzz(func(t *testing.T, text string) {
		p, err := profile.ParseCells("fuzz.toml", []byte(text))
		if failed(t, err) {
			return
		}
		const most = profile.Time(1e10) // 10 ms
		if p.Send < 1 || p.Send > most || p.Receive < 1 || p.Receive > most || p.Path < 0 || p.Path > most || p.Store < 0 || p.Turnaround < 0 || p.Bytes < 48 {
			t.Fatalf("%+v", p)
		}
	})
}

// TestCellsBase: a platform with cells takes from its base what it does not say itself, and a
// base of another kind is refused.
func TestCellsBase(t *testing.T) {
	want := *must.Get(profile.CellHosts.Load("mini"))(t)
	want.Name, want.Path = "fast", 70_000
	dir := t.TempDir()
	if got, err := profile.CellHosts.Load(written(t, dir, "fast.toml", "base = \"mini\"\n[path]\nlatency = \"70 ns\"\n")); err != nil || *got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	_, err := profile.ParseCells("dir/mine.toml", []byte("base = \"alcor\"\n"))
	refused(t, "a base of another kind", err, "base", profile.ErrBase)
}
