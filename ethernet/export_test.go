package ethernet

import (
	"testing"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

// SetHost puts a recorded host in the place of this one until the test ends.
func SetHost(t testing.TB, r hostpci.Root) {
	before := hostRoot
	hostRoot = r
	t.Cleanup(func() { hostRoot = before })
}
