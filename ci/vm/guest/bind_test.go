package guest

import (
	"errors"
	"io/fs"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

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
		if !strings.Contains(err.Error(), "no driver") || !strings.Contains(err.Error(), "bind "+f) {
			t.Error("does not say that the function has no driver, or not what to do")
		}
		bind(t, f, "vfio-pci")
		d, err = vfio.Open(within(t), addressOf(f))
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Close(); err != nil {
			t.Error(err)
		}
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
	if link(f, "driver") != "e1000" {
		t.Fatalf("driver %q", link(f, "driver"))
	}
	d, err := vfio.Open(within(t), addressOf(f))
	if err == nil {
		d.Close()
		t.Fatal("opened a function that belongs to the kernel")
	}
	t.Log(err)
	if !strings.Contains(err.Error(), "driver e1000") {
		t.Error("does not name the driver")
	}
	bind(t, f, "vfio-pci")
	if d, err = vfio.Open(within(t), addressOf(f)); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	bind(t, f, "")
	if link(f, "driver") != "e1000" {
		t.Errorf("driver %q afterwards", link(f, "driver"))
	}
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
	for _, want := range []string{"not viable", f + " (vfio-pci)", g + " (e1000: in the way)", "bind " + g} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("does not say %q", want)
		}
	}
	bind(t, g, "vfio-pci")
	if d, err = vfio.Open(within(t), addressOf(f)); err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// TestNoSuchFunction opens what is not there.
func TestNoSuchFunction(t *testing.T) {
	_, err := vfio.Open(within(t), addressOf("0000:7f:1f.7"))
	if !errors.Is(err, unix.ENODEV) {
		t.Fatal(err)
	}
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
	if e.read(eduIdent)&0xffff != 0xed {
		t.Error("the first one does not work any more")
	}
}
