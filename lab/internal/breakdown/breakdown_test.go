package breakdown

import (
	"math"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/bench"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestRun: the steps of short and of long messages add up, and those of the wire and the NICs are seen.
func TestRun(t *testing.T) {
	sizes := []int{64, 8 << 10}
	if soak.Wanted() {
		sizes = append(sizes, 0, 64<<10)
	}
	for _, bytes := range sizes {
		parts := 0
		o := Options{Bytes: option.Bytes(bytes), Local: bench.Local{For: 4 * time.Millisecond}}
		r := must.Get(Run(t.Context(), o, func() { parts++ }))(t)
		should.Be(t, parts, o.Steps(), "parts were done, foretold")
		var names []string
		spent := map[string]float64{}
		sum := 0.0
		for _, s := range r.Steps {
			names = append(names, s.Name)
			spent[s.Name] = float64(s.Ns)
			sum += float64(s.Ns)
			if s.Ns < 0 || math.IsNaN(float64(s.Ns)) || s.What == "" {
				t.Errorf("%+v", s)
			}
		}
		should.Same(t, names, []string{"post", "fetch", "copy", "wire", "deliver", "poll", "rest"}, "steps")
		for _, s := range r.Sums {
			spent[s.Name] = float64(s.Ns)
		}
		like := func(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Abs(b) }
		if !like(sum, spent["sum"]) || !like(spent["sum"]+spent["remainder"], spent["whole"]) || spent["whole"] <= 0 || int(r.Bytes) != bytes ||
			!like(spent[Application]+spent[MessageLayer], sum) || spent[Application] <= 0 {
			t.Errorf("%d bytes: %v", bytes, spent)
		}
	}
}

// TestBorders: the wire and the receiver's NIC are seen at work for frames of each kind.
func TestBorders(t *testing.T) {
	for _, o := range []Options{{Bytes: 0}, {Bytes: 64}, {Bytes: 8 << 10}, {Bytes: 64, Eager: true}} {
		p := must.Get(newPair(t.Context(), &o, true))(t)
		for range 3 {
			must.OK(t, p.once())
			for _, f := range []phase{phasePost, phaseFetch, phaseWire, phaseDeliver, phaseRest, phasePoll} {
				if p.line.marks[f] == 0 {
					t.Errorf("%+v: a message without phase %d: %v", o, f, p.line.marks)
				}
			}
		}
		should.OK(t, p.Close())
	}
}
