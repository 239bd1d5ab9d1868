package fit_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/trapeze-nic/trapeze/lab/internal/fit"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/published"
)

// TestTransferHoldsTheFit: the built-in memory system has what the fit finds, to the
// cycle, and the rows for other rates take no part in it.
func TestTransferHoldsTheFit(t *testing.T) {
	all := rows(t)
	got, err := fit.Transfer(context.Background(), all)
	if err != nil {
		t.Fatal(err)
	}
	s, err := profile.Systems.Load("sonic-via")
	if err != nil {
		t.Fatal(err)
	}
	if built := (fit.Interface{Start: float64(s.NIC.Start / s.NIC.Cycle), Frame: float64(s.NIC.Frame / s.NIC.Cycle)}); got != built {
		t.Errorf("the fit finds %+v, the platform has %+v", got, built)
	}
	ends := slices.DeleteFunc(slices.Clone(all), func(r published.Row) bool { return r.ID != "004-033" && r.ID != "004-034" })
	if len(ends) != 2 {
		t.Fatalf("%d rows", len(ends))
	}
	if alone, err := fit.Transfer(context.Background(), ends); err != nil || alone != got {
		t.Errorf("from the two ends alone %+v, %v", alone, err)
	}
}

func TestTransferEndsWithItsContext(t *testing.T) {
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := fit.Transfer(ended, rows(t)); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}
