package ethernet_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/statstest"
	"github.com/trapeze-nic/trapeze/ethernet"
)

func TestStatsDescribed(t *testing.T) { statstest.Check(t, ethernet.Stats{}) }
