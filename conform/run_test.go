package conform

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/via"
)

// noNICs is for checks that use none.
func noNICs(T) (a, b *via.NIC) { return nil, nil }

// emulated opens two NICs in this process.
func emulated(t T) (a, b *via.NIC) {
	x, y, err := emulator.Pair(emulator.PairOptions{})
	OK(t, err)
	closeAtEnd(t, x, y) // if no NIC has closed them
	return OpenDevice(t, x, via.Options{}), OpenDevice(t, y, via.Options{})
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
		"goes on":    {func(t T) { t.Errorf("first %d", 1); t.Error("second", 2) }, Outcome{Failed: true}, []string{"run_test.go:40: first 1", "run_test.go:40: second 2"}},
		"stops":      {func(t T) { failBehindAHelper(t); t.Error("not reached") }, Outcome{Failed: true}, []string{"x/stops: run_test.go:41: at last"}},
		"is skipped": {func(t T) { t.Skip("no", "such thing"); t.Error("not reached") }, Outcome{Skipped: true}, []string{"no such thing"}},
		"panics":     {func(t T) { panic("ouch") }, Outcome{Failed: true}, []string{"panic: ouch"}},
		"a part stops": {func(t T) {
			t.(*World).part("part", func(t *World) { t.Fatalf("%s", t.Name()) })
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
		"leaves goroutines": {func(t T) {
			for range 10 { // those of other tests may end meanwhile
				go func() { <-hold }()
			}
		}, Outcome{Failed: true}, []string{"goroutine"}},
		"does not end":   {func(t T) { <-hold }, Outcome{Failed: true, Stuck: true}, []string{"has not ended\n"}},
		"waits too long": {func(t T) { <-t.Context().Done(); t.Error("no answer") }, Outcome{Failed: true}, []string{"no answer"}},
	} {
		t.Run(name, func(t *testing.T) {
			limit := time.Minute
			switch name {
			case "leaves goroutines", "does not end":
				limit = 100 * time.Millisecond
			case "waits too long":
				limit = 2 * time.Second
			}
			o := Check{Section: "x", Name: name, run: func(w *World) { c.f(w) }}.Run(t.Context(), limit, noNICs)
			if o.Failed != c.want.Failed || o.Skipped != c.want.Skipped || o.Stuck != c.want.Stuck || o.Took <= 0 {
				t.Errorf("outcome %+v, want %+v", o, c.want)
			}
			if !slices.EqualFunc(o.Messages, c.says, strings.Contains) {
				t.Errorf("messages %q, want %q", o.Messages, c.says)
			}
		})
	}
}

// TestNames: no two checks have the same name, and the checks of a section stand together.
func TestNames(t *testing.T) {
	seen := map[string]bool{}
	last := 0
	all := All(nil)
	for _, c := range all {
		section := slices.Index(all.Sections(), c.Section)
		if section < last || seen[c.String()] {
			t.Errorf("%s: out of place, or there are two", c)
		}
		last, seen[c.String()] = section, true
	}
}

// TestCancelled: the command is interrupted.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if o := VIs()[0].Run(ctx, time.Minute, emulated); !o.Failed || o.Stuck {
		t.Errorf("%+v", o)
	}
}
