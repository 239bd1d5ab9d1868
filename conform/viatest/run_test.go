package viatest

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/via"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// noNICs is for checks that use none.
func noNICs(T) (a, b *via.NIC) { return nil, nil }

// emulated opens two NICs in this process.
func emulated(t T) (a, b *via.NIC) {
	x, y, err := emulator.Pair()
	OK(t, err)
	for _, d := range []*emulator.Device{x, y} {
		t.Cleanup(func() { _ = d.Close() }) // of those that no NIC has closed
	}
	open := func(d *emulator.Device) *via.NIC {
		nic, err := via.OpenDevice(Context(t), d)
		OK(t, err)
		t.Cleanup(func() {
			if err := nic.Close(); err != nil && !errors.Is(err, via.ErrClosed) {
				t.Error(err)
			}
		})
		return nic
	}
	return open(x), open(y)
}

func failBehindAHelper(t T) {
	t.Helper()
	t.Fatal("at", "last")
}

// TestOutcomes: outside go test, checks end as they do there.
func TestOutcomes(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	for name, c := range map[string]struct {
		f    func(t T)
		want Outcome
		says []string // a part of each message
	}{
		"passes":     {func(t T) {}, Outcome{}, nil},
		"goes on":    {func(t T) { t.Errorf("first %d", 1); t.Error("second", 2) }, Outcome{Failed: true}, []string{"run_test.go:57: first 1", "run_test.go:57: second 2"}},
		"stops":      {func(t T) { failBehindAHelper(t); t.Error("not reached") }, Outcome{Failed: true}, []string{"x/stops: run_test.go:58: at last"}},
		"is skipped": {func(t T) { t.Skip("no", "such thing"); t.Error("not reached") }, Outcome{Skipped: true}, []string{"no such thing"}},
		"panics":     {func(t T) { panic("ouch") }, Outcome{Failed: true}, []string{"panic: ouch"}},
		"a part stops": {func(t T) {
			subtest(t, "part", func(t T) { t.Fatalf("%s", t.Name()) })
			t.Error("reached")
		}, Outcome{Failed: true}, []string{"x/a part stops/part", "reached"}},
		"cleanups": {func(t T) {
			t.Cleanup(func() { t.Error("runs last") })
			t.Cleanup(func() {
				if t.Context().Err() == nil {
					t.Error("the context goes on")
				}
				t.Fatal("runs first")
			})
		}, Outcome{Failed: true}, []string{"runs first", "runs last"}},
		"leaves a goroutine": {func(t T) { go func() { <-hold }() }, Outcome{Failed: true}, []string{"goroutine"}},
		"does not end":       {func(t T) { <-hold }, Outcome{Failed: true, Stuck: true}, []string{"has not ended\n"}},
		"waits too long":     {func(t T) { <-t.Context().Done(); t.Error("no answer") }, Outcome{Failed: true}, []string{"no answer"}},
	} {
		t.Run(name, func(t *testing.T) {
			limit := time.Minute
			switch name {
			case "leaves a goroutine", "does not end":
				limit = 100 * time.Millisecond
			case "waits too long":
				limit = 2 * time.Second
			}
			o := Check{Section: "x", Name: name, f: func(t T, _ *Pair) { c.f(t) }}.Run(t.Context(), limit, noNICs)
			if o.Failed != c.want.Failed || o.Skipped != c.want.Skipped || o.Stuck != c.want.Stuck || o.Took <= 0 {
				t.Errorf("outcome %+v, want %+v", o, c.want)
			}
			if !slices.EqualFunc(o.Messages, c.says, strings.Contains) {
				t.Errorf("messages %q, want %q", o.Messages, c.says)
			}
		})
	}
}

// TestEachCheckStandsAlone runs every check as 'trapeze conform' does. Their sections
// and names are those that it lists.
func TestEachCheckStandsAlone(t *testing.T) {
	seen := map[string]bool{}
	last := 0
	for _, c := range Checks() {
		section := slices.Index(Sections, c.Section)
		if section < last || seen[c.String()] {
			t.Errorf("%s: out of place, or there are two", c)
		}
		last, seen[c.String()] = section, true
		if o := c.Run(t.Context(), 5*time.Minute, emulated); o.Failed || o.Skipped {
			t.Errorf("%s: %+v", c, o)
		}
	}
	for _, s := range Sections {
		if !slices.ContainsFunc(Checks(), func(c Check) bool { return c.Section == s }) {
			t.Errorf("no check in section %s", s)
		}
	}
}

// TestCancelled: the command is interrupted.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if o := Checks()[0].Run(ctx, time.Minute, emulated); !o.Failed || o.Stuck {
		t.Errorf("%+v", o)
	}
}
