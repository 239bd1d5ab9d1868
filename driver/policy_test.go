package driver_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/driver"
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
	s, err := n.Policy()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestPolicyNames(t *testing.T) {
	if got := strings.Join(driver.NICPolicies(), " "); got != "store-and-forward static cut-through eager amp auto" {
		t.Errorf("the NIC has %s", got)
	}
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
