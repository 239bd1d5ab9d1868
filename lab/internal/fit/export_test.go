package fit

import (
	"context"

	"github.com/trapeze-nic/trapeze/lab/internal/published"
)

// Deviation returns the sum of squared deviations, in standard deviations, of rows
// and expectations at given parameters: what Fit makes small.
func Deviation(ctx context.Context, rows []published.Row, p Parameters) (float64, error) {
	platforms, err := prepare(rows, func(published.Row) bool { return true })
	if err != nil {
		return 0, err
	}
	s := p.Shared
	shared, total := clamp([]float64{s.Decision, s.Packet, s.Completion, s.Pulse}, sharedLimits)
	for _, one := range platforms {
		o := p.Platforms[one.name]
		cost, err := one.cost(ctx, shared, []float64{o.Read, o.Write, o.Overhead, o.Host})
		if err != nil {
			return 0, err
		}
		total += cost
	}
	return total, nil
}
