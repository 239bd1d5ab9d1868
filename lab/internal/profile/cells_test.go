package profile_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
)

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
		if !strings.Contains(goodCells, c.old) {
			t.Fatalf("no %q to replace", c.old)
		}
		_, err := profile.ParseCells("dir/mine.toml", []byte(strings.Replace(goodCells, c.old, c.new, 1)))
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
	mini, err := profile.CellHosts.Load("mini")
	must.OK(t, err)
	want := *mini
	want.Name, want.Path = "fast", 70_000
	dir := t.TempDir()
	if got, err := profile.CellHosts.Load(written(t, dir, "fast.toml", "base = \"mini\"\n[path]\nlatency = \"70 ns\"\n")); err != nil || *got != want {
		t.Errorf("%+v, %v, want %+v", got, err, want)
	}
	_, err = profile.ParseCells("dir/mine.toml", []byte("base = \"alcor\"\n"))
	refused(t, "a base of another kind", err, "base", profile.ErrBase)
}
