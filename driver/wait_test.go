package driver_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestWaiting: whatever is set, a wait ends with its context, and a message ends it.
func TestWaiting(t *testing.T) {
	for name, w := range map[string]driver.Waiting{
		"default":          {},
		"spin only":        {Spin: time.Hour},
		"let others run":   {Spin: -1, Yield: time.Hour},
		"sleep at once":    {Spin: -1, Yield: -1},
		"sleep briefly":    {Spin: -1, Yield: -1, Sleep: time.Nanosecond},
		"never sleep":      {Sleep: -1},
		"one after other":  {Spin: time.Microsecond, Yield: time.Microsecond, Sleep: time.Microsecond},
		"only let run":     {Spin: -1, Yield: -1, Sleep: -1},
		"long, then never": {Spin: time.Millisecond, Yield: time.Millisecond, Sleep: -1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, nil, 0, 0)
			r.n.SetWaiting(w)
			d := descriptor(t, r.m, 0, 64)
			if err := r.v.PostRecv(d); err != nil {
				t.Fatal(err)
			}
			short, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
			defer cancel()
			if _, err := r.v.RecvWait(short); !errors.Is(err, context.DeadlineExceeded) {
				t.Error(err)
			}
			time.AfterFunc(5*time.Millisecond, func() { r.complete(true, 0, 64, datasheet.StatusDone) })
			if got, err := r.v.RecvWait(contextFor(t)); got != d || err != nil {
				t.Error(got, err)
			}
		})
	}
}
