package driver_test

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

func FuzzOpen(f *testing.F) {
	f.Add([]byte{}, uint64(0))
	f.Add([]byte{1, 0, 0, 0, 0, 0, 1, 0}, uint64(0))
	f.Add([]byte{0x00, 0x02, 0, 0}, uint64(datasheet.ClockOffset+datasheet.BlockRegNext))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff}, uint64(datasheet.IdentityOffset+datasheet.RegMaxEndpoints))
	f.Fuzz(func(t *testing.T, registers []byte, at uint64) {
		d := newFake(t)
		copy(d.bar0[at%datasheet.BAR0Size:], registers)
		n, err := driver.New(t.Context(), d, driver.Options{Logger: quiet, CommandTimeout: time.Millisecond})
		if err != nil {
			return
		}
		// What was opened has limits that everything else can rely on.
		id := n.Identity()
		if id.MaxEndpoints > fakeEndpoints+fakeCQs || id.MaxCQs > fakeEndpoints+fakeCQs || id.MaxQueueDepth > 1<<datasheet.MaxQueueLog2 ||
			id.MaxTransfer > datasheet.MaxTransfer || id.MTU > datasheet.MaxMTU {
			t.Errorf("opened with %+v", id)
		}
		// Reading may fail: the registers are somebody's imagination.
		_, _ = n.Counters()
		_, _ = n.Clock()
		_, _ = n.Health(t.Context())
		if err := n.Close(); err != nil {
			t.Error(err)
		}
	})
}
