package wire_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/statstest"
	"github.com/trapeze-nic/trapeze/wire"
)

func TestStatsDescribed(t *testing.T) {
	for _, stats := range []any{wire.UDPStats{}, wire.FaultStats{}, wire.SwitchStats{}, wire.HostStats{}, (&wire.SHM{}).Stats()} {
		statstest.Check(t, stats)
	}
}
