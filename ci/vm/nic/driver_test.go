package nic

import (
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/via/viatest"
	"github.com/trapeze-nic/trapeze/via"
)

// TestIdentity: the NICs say who they are, and that they are well.
func TestIdentity(t *testing.T) {
	a, b := openPair(t)
	for _, n := range []*driver.NIC{a, b} {
		id := n.Identity()
		if id.MaxEndpoints < 2 || id.MaxQueueDepth < 16 || id.MTU < descriptors.MinMTU || len(id.Blocks) < 3 {
			t.Errorf("identity %+v", id)
		}
		h, err := n.Health(t.Context())
		if err != nil || !h.Ready || h.Fatal || h.Resets == 0 {
			t.Errorf("health %+v, %v", h, err)
		}
		first, err := n.Clock()
		if err != nil {
			t.Error(err)
		}
		if second, err := n.Clock(); err != nil || second < first {
			t.Errorf("clock %v, then %v, %v", first, second, err)
		}
		counters, err := n.Counters()
		if _, ok := counters[descriptors.CounterMessagesSent.String()]; !ok || err != nil {
			t.Errorf("counters %v, %v", counters, err)
		}
	}
}

// TestVIA puts the NICs through the suite that also runs over the emulated NIC in one
// process and over vfio-user.
func TestVIA(t *testing.T) {
	viatest.Run(t, backend(), func(t *testing.T) (a, b *via.NIC) {
		x, y := openPair(t)
		return provide(t, x), provide(t, y)
	})
}
