package guest

import (
	"errors"
	"io/fs"
	"os"
	"strconv"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

// virtual makes an igb make n virtual functions until the test ends, and returns them.
func virtual(t *testing.T, pf string, n int) []string {
	t.Helper()
	write(t, strconv.Itoa(n), pciDevices, pf, "sriov_numvfs")
	t.Cleanup(func() { write(t, "0", pciDevices, pf, "sriov_numvfs") })
	vfs := find(t, igbVFID)
	must.Be(t, len(vfs), n, "virtual functions %q", vfs)
	return vfs
}

// virtualOfLinux is virtual while the kernel's igb has the physical function. The virtual ones have no driver.
func virtualOfLinux(t *testing.T, pf string, n int) []string {
	t.Helper()
	load(t, "igb")
	bind(t, pf, "igb")
	t.Cleanup(func() { bind(t, pf, "none") })
	up(t, pf)
	write(t, "0", pciDevices, pf, "sriov_drivers_autoprobe")
	return virtual(t, pf, n)
}

// TestToken: a virtual function of a NIC that vfio-pci holds can be opened with
// the token of its parent only.
func TestToken(t *testing.T) {
	const parameter = "/sys/module/vfio_pci/parameters/enable_sriov"
	if _, err := os.Stat(parameter); errors.Is(err, fs.ErrNotExist) || backend() != "group" {
		t.Skip("this kernel has no SR-IOV, or takes no tokens this way")
	}
	checkFiles(t)
	const token, wrong = "&vf_token=b6a5f7a6-08a5-4f5c-9d2c-4b1c3f0c2f1e", "&vf_token=00000000-0000-0000-0000-000000000001"
	pf := alone(t, igbID, false)
	bind(t, pf, "vfio-pci")
	write(t, "Y", parameter)
	t.Cleanup(func() { write(t, "N", parameter) })
	parent, err := vfio.Open(within(t), addressOf(pf)+token) // which is what sets it
	must.OK(t, err)
	t.Cleanup(func() { should.OK(t, parent.Close()) })
	vf := virtual(t, pf, 1)[0]
	bind(t, vf, "vfio-pci")
	for _, bad := range []string{"", wrong} {
		d, err := vfio.Open(within(t), addressOf(vf)+bad)
		if err == nil {
			d.Close()
			t.Errorf("opened with token %q", bad)
		} else if !errors.Is(err, unix.EACCES) {
			t.Error(err)
		} else {
			t.Log(err)
		}
	}
	d := must.Get(vfio.Open(within(t), addressOf(vf)+token))(t)
	defer d.Close()
	irq, err := d.IRQ(vfio.IRQINTx)
	should.Hold(t, err == nil && irq.Count == 0, "INTx of a virtual function: %+v, %v", irq, err)
	should.OK(t, d.Reset(within(t)))
	config := must.Get(vfio.ReadConfig(d))(t)
	t.Logf("%04x:%04x opened with the token of its parent, reset, INTx %+v", config.Vendor, config.Device, irq)
}

// TestTokenForNothing: a function that is neither virtual nor a parent.
func TestTokenForNothing(t *testing.T) {
	checkFiles(t)
	f := alone(t, eduID, false)
	bind(t, f, "vfio-pci")
	d, err := vfio.Open(within(t), addressOf(f)+"&vf_token=b6a5f7a6-08a5-4f5c-9d2c-4b1c3f0c2f1e")
	if err == nil {
		d.Close()
		t.Fatal("opened with a token")
	}
	should.Fail(t, err, unix.EINVAL)
	t.Log(err)
}
