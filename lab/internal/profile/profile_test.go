package profile_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	if got := p.Receiver.Write.Transfer(1000); got != profile.Micros(23) {
		t.Errorf("1000 bytes at 50 MB/s after 3 us: %v", got.Microseconds())
	}
}

func TestBadProfiles(t *testing.T) {
	replace := func(old, new string) string {
		if !strings.Contains(good, old) {
			t.Fatalf("no %q to replace", old)
		}
		return strings.Replace(good, old, new, 1)
	}
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
		own, err := profile.Parse("mine.toml", []byte("base = \""+c.name+"\"\n"+c.text))
		if err != nil {
			t.Errorf("%s: %v", c.name, err)
			continue
		}
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
