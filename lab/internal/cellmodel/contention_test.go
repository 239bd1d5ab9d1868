package cellmodel_test

import (
	"errors"
	"math"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/cells"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/cellmodel"
)

// TestContention: a host that keeps up never says stop. One that does not carries what it can store,
// and loses nothing if it says stop; if it does not, each channel counts what it has lost.
func TestContention(t *testing.T) {
	p := mini(t)
	for _, c := range []struct {
		busy  float64
		never bool
	}{{0, false}, {20, false}, {50, false}, {90, false}, {0, true}, {50, true}, {90, true}} {
		r := run(t, cellmodel.Options{Platform: p, Scenario: "contention", Busy: c.busy, NeverStop: c.never})
		sent, received, lost := 0, 0, 0
		for _, x := range r.Transfers {
			if x.Step == cells.Receive {
				received++
			} else {
				sent++
			}
		}
		for _, l := range r.Lost {
			lost += l.Cells
		}
		should.Be(t, sent, received+lost, "%+v: cells sent, %d received and %d lost", c, received, lost)
		interval := max(0.4, 0.3/(1-c.busy/100)) // us: cells come, or are stored
		slow := interval > 0.4
		if want := 8 * cells.PayloadSize / interval / 1000; !(slow && c.never) && math.Abs(r.Data/want-1) > 0.01 {
			t.Errorf("%+v: %v Gb/s, want %v", c, r.Data, want)
		}
		if (r.Stops > 0) != (slow && !c.never) || (lost > 0) != (slow && c.never) {
			t.Errorf("%+v: %d stops, %d lost", c, r.Stops, lost)
		}
		if slow && c.never && (len(r.Lost) != 2 || r.Lost[0].Channel != 1 || r.Lost[1].Channel != 2 || r.Highest != 1024) {
			t.Errorf("%+v: %+v lost, at most %d in the FIFO", c, r.Lost, r.Highest)
		}
	}
}

func TestContentionRefuses(t *testing.T) {
	for name, o := range map[string]cellmodel.Options{
		"--busy":       {Scenario: "stream", Busy: 1},
		"--never-stop": {Scenario: "single", NeverStop: true},
	} {
		o.Platform = mini(t)
		_, err := cellmodel.Run(o)
		if e := (*option.Error)(nil); !errors.As(err, &e) || e.Option != name {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, busy := range []float64{-1, 95.1, math.NaN(), math.Inf(1)} {
		_, err := cellmodel.Run(cellmodel.Options{Platform: mini(t), Scenario: "contention", Busy: busy})
		if e := (*option.Error)(nil); !errors.As(err, &e) || e.Option != "--busy" {
			t.Errorf("%v: %v", busy, err)
		}
	}
}
