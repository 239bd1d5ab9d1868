package guest

import (
	"context"
	"fmt"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/kernel"
)

// holdVariable makes this program open the device that it names, say how that
// went and hold it until its standard input ends: see hold_test.go.
const holdVariable = "TRAPEZE_HOLD"

func TestMain(m *testing.M) {
	if address := os.Getenv(holdVariable); address != "" {
		os.Exit(hold(address))
	}
	if os.Getenv("TRAPEZE_GUEST") == "" {
		fmt.Println("skipped: these tests need the devices and the kernel of a virtual machine: ci/vm/run")
		os.Exit(0)
	}
	goleak.VerifyTestMain(m)
}

// backend is the way to devices that is tested: group, cdev or noiommu.
func backend() string { return os.Getenv("TRAPEZE_BACKEND") }

// needIOMMU skips tests of what only an IOMMU does.
func needIOMMU(t *testing.T) {
	t.Helper()
	if backend() == "noiommu" {
		t.Skip("there is no IOMMU in this guest")
	}
}

func addressOf(function string) string { return "pci:" + function + "?backend=" + backend() }

// open binds a function to vfio-pci and opens it. It is closed at the end of
// the test, and nothing may be left open then.
func open(t *testing.T, function string) *kernel.Device {
	t.Helper()
	checkFiles(t)
	bind(t, function, "vfio-pci")
	d := must.Get(vfio.Open(context.Background(), addressOf(function)))(t)
	t.Cleanup(func() { should.OK(t, d.Close()) })
	return d.(*kernel.Device)
}

// checkFiles fails the test if it ends with other open files than now.
func checkFiles(t *testing.T) {
	t.Helper()
	before := leaktest.Files(t)
	t.Cleanup(func() { should.Be(t, leaktest.Files(t), before, "open files") })
}

// within returns a context for what should take no time; a guest without
// hardware acceleration is slow.
func within(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	t.Cleanup(cancel)
	return ctx
}
