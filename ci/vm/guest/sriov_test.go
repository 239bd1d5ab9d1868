package guest

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/vfio"
)

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
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := parent.Close(); err != nil {
			t.Error(err)
		}
	})
	write(t, "1", pciDevices, pf, "sriov_numvfs")
	t.Cleanup(func() { write(t, "0", pciDevices, pf, "sriov_numvfs") })
	vfs := find(t, igbVFID)
	if len(vfs) != 1 {
		t.Fatalf("virtual functions %q", vfs)
	}
	vf := vfs[0]
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
	d, err := vfio.Open(within(t), addressOf(vf)+token)
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	irq, err := d.IRQ(vfio.IRQINTx)
	if err != nil || irq.Count != 0 {
		t.Errorf("INTx of a virtual function: %+v, %v", irq, err)
	}
	if err := d.Reset(within(t)); err != nil {
		t.Error(err)
	}
	config, err := vfio.ReadConfig(d)
	if err != nil {
		t.Fatal(err)
	}
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
	if !errors.Is(err, unix.EINVAL) {
		t.Error(err)
	}
	t.Log(err)
}
