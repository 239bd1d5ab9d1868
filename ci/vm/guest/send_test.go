package guest

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// The tests in this file send files out of the guest, over NICs that are not ours, with the
// command that users have. ci/vm/boot has a receiver at the other end of each cable, and
// compares what it got.

// cable returns the file that belongs on cable i, and the igb that it is plugged into.
func cable(t *testing.T, i int) (file, function string) {
	t.Helper()
	dir := os.Getenv("TRAPEZE_CABLES")
	if dir == "" {
		t.Skip("no cables lead out of this guest")
	}
	igbs := find(t, igbID)
	must.Be(t, len(igbs), 2, "NICs %q", igbs)
	return filepath.Join(dir, string(rune('0'+i))), igbs[i]
}

// sendFile makes the command send a file.
func sendFile(t *testing.T, file, address string) {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "trapeze", "send", "--json", "--timeout", "2m", "--device", address, file).CombinedOutput()
	must.OK(t, err, "%s", out)
	t.Logf("%s: %s", address, out)
}

// TestSend sends over an igb that vfio-pci has.
func TestSend(t *testing.T) {
	file, f := cable(t, 0)
	bind(t, f, "vfio-pci")
	// What our own NIC's driver says of it names the address that does it.
	out, err := exec.CommandContext(t.Context(), "trapeze", "info", "--device", "pci:"+f).CombinedOutput()
	should.Hold(t, err != nil && strings.Contains(string(out), "eth:pci:"+f), "info of an igb: %v: %s", err, out)
	sendFile(t, file, "eth:pci:"+f)
}

// TestSendVirtual sends over a virtual function, while the kernel's igb has the physical one.
func TestSendVirtual(t *testing.T) {
	file, pf := cable(t, 1)
	// Only what this test says goes to the kernel's driver.
	write(t, "0", "/sys/bus/pci/drivers_autoprobe")
	t.Cleanup(func() { write(t, "1", "/sys/bus/pci/drivers_autoprobe") })
	vfs := virtualOfLinux(t, pf, 1)
	bind(t, vfs[0], "vfio-pci")
	sendFile(t, file, "eth:pci:"+vfs[0])
}
