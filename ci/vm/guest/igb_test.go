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

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/porttest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ethernet"
	_ "github.com/trapeze-nic/trapeze/ethernet/drivers"
)

// openPort opens a function that vfio-pci has as an Ethernet port.
func openPort(t *testing.T, function string, c ethernet.Options) ethernet.Port {
	t.Helper()
	p := must.Get(ethernet.Open(within(t), addressOf(function), c))(t)
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
	must.Be(t, q.Cache().Alloc(frames), 1, "%v", ethernet.ErrNoBuffers)
	from := p.MAC()
	data := append(append(append(to[:], from[:]...), 0x88, 0xb5), text...)
	frames[0].Length = uint16(len(data))
	copy(q.Cache().Pool().Bytes(frames[0]), data)
	must.Give(q.Send(frames))(t, 1)
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
	i := p.Info()
	should.Hold(t, i.Model == "82576" && i.Vectors == 1, "info %+v", i)
	for range 2 {
		must.Get(ethernet.WaitLink(within(t), p))(t)
		for range 200 {
			sendOne(t, p, ethernet.MAC{2, 0, 0, 0, 0, 9}, "to nobody")
		}
		waittest.Until(t, "all is sent", func() bool {
			n, err := p.Queue(0).Unsent()
			return n == 0 && err == nil
		})
		must.OK(t, p.Restart(within(t)))
	}
	c := p.Stats()
	should.Hold(t, c.Device != nil && c.Device.SentFrames == 400 && c.Queues[0].Restarts == 0, "counted %+v, %+v", c, c.Device)
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
	vfs := virtualOfLinux(t, pf, 2)
	var ports []ethernet.Port
	for _, f := range vfs {
		bind(t, f, "vfio-pci")
		p := openPort(t, f, ethernet.Options{Pool: newPool(t), ReceiveDescriptors: 64, SendDescriptors: 64, Interrupts: true})
		must.Get(ethernet.WaitLink(within(t), p))(t)
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
		got := q.Cache().Pool().Bytes(frames[0])
		must.Hold(t, bytes.Equal(got[14:], text), "frame %d: got % x", i, got)
		q.Cache().Free(frames)
	}
	// What the kernel's driver does not allow.
	should.Fail(t, ports[0].SetPromiscuous(true), ethernet.ErrNotSupported, "promiscuous")
	other := ethernet.MAC{2, 0, 0, 0, 7, 7}
	must.OK(t, errors.Join(ports[0].SetMAC(other), ports[0].SetMulticast([]ethernet.MAC{{1, 0, 0x5e, 0, 0, 7}}), ports[0].Restart(within(t))))
	sendOne(t, ports[1], other, "to the new address, which was asked for before a restart")
	waittest.Until(t, "it comes", func() bool {
		n := must.Get(ports[0].Queue(0).Receive(frames))(t)
		ports[0].Queue(0).Cache().Free(frames[:n])
		return n == 1
	})
	for _, p := range ports {
		t.Logf("counted %+v, %+v", p.Stats(), p.Stats().Device)
	}
}

// up makes the kernel's driver of a NIC start it.
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
	must.Get(net.InterfaceByName(name))(t)
	fd := must.Get(unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))(t)
	defer unix.Close(fd)
	ifr := must.Get(unix.NewIfreq(name))(t)
	ifr.SetUint16(unix.IFF_UP)
	must.OK(t, unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, ifr))
}
