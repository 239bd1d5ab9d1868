package guest

import (
	"errors"
	"io/fs"
	"os"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

// TestBind takes a function from vfio-pci and gives it back, and opens it each
// time.
func TestBind(t *testing.T) {
	f := alone(t, eduID, false)
	for range 2 {
		bind(t, f, "none")
		d, err := vfio.Open(within(t), addressOf(f))
		if err == nil {
			d.Close()
			t.Fatal("opened a function without driver")
		}
		t.Log(err)
		should.Contain(t, err.Error(), "trapeze doctor "+f, "does not say how to find out that the function has no driver")
		bind(t, f, "vfio-pci")
		d = must.Get(vfio.Open(within(t), addressOf(f)))(t)
		should.OK(t, d.Close())
	}
}

// TestBindFromKernel takes a NIC from the kernel's driver and gives it back.
func TestBindFromKernel(t *testing.T) {
	if _, err := os.Stat("/sys/bus/pci/drivers/e1000"); errors.Is(err, fs.ErrNotExist) {
		t.Skip("this kernel has no driver for the NIC")
	}
	f, g := together(t, e1000ID)
	bind(t, g, "none") // which lets the group be
	bind(t, f, "")
	must.Be(t, link(f, "driver"), "e1000", "driver")
	d, err := vfio.Open(within(t), addressOf(f))
	if err == nil {
		d.Close()
		t.Fatal("opened a function that belongs to the kernel")
	}
	t.Log(err)
	should.Contain(t, err.Error(), "trapeze doctor "+f, "does not say how to find out whose it is")
	bind(t, f, "vfio-pci")
	d = must.Get(vfio.Open(within(t), addressOf(f)))(t)
	should.OK(t, d.Close())
	bind(t, f, "")
	should.Be(t, link(f, "driver"), "e1000", "driver afterwards")
}

// TestNotViable: another function of the group belongs to the kernel.
func TestNotViable(t *testing.T) {
	if _, err := os.Stat("/sys/bus/pci/drivers/e1000"); errors.Is(err, fs.ErrNotExist) {
		t.Skip("this kernel has no driver that could be in the way")
	}
	f, g := together(t, e1000ID)
	checkFiles(t)
	bind(t, f, "vfio-pci")
	bind(t, g, "")
	d, err := vfio.Open(within(t), addressOf(f))
	if err == nil {
		d.Close()
		t.Fatal("opened a group that is not viable")
	}
	t.Log(err)
	for _, want := range []string{"not viable", g + " belongs to e1000", "trapeze doctor " + f} {
		should.Contain(t, err.Error(), want)
	}
	bind(t, g, "vfio-pci")
	d = must.Get(vfio.Open(within(t), addressOf(f)))(t)
	should.OK(t, d.Close())
}

// TestNoSuchFunction opens what is not there.
func TestNoSuchFunction(t *testing.T) {
	_, err := vfio.Open(within(t), addressOf("0000:7f:1f.7"))
	must.Hold(t, errors.Is(err, unix.ENODEV), "%+v", err)
	t.Log(err)
}

// TestTwice opens a function twice in one process.
func TestTwice(t *testing.T) {
	f := alone(t, eduID, false)
	e := openEdu(t, f)
	if _, err := vfio.Open(within(t), addressOf(f)); !errors.Is(err, unix.EBUSY) {
		t.Errorf("second time: %v", err)
	} else {
		t.Log(err)
	}
	should.Be(t, e.read(eduIdent)&0xffff, 0xed, "the first one does not work any more")
}
