package driver_test

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// newDMA opens a fake device with a DMA block, and closes it at the end.
func newDMA(t *testing.T, script func(*fakeDevice)) (*fakeDevice, *driver.NIC) {
	t.Helper()
	checkLeaks(t)
	d := newFake(t)
	d.addDMA()
	if script != nil {
		script(d)
	}
	return d, openFake(t, d)
}

func mustState(t *testing.T, n *driver.NIC) driver.PolicyState {
	t.Helper()
	return must.Get(n.Policy())(t)
}

func TestPolicyNames(t *testing.T) {
	should.Be(t, strings.Join(driver.NICPolicies(), " "), "store-and-forward static cut-through eager amp auto", "the NIC")
	host := driver.HostPolicies()
	if slices.Contains(host, "optimal") || len(host) != len(pipeline.PolicyNames())-1 {
		t.Errorf("the host has %v", host)
	}
	for _, name := range host {
		if err := (driver.Policy{Name: name, At: driver.AtHost}).Check(); err != nil {
			t.Errorf("%s at the host: %v", name, err)
		}
	}
	if driver.AtHost.String() != "host" || driver.AtNIC.String() != "nic" || driver.Placement(7).String() != "placement 7" {
		t.Error("names of placements")
	}
}

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
		should.OK(t, n.Close())
	})
}
