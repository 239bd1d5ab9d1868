package fit_test

import (
	"context"
	"slices"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/lab/internal/fit"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/published"
)

// TestTransferHoldsTheFit: the built-in memory system has what the fit finds, to the
// cycle, and the rows for other rates take no part in it.
func TestTransferHoldsTheFit(t *testing.T) {
	all := rows(t)
	got := must.Get(fit.Transfer(context.Background(), all))(t)
	s := must.Get(profile.Systems.Load("sonic-via"))(t)
	if built := (fit.Interface{Start: float64(s.NIC.Start / s.NIC.Cycle), Frame: float64(s.NIC.Frame / s.NIC.Cycle)}); got != built {
		t.Errorf("the fit finds %+v, the platform has %+v", got, built)
	}
	ends := slices.DeleteFunc(slices.Clone(all), func(r published.Row) bool { return r.ID != "004-033" && r.ID != "004-034" })
	must.Be(t, len(ends), 2, "rows")
	should.Give(fit.Transfer(context.Background(), ends))(t, got, "from the two ends alone")
}

func TestTransferEndsWithItsContext(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	should.Refuse(fit.Transfer(ended, rows(t)))(t, context.Canceled)
}
