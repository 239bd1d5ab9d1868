package progress_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/trapeze-nic/trapeze/internal/progress"
)

// run adds n bytes every 100 ms of a clock that does not take that long.
func run(t *testing.T, style progress.Style, total int64, steps, n int) (out string) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		var w bytes.Buffer
		m := progress.New(&w, style, "sending", total)
		for range steps {
			time.Sleep(100 * time.Millisecond)
			m.Add(n)
		}
		m.Stop()
		out = w.String()
	})
	return out
}

func TestShortThingsShowNothing(t *testing.T) {
	for _, s := range []progress.Style{progress.None, progress.Bar, progress.Plain} {
		if out := run(t, s, 1e6, 9, 1e5); out != "" {
			t.Errorf("style %v printed %q", s, out)
		}
	}
}

func TestPlain(t *testing.T) {
	want := []string{
		"sending: 1.0 of 4.0 MB (25 %), 1.0 MB/s",
		"sending: 2.0 of 4.0 MB (50 %), 1.0 MB/s",
		"sending: 2.5 of 4.0 MB (62 %), 1.0 MB/s",
	}
	got := strings.Split(strings.TrimSuffix(run(t, progress.Plain, 4e6, 25, 1e5), "\n"), "\n")
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestPlainOfUnknownLength(t *testing.T) {
	if got := run(t, progress.Plain, -1, 10, 2e5); got != "sending: 2.0 MB, 2.0 MB/s\nsending: 2.0 MB, 2.0 MB/s\n" {
		t.Errorf("got %q", got)
	}
}

func TestSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w bytes.Buffer
		m := progress.NewSteps(&w, progress.Plain, "measuring", 6)
		time.Sleep(2 * time.Second)
		m.Add(1)
		if got := w.String(); got != "measuring: 1 of 6\n" {
			t.Errorf("got %q", got)
		}
	})
}

func TestBarIsWipedOff(t *testing.T) {
	for name, total := range map[string]int64{"known": 4e6, "unknown": -1} {
		t.Run(name, func(t *testing.T) {
			out := run(t, progress.Bar, total, 25, 1e5)
			if !strings.Contains(out, "sending") {
				t.Errorf("nothing shown: %q", out)
			}
			if strings.Contains(out, "\n") {
				t.Errorf("the bar takes more than a line: %q", out)
			}
			last := out[strings.LastIndex(strings.TrimSuffix(out, "\r"), "\r")+1:]
			if strings.TrimSpace(last) != "" {
				t.Errorf("left behind: %q", last)
			}
		})
	}
}

func TestNothingMeansNothing(t *testing.T) {
	if out := run(t, progress.None, 4e6, 50, 1e5); out != "" {
		t.Errorf("printed %q", out)
	}
}

func TestFit(t *testing.T) {
	const name = "receiving überlang-und-noch-länger.tar"
	for _, c := range []struct {
		style   progress.Style
		columns int
		want    progress.Style
		whole   bool
	}{
		{progress.Bar, 0, progress.Bar, true},
		{progress.Bar, 5, progress.Plain, true},
		{progress.Bar, 77, progress.Plain, true},
		{progress.Bar, 78, progress.Bar, false},
		{progress.Bar, 80, progress.Bar, false},
		{progress.Bar, 200, progress.Bar, true},
		{progress.Plain, 5, progress.Plain, true},
		{progress.None, 5, progress.None, true},
	} {
		style, what := progress.Fit(c.style, name, c.columns)
		if style != c.want || (what == name) != c.whole || !utf8.ValidString(what) {
			t.Errorf("style %v on %d columns: %v, %q", c.style, c.columns, style, what)
		}
	}
}

// TestBarStaysOnItsLine: the longest line of hours and terabytes fits.
func TestBarStaysOnItsLine(t *testing.T) {
	const columns = 80
	for name, total := range map[string]int64{"known": 9e12, "unknown": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var w bytes.Buffer
				style, what := progress.Fit(progress.Bar, "receiving a-file-with-a-long-name", columns)
				m := progress.New(&w, style, what, total)
				for range 200 {
					time.Sleep(500 * time.Second)
					m.Add(9e12 / 200)
				}
				lines := strings.FieldsFunc(w.String(), func(r rune) bool { return r == '\r' || r == '\n' })
				if len(lines) == 0 {
					t.Fatal("nothing was drawn")
				}
				for _, l := range lines {
					if n := utf8.RuneCountInString(l); n > columns {
						t.Errorf("%d columns: %q", n, l)
					}
				}
			})
		})
	}
}
