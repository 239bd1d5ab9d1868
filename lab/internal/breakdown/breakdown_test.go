package breakdown_test

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
	"github.com/trapeze-nic/trapeze/lab/internal/breakdown"
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
		o := breakdown.Options{Bytes: option.Bytes(bytes), Local: bench.Local{For: 4 * time.Millisecond}}
		r := must.Get(breakdown.Run(t.Context(), o, func() { parts++ }))(t)
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
			!like(spent[breakdown.Application]+spent[breakdown.MessageLayer], sum) || spent[breakdown.Application] <= 0 {
			t.Errorf("%d bytes: %v", bytes, spent)
		}
	}
}
