package profile_test

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

// TestMini: the steps are the paper's, and each figure has a comment that says where it
// comes from.
func TestMini(t *testing.T) {
	if got := profile.CellHosts.Names(); !slices.Equal(got, []string{"mini"}) {
		t.Fatal(got)
	}
	got, err := profile.CellHosts.Load("mini")
	if err != nil {
		t.Fatal(err)
	}
	want := profile.Cells{Name: "mini", Summary: got.Summary, Send: 400_000, Receive: 300_000, Path: 270_000, Bytes: 56, Store: 230_000, Turnaround: 750_000}
	if d := cmp.Diff(want, *got); d != "" || got.Summary == "" {
		t.Error(d)
	}
	text, err := profile.CellHosts.Source("mini")
	if err != nil {
		t.Fatal(err)
	}
	if figures, comments := strings.Count(string(text), "=")-1, strings.Count(string(text), "\n# "); figures != 7 || comments < 6 {
		t.Errorf("%d figures, %d lines of comment", figures, comments)
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

func TestCellFiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "mine.toml")
	if err := os.WriteFile(file, []byte(goodCells), 0o600); err != nil {
		t.Fatal(err)
	}
	p, err := profile.CellHosts.Load(file)
	if err != nil || p.Name != "mine" || p.Path != 0 || p.Send != 400_000 {
		t.Errorf("%+v, %v", p, err)
	}
	for _, name := range []string{"maxi", "alcor", ""} {
		var e *profile.Error
		if _, err := profile.CellHosts.Load(name); !errors.Is(err, profile.ErrUnknown) || !errors.As(err, &e) || !strings.Contains(e.Allowed, "mini") {
			t.Errorf("%q: %v", name, err)
		}
	}
	if _, err := profile.CellHosts.Load(file + ".none.toml"); !errors.Is(err, profile.ErrUnreadable) || !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
}

func TestBadCellFiles(t *testing.T) {
	for _, c := range []struct {
		old, new, key string
		want          error
	}{
		{"[clock]", "[clock", "", profile.ErrSyntax},
		{"[host]", "[host]\ncost = \"1 us\"", "host.cost", profile.ErrUnknownKey},
		{"[clock]", "base = \"none\"\n[clock]", "base", profile.ErrBase},
		{`period = "20 ns"`, "", "clock.period", profile.ErrMissing},
		{`"20 ns"`, `"0 ns"`, "clock.period", profile.ErrValue},
		{`"20 ns"`, `"20"`, "clock.period", profile.ErrValue},
		{`"20 ns"`, `"-20 ns"`, "clock.period", profile.ErrValue},
		{`"20 ns"`, `"1 ms"`, "nic.send", profile.ErrValue},
		{"send = 20", "", "nic.send", profile.ErrMissing},
		{"send = 20", "send = 0", "nic.send", profile.ErrValue},
		{"send = 20", "send = 9223372036854775807", "nic.send", profile.ErrValue},
		{"send = 20", "send = 1.5", "nic.send", profile.ErrValue},
		{"receive = 15", "receive = -1", "nic.receive", profile.ErrValue},
		{`cell = "56 B"`, "", "nic.cell", profile.ErrMissing},
		{`"56 B"`, `"47 B"`, "nic.cell", profile.ErrValue},
		{`"56 B"`, `"56.5 B"`, "nic.cell", profile.ErrValue},
		{`latency = "0 ns"`, "", "path.latency", profile.ErrMissing},
		{`"230 ns"`, `"11 ms"`, "host.store", profile.ErrValue},
		{`turnaround = "1 us"`, "", "host.turnaround", profile.ErrMissing},
	} {
		if !strings.Contains(goodCells, c.old) {
			t.Fatalf("no %q to replace", c.old)
		}
		p, err := profile.ParseCells("bad.toml", []byte(strings.Replace(goodCells, c.old, c.new, 1)))
		var e *profile.Error
		if !errors.As(err, &e) || !errors.Is(err, c.want) || e.Key != c.key || !strings.HasPrefix(e.File, "bad.toml") || p != nil {
			t.Errorf("%q: %v", c.new, err)
		}
	}
}

// FuzzParseCells: any text is a platform whose steps take some time, or an *Error.
func FuzzParseCells(f *testing.F) {
	f.Add(goodCells)
	f.Add(strings.Replace(goodCells, "20 ns", "1e-9 ms", 1))
	f.Fuzz(func(t *testing.T, text string) {
		p, err := profile.ParseCells("fuzz.toml", []byte(text))
		var e *profile.Error
		if err != nil {
			if !errors.As(err, &e) {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		const most = profile.Time(1e10) // 10 ms
		if p.Send < 1 || p.Send > most || p.Receive < 1 || p.Receive > most || p.Path < 0 || p.Path > most || p.Store < 0 || p.Turnaround < 0 || p.Bytes < 48 {
			t.Fatalf("%+v", p)
		}
	})
}

// TestCellsBase: a platform with cells takes from its base what it does not say itself, and a
// base that is not there is refused.
func TestCellsBase(t *testing.T) {
	file := filepath.Join(t.TempDir(), "fast.toml")
	write := func(text string) {
		t.Helper()
		if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("base = \"mini\"\n[path]\nlatency = \"70 ns\"\n")
	mini, err := profile.CellHosts.Load("mini")
	if err != nil {
		t.Fatal(err)
	}
	want := *mini
	want.Name, want.Path = "fast", 70_000
	if got, err := profile.CellHosts.Load(file); err != nil || *got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	write("base = \"alcor\"\n")
	var bad *profile.Error
	if _, err := profile.CellHosts.Load(file); !errors.As(err, &bad) || bad.Key != "base" || !errors.Is(err, profile.ErrBase) {
		t.Errorf("%v", err)
	}
}
