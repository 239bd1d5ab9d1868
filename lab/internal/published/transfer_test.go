package published_test

import (
	"context"
	"math"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/published"
)

// TestTransferFidelity: the ends of the EDT paper's ranges come out within two points
// each, at the rate that was fitted, at the two others and against both schemes. What its
// text counts comes out exactly.
func TestTransferFidelity(t *testing.T) {
	lines := must.Get(published.Compare(published.NewModel(context.Background(), profile.Hosts.Load), rows(t)))(t)
	byID := map[string]published.Line{}
	for _, l := range lines {
		byID[l.ID] = l
	}
	const points = 2
	for _, id := range []string{"004-001", "004-002", "004-003", "004-004"} {
		l := byID[id]
		t.Logf("%s: %s %%, computed %.1f to %.1f", id, l.Value, *l.Computed, *l.Highest)
		if math.Abs(*l.Computed-l.Figure.Low) > points || math.Abs(*l.Highest-l.Figure.High) > points {
			t.Errorf("%s: %s %%, computed %.1f to %.1f", id, l.Value, *l.Computed, *l.Highest)
		}
		if want := max(math.Abs(*l.Computed/l.Figure.Low-1), math.Abs(*l.Highest/l.Figure.High-1)); math.Abs(math.Abs(*l.Error)/100-want) > 1e-9 {
			t.Errorf("%s: error %v, that of the end that is further off is %v", id, *l.Error, want)
		}
	}
	for _, id := range []string{"004-024", "004-026", "004-031"} {
		if l := byID[id]; l.Kind == published.NotModelled || *l.Error != 0 {
			t.Errorf("%s: %s, error %v", id, l.Kind, *l.Error)
		}
	}
	for id, l := range byID {
		if id[:4] == "004-" && l.Kind == published.Input && *l.Error != 0 {
			t.Errorf("%s: the platform has %v, the paper %s %s", id, *l.Computed, l.Value, l.Unit)
		}
	}
}
