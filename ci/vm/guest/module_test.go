package guest

import (
	"bytes"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
)

// lateModules has what tests load themselves (see ci/vm/kernels).
const lateModules = "/modules/late"

// needs is what the modules that tests load need first, in this order.
var needs = map[string][]string{
	"igb":        {"dca", "i2c-algo-bit"},
	"virtio_net": {"failover", "net_failover"},
	"8021q":      {"llc", "stp", "garp", "mrp"},
}

// load loads a module of the stock kernel, and removes it with the test, unless it is there.
func load(t *testing.T, name string) {
	t.Helper()
	for _, n := range append(needs[name], name) {
		files, _ := filepath.Glob(lateModules + "/*-" + n + ".ko")
		must.Be(t, len(files), 1, "modules for %s: %q", n, files)
		out, err := exec.Command("insmod", files[0]).CombinedOutput()
		if err != nil && bytes.Contains(out, []byte("File exists")) {
			continue
		}
		must.OK(t, err, "%s %s", n, out)
		t.Cleanup(func() { _ = exec.Command("rmmod", n).Run() })
	}
}
