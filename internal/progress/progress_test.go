package progress_test

import (
	"bytes"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
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

// TestLines: what takes long shows a line a second and a last one, and what does not, or is not to be shown, nothing.
func TestLines(t *testing.T) {
	for _, c := range []struct {
		style    progress.Style
		total    int64
		steps, n int
		want     string
	}{
		{progress.None, 1e6, 9, 1e5, ""}, {progress.Bar, 1e6, 9, 1e5, ""}, {progress.Plain, 1e6, 9, 1e5, ""}, {progress.None, 4e6, 50, 1e5, ""},
		{progress.Plain, 4e6, 25, 1e5, "sending: 1.0 of 4.0 MB (25 %), 1.0 MB/s\nsending: 2.0 of 4.0 MB (50 %), 1.0 MB/s\n" +
			"sending: 2.5 of 4.0 MB (62 %), 1.0 MB/s\n"},
		{progress.Plain, -1, 10, 2e5, "sending: 2.0 MB, 2.0 MB/s\nsending: 2.0 MB, 2.0 MB/s\n"},
	} {
		should.Be(t, run(t, c.style, c.total, c.steps, c.n), c.want, "%+v", c)
	}
}

func TestSteps(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w bytes.Buffer
		m := progress.NewSteps(&w, progress.Plain, "measuring", 6)
		time.Sleep(2 * time.Second)
		m.Add(1)
		should.Be(t, w.String(), "measuring: 1 of 6\n")
	})
}

func TestBarIsWipedOff(t *testing.T) {
	for name, total := range map[string]int64{"known": 4e6, "unknown": -1} {
		t.Run(name, func(t *testing.T) {
			out := run(t, progress.Bar, total, 25, 1e5)
			should.Contain(t, out, "sending", "nothing shown")
			if strings.Contains(out, "\n") {
				t.Errorf("the bar takes more than a line: %q", out)
			}
			if !strings.HasSuffix(out, "\r\x1b[K") {
				t.Errorf("left behind: %q", out)
			}
		})
	}
}

// TestBarStaysOnItsLine: the longest line of hours and terabytes fits.
func TestBarStaysOnItsLine(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w bytes.Buffer
		m := progress.New(&w, progress.Bar, "receiving "+strings.Repeat("überlang-", 9)+".tar", 9e12)
		for range 200 {
			time.Sleep(500 * time.Second)
			m.Add(9e12 / 200)
		}
		for l := range strings.SplitSeq(w.String(), "\r") {
			if n := utf8.RuneCountInString(strings.TrimSuffix(l, "\x1b[K")); n > 79 {
				t.Errorf("%d columns: %q", n, l)
			}
		}
	})
}
