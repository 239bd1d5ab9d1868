package guest

import (
	"bytes"
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ethernet"
	_ "github.com/trapeze-nic/trapeze/ethernet/drivers"
)

// openPort opens a function that vfio-pci has as an Ethernet port.
func openPort(t *testing.T, function string, c ethernet.Options) ethernet.Port {
	t.Helper()
	p, err := ethernet.Open(within(t), addressOf(function), c)
	if err != nil {
		t.Fatal(err)
	}
	porttest.CloseAtEnd(t, p)
	return p
}

func newPool(t *testing.T) *ethernet.Pool {
	t.Helper()
	// Each buffer is in one page: QEMU drops frames that cross into a page that is not
	// behind the one before in the guest's memory, IOMMU or not.
	return porttest.NewPool(t, ethernet.PoolOptions{Buffers: 256, Headroom: 64, Size: 4096 - 64})
}

// sendOne sends a frame to an address.
func sendOne(t *testing.T, p ethernet.Port, to ethernet.MAC, text string) {
	t.Helper()
	q := p.Queue(0)
	frames := make([]ethernet.Frame, 1)
	if q.Cache().Alloc(frames) != 1 {
		t.Fatal(ethernet.ErrNoBuffers)
	}
	from := p.MAC()
	data := append(append(append(to[:], from[:]...), 0x88, 0xb5), text...)
	frames[0].Length = uint16(len(data))
	copy(q.Cache().Pool().Bytes(frames[0]), data)
	if n, err := q.Send(frames); n != 1 || err != nil {
		t.Fatalf("sent %d, %v", n, err)
	}
}

// TestIGBPort has our driver on a physical function: mapped registers, an IOMMU, and the
// kernel's interrupts.
func TestIGBPort(t *testing.T) {
	if backend() == "noiommu" {
		t.Skip("without an IOMMU a pool needs huge pages, and this one is smaller than one")
	}
	eventfd(t) // has the runtime open what it keeps
	checkFiles(t)
	f := alone(t, igbID, false)
	bind(t, f, "vfio-pci")
	p := openPort(t, f, ethernet.Options{Pool: newPool(t), ReceiveDescriptors: 64, SendDescriptors: 64, Interrupts: true})
	if i := p.Info(); i.Model != "82576" || i.Vectors != 1 {
		t.Errorf("info %+v", i)
	}
	for range 2 {
		if _, err := ethernet.WaitLink(within(t), p); err != nil {
			t.Fatal(err)
		}
		for range 200 {
			sendOne(t, p, ethernet.MAC{2, 0, 0, 0, 0, 9}, "to nobody")
		}
		waittest.Until(t, "all is sent", func() bool {
			n, err := p.Queue(0).Unsent()
			return n == 0 && err == nil
		})
		if err := p.Restart(within(t)); err != nil {
			t.Fatal(err)
		}
	}
	if c := p.Stats(); c.Device == nil || c.Device.SentFrames != 400 || c.Queues[0].Restarts != 0 {
		t.Errorf("counted %+v, %+v", c, c.Device)
	}
}

// TestIGBVirtual has the kernel's igb on the physical function, and ours on two virtual
// ones, which send each other frames through the NIC's switch.
func TestIGBVirtual(t *testing.T) {
	if _, err := os.Stat(lateModules); err != nil || backend() != "group" {
		t.Skip("this kernel's igb is not here")
	}
	eventfd(t) // has the runtime open what it keeps
	checkFiles(t)
	pf := alone(t, igbID, true)
	// Only what this test says goes to the kernel's driver.
	write(t, "0", "/sys/bus/pci/drivers_autoprobe")
	t.Cleanup(func() { write(t, "1", "/sys/bus/pci/drivers_autoprobe") })
	load(t, "igb")
	bind(t, pf, "igb")
	t.Cleanup(func() { bind(t, pf, "none") })
	up(t, pf)
	write(t, "0", pciDevices, pf, "sriov_drivers_autoprobe")
	write(t, "2", pciDevices, pf, "sriov_numvfs")
	t.Cleanup(func() { write(t, "0", pciDevices, pf, "sriov_numvfs") })
	vfs := find(t, igbVFID)
	if len(vfs) != 2 {
		t.Fatalf("virtual functions %q", vfs)
	}
	var ports []ethernet.Port
	for _, f := range vfs {
		bind(t, f, "vfio-pci")
		p := openPort(t, f, ethernet.Options{Pool: newPool(t), ReceiveDescriptors: 64, SendDescriptors: 64, Interrupts: true})
		if _, err := ethernet.WaitLink(within(t), p); err != nil {
			t.Fatal(err)
		}
		t.Logf("%s: %+v", f, p.Info().MAC)
		ports = append(ports, p)
	}
	frames := make([]ethernet.Frame, 1)
	for i := range 100 {
		from, to := ports[i%2], ports[(i+1)%2]
		text := bytes.Repeat([]byte{'a' + byte(i%26)}, 50+i*10)
		sendOne(t, from, to.MAC(), string(text))
		q, ctx := to.Queue(0), within(t)
		for n := 0; n == 0; {
			var err error
			if n, err = q.Receive(frames); err == nil && n == 0 {
				err = q.Wait(ctx)
			}
			if err != nil {
				t.Fatalf("frame %d: %v; the sender counted %+v, the receiver %+v", i, err, from.Stats().Device, to.Stats().Device)
			}
		}
		if got := q.Cache().Pool().Bytes(frames[0]); !bytes.Equal(got[14:], text) {
			t.Fatalf("frame %d: got % x", i, got)
		}
		q.Cache().Free(frames)
	}
	// What the kernel's driver does not allow.
	if err := ports[0].SetPromiscuous(true); !errors.Is(err, ethernet.ErrNotSupported) {
		t.Errorf("promiscuous: %v", err)
	}
	other := ethernet.MAC{2, 0, 0, 0, 7, 7}
	if err := errors.Join(ports[0].SetMAC(other), ports[0].SetMulticast([]ethernet.MAC{{1, 0, 0x5e, 0, 0, 7}}), ports[0].Restart(within(t))); err != nil {
		t.Fatal(err)
	}
	sendOne(t, ports[1], other, "to the new address, which was asked for before a restart")
	waittest.Until(t, "it comes", func() bool {
		n, err := ports[0].Queue(0).Receive(frames)
		if err != nil {
			t.Fatal(err)
		}
		ports[0].Queue(0).Cache().Free(frames[:n])
		return n == 1
	})
	for _, p := range ports {
		t.Logf("counted %+v, %+v", p.Stats(), p.Stats().Device)
	}
}

// up has the kernel's driver of a NIC start it.
func up(t *testing.T, function string) {
	t.Helper()
	var name string
	waittest.Until(t, "the NIC has an interface", func() bool {
		list, err := os.ReadDir(filepath.Join(pciDevices, function, "net"))
		if errors.Is(err, fs.ErrNotExist) || len(list) == 0 {
			return false
		}
		name = list[0].Name()
		return true
	})
	if _, err := net.InterfaceByName(name); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		t.Fatal(err)
	}
	ifr.SetUint16(unix.IFF_UP)
	if err := unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr); err != nil {
		t.Fatal(err)
	}
}
