package nic

import (
	"testing"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/driver/drivertest"
	"github.com/trapeze-nic/trapeze/internal/via/viatest"
	"github.com/trapeze-nic/trapeze/via"
)

// TestDriver puts the driver through its suite, the one that also runs over the
// emulated NIC in one process and over vfio-user.
func TestDriver(t *testing.T) {
	drivertest.Run(t, func(t *testing.T) (a, b *driver.NIC) { return openPair(t) })
}

// TestVIA does the same one layer up.
func TestVIA(t *testing.T) {
	viatest.Run(t, backend(), func(t *testing.T) (a, b *via.NIC) {
		x, y := openPair(t)
		return provide(t, x), provide(t, y)
	})
}
