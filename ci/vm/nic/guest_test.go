package nic

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
)

// TestEnumerated makes the guest's own tools and ours see the NICs.
func TestEnumerated(t *testing.T) {
	out, err := exec.Command("lspci", "-nn", "-d", fmt.Sprintf("%04x:%04x", datasheet.PCIVendorID, datasheet.PCIDeviceID), "-vv").CombinedOutput()
	must.OK(t, err, "%v", string(out))
	for _, want := range []string{"Network controller [0280]", "MSI-X: Enable", "Express", "Kernel driver in use: vfio-pci"} {
		n := strings.Count(string(out), want)
		should.Hold(t, n >= 2, "lspci says %q %d times, want 2:\n%s", want, n, out)
	}
	var list struct {
		Functions []struct {
			Address, Driver string
		}
	}
	must.OK(t, command(&list, "list"))
	ours := 0
	for _, f := range list.Functions {
		if f.Driver == "vfio-pci" && strings.HasPrefix(f.Address, "pci:") {
			ours++
		}
	}
	should.Hold(t, ours >= 2, "trapeze list says %+v", list)
	a, _ := two(t)
	var info struct{ Backend, PCI string }
	must.OK(t, command(&info, "info", "--device", a))
	should.Be(t, info.Backend, backend(), "info says %+v", info)
}

// TestFileTransfer sends a file from one NIC to the other, by two processes.
func TestFileTransfer(t *testing.T) {
	a, b := two(t)
	out := filepath.Join(t.TempDir(), "out")
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	var complaints bytes.Buffer
	recv := exec.CommandContext(ctx, trapeze, "recv", "--device", a, "--output", out)
	recv.Stderr = &complaints
	must.OK(t, recv.Start())
	var sent struct {
		Bytes  int64
		SHA256 string
		MBPerS float64 `json:"mb_per_s"`
	}
	err := command(&sent, "send", "--device", b, "--timeout", "30s", trapeze)
	werr := recv.Wait()
	must.Hold(t, err == nil && werr == nil, "send: %v; recv: %v %s", err, werr, complaints.Bytes())
	want := must.Get(os.ReadFile(trapeze))(t)
	got := must.Get(os.ReadFile(out))(t)
	should.Hold(t, bytes.Equal(got, want) && sent.Bytes == int64(len(want)), "%d bytes arrived of %d", len(got), len(want))
	t.Logf("%d bytes, %.0f MB/s, sha256 %s", sent.Bytes, sent.MBPerS, sent.SHA256)
}

// exchange sends a message from x to y, and waits for it at both ends.
func exchange(t *testing.T, x, y *conform.End, message string) error {
	t.Helper()
	ctx := conform.Context(t)
	must.OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 4096)))
	copy(x.Memory.Bytes(), message)
	must.OK(t, x.VI.PostSend(x.Prepare(t, x.Send[0], 0, len(message))))
	d, err := y.VI.RecvWait(ctx)
	if err != nil {
		return err
	}
	should.Be(t, string(y.Memory.Bytes()[:d.Length()]), message)
	_, err = x.VI.SendWait(ctx)
	return err
}

// provide puts package via on a driver.
func provide(t *testing.T, n *driver.NIC) *via.NIC {
	t.Helper()
	nic := must.Get(via.New(t.Context(), n, via.Options{}))(t)
	t.Cleanup(func() { _ = nic.Close() })
	return nic
}

// TestInterrupts waits for messages with interrupts to wake it.
func TestInterrupts(t *testing.T) {
	a, b := openPair(t)
	p := conform.NewWorld(t, provide(t, a), provide(t, b))
	x, y := p.Connect(conform.Setup{})
	const messages = 20
	for range messages {
		must.OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 4096)))
		woken := make(chan error, 1)
		go func() {
			_, err := y.VI.RecvWait(conform.Context(t))
			woken <- err
		}()
		time.Sleep(20 * time.Millisecond) // it sleeps by now
		must.OK(t, x.VI.PostSend(x.Prepare(t, x.Send[0], 0, 100)))
		must.OK(t, <-woken)
		must.Get(x.VI.SendWait(conform.Context(t)))(t)
	}
	counters := must.Get(b.Counters())(t)
	t.Logf("%d interrupts for %d messages", counters["interrupts"], messages)
	should.Hold(t, counters["interrupts"] >= messages, "not every message has raised one")
}

// recorded is a device that remembers the mapping that was made last.
type recorded struct {
	vfio.Device
	iova, size uint64
}

func (r *recorded) MapDMA(m *vfio.Memory, iova uint64, flags vfio.DMAFlags) error {
	r.iova, r.size = iova, m.Size()
	return r.Device.MapDMA(m, iova, flags)
}

// TestIOMMUFault makes a NIC use memory that was taken out of the IOMMU behind the
// driver's back: the descriptor says so, and nothing else suffers.
func TestIOMMUFault(t *testing.T) {
	if backend() == "noiommu" {
		t.Skip("there is no IOMMU in this guest")
	}
	address, peer := two(t)
	r := &recorded{Device: openDevice(t, address)}
	n := must.Get(driver.New(t.Context(), r, driver.Options{CommandTimeout: timeout}))(t)
	other := must.Get(driver.Open(t.Context(), peer, driver.Options{CommandTimeout: timeout}))(t)
	p := conform.NewWorld(t, provide(t, n), provide(t, other))
	x, y := p.Connect(conform.Setup{})
	bystander, peerOf := p.Connect(conform.Setup{})

	const size = 4 << 20 // so large that it is a mapping of its own
	mem := must.Get(x.NIC.Alloc(t.Context(), size, via.MemoryAttributes{}))(t)
	must.Hold(t, r.size >= size, "the mapping made last has %d bytes", r.size)
	must.OK(t, r.Device.UnmapDMA(r.iova, r.size))
	must.OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 4096)))
	d := x.Send[0]
	d.Prepare()
	must.OK(t, mem.AddTo(d, 0, 1000))
	must.OK(t, x.VI.PostSend(d))
	got, err := x.VI.SendWait(conform.Context(t))
	var status *via.StatusError
	if got != d || !errors.As(err, &status) || status.Status&datasheet.StatusProtectionError == 0 {
		t.Errorf("a send from memory that is not mapped: %v", err)
	}
	should.OK(t, exchange(t, bystander, peerOf, "all is well"), "another VI")
	if h, err := n.Health(t.Context()); err != nil || !h.Ready {
		t.Errorf("health %+v, %v", h, err)
	}
	counters, err := n.Counters()
	if err != nil || counters["dma_faults"] == 0 {
		t.Errorf("%d DMA faults counted, %v", counters["dma_faults"], err)
	}
}

// TestReset resets the function, and drives the NIC afterwards.
func TestReset(t *testing.T) {
	address, peer := two(t)
	other := must.Get(driver.Open(t.Context(), peer, driver.Options{CommandTimeout: timeout}))(t)
	b := provide(t, other)
	d := openDevice(t, address)
	must.OK(t, d.Reset(t.Context()))
	n := must.Get(driver.New(t.Context(), d, driver.Options{CommandTimeout: timeout}))(t)
	x, y := conform.NewWorld(t, provide(t, n), b).Connect(conform.Setup{})
	should.OK(t, exchange(t, x, y, "after the reset"))
}

// TestUnbind gives a NIC back to the kernel with our tool, and takes it again.
func TestUnbind(t *testing.T) {
	list := must.Get(functions())(t)
	driverOf := func() string {
		target, err := os.Readlink(filepath.Join("/sys/bus/pci/devices", list[0], "driver"))
		if err != nil {
			return ""
		}
		return filepath.Base(target)
	}
	must.OK(t, command(nil, "unbind", list[0]))
	should.Be(t, driverOf(), "", "after unbinding the driver")
	if err := command(nil, "info", "--device", "pci:"+list[0]+"?backend="+backend()); err == nil {
		t.Error("a NIC without a driver was opened")
	}
	must.OK(t, command(nil, "bind", list[0]))
	should.Be(t, driverOf(), "vfio-pci", "after binding the driver")
}
