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

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/kernel"
	"github.com/trapeze-nic/trapeze/via"
)

// TestEnumerated has the guest's own tools and ours see the NICs.
func TestEnumerated(t *testing.T) {
	out, err := exec.Command("lspci", "-nn", "-d", fmt.Sprintf("%04x:%04x", datasheet.PCIVendorID, datasheet.PCIDeviceID), "-vv").CombinedOutput()
	if err != nil {
		t.Fatal(err, string(out))
	}
	for _, want := range []string{"Network controller [0280]", "MSI-X: Enable", "Express", "Kernel driver in use: vfio-pci"} {
		if n := strings.Count(string(out), want); n < 2 {
			t.Errorf("lspci says %q %d times, want 2:\n%s", want, n, out)
		}
	}
	var list struct {
		Functions []struct {
			Address, Driver string
		}
	}
	if err := command(&list, "list"); err != nil {
		t.Fatal(err)
	}
	ours := 0
	for _, f := range list.Functions {
		if f.Driver == "vfio-pci" && strings.HasPrefix(f.Address, "pci:") {
			ours++
		}
	}
	if ours < 2 {
		t.Errorf("trapeze list says %+v", list)
	}
	a, _ := two(t)
	var info struct{ Backend, PCI string }
	if err := command(&info, "info", "--device", a); err != nil {
		t.Fatal(err)
	}
	if info.Backend != backend() {
		t.Errorf("info says %+v", info)
	}
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
	if err := recv.Start(); err != nil {
		t.Fatal(err)
	}
	var sent struct {
		Bytes  int64
		SHA256 string
		MBPerS float64 `json:"mb_per_s"`
	}
	err := command(&sent, "send", "--device", b, "--timeout", "30s", trapeze)
	if werr := recv.Wait(); err != nil || werr != nil {
		t.Fatalf("send: %v; recv: %v %s", err, werr, complaints.Bytes())
	}
	want, err := os.ReadFile(trapeze)
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) || sent.Bytes != int64(len(want)) {
		t.Errorf("%d bytes arrived of %d", len(got), len(want))
	}
	t.Logf("%d bytes, %.0f MB/s, sha256 %s", sent.Bytes, sent.MBPerS, sent.SHA256)
}

// exchange sends a message from x to y, and waits for it at both ends.
func exchange(t *testing.T, x, y *conform.End, message string) error {
	t.Helper()
	ctx := conform.Context(t)
	if err := y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 4096)); err != nil {
		t.Fatal(err)
	}
	copy(x.Memory.Bytes(), message)
	if err := x.VI.PostSend(x.Prepare(t, x.Send[0], 0, len(message))); err != nil {
		t.Fatal(err)
	}
	d, err := y.VI.RecvWait(ctx)
	if err != nil {
		return err
	}
	if got := string(y.Memory.Bytes()[:d.Length()]); got != message {
		t.Errorf("received %q, sent %q", got, message)
	}
	_, err = x.VI.SendWait(ctx)
	return err
}

// provide puts package via on a driver.
func provide(t *testing.T, n *driver.NIC) *via.NIC {
	t.Helper()
	nic, err := via.New(t.Context(), n, via.Options{})
	if err != nil {
		t.Fatal(err)
	}
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
		if err := y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 4096)); err != nil {
			t.Fatal(err)
		}
		woken := make(chan error, 1)
		go func() {
			_, err := y.VI.RecvWait(conform.Context(t))
			woken <- err
		}()
		time.Sleep(20 * time.Millisecond) // it sleeps by now
		if err := x.VI.PostSend(x.Prepare(t, x.Send[0], 0, 100)); err != nil {
			t.Fatal(err)
		}
		if err := <-woken; err != nil {
			t.Fatal(err)
		}
		if _, err := x.VI.SendWait(conform.Context(t)); err != nil {
			t.Fatal(err)
		}
	}
	counters, err := b.Counters()
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("%d interrupts for %d messages", counters["interrupts"], messages)
	if counters["interrupts"] < messages {
		t.Error("not every message has raised one")
	}
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

// TestIOMMUFault has a NIC use memory that was taken out of the IOMMU behind the
// driver's back: the descriptor says so, and nothing else suffers.
func TestIOMMUFault(t *testing.T) {
	if backend() == "noiommu" {
		t.Skip("there is no IOMMU in this guest")
	}
	address, peer := two(t)
	r := &recorded{Device: openDevice(t, address)}
	n, err := driver.New(t.Context(), r, driver.Options{CommandTimeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	other, err := driver.Open(t.Context(), peer, driver.Options{CommandTimeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	p := conform.NewWorld(t, provide(t, n), provide(t, other))
	x, y := p.Connect(conform.Setup{})
	bystander, peerOf := p.Connect(conform.Setup{})

	const size = 4 << 20 // so large that it is a mapping of its own
	mem, err := x.NIC.Alloc(t.Context(), size, via.MemoryAttributes{})
	if err != nil {
		t.Fatal(err)
	}
	if r.size < size {
		t.Fatalf("the mapping made last has %d bytes", r.size)
	}
	if err := r.Device.UnmapDMA(r.iova, r.size); err != nil {
		t.Fatal(err)
	}
	if err := y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 4096)); err != nil {
		t.Fatal(err)
	}
	d := x.Send[0]
	d.Prepare()
	if err := mem.AddTo(d, 0, 1000); err != nil {
		t.Fatal(err)
	}
	if err := x.VI.PostSend(d); err != nil {
		t.Fatal(err)
	}
	got, err := x.VI.SendWait(conform.Context(t))
	var status *via.StatusError
	if got != d || !errors.As(err, &status) || status.Status&datasheet.StatusProtectionError == 0 {
		t.Errorf("a send from memory that is not mapped: %v", err)
	}
	if err := exchange(t, bystander, peerOf, "all is well"); err != nil {
		t.Errorf("another VI: %v", err)
	}
	if h, err := n.Health(t.Context()); err != nil || !h.Ready {
		t.Errorf("health %+v, %v", h, err)
	}
	counters, err := n.Counters()
	if err != nil || counters["dma_faults"] == 0 {
		t.Errorf("%d DMA faults counted, %v", counters["dma_faults"], err)
	}
}

// TestResets resets the function, and its bus, and drives the NIC afterwards.
func TestResets(t *testing.T) {
	address, peer := two(t)
	other, err := driver.Open(t.Context(), peer, driver.Options{CommandTimeout: timeout})
	if err != nil {
		t.Fatal(err)
	}
	b := provide(t, other)
	for name, reset := range map[string]func(*kernel.Device) error{
		"function reset": func(d *kernel.Device) error { return d.Reset(t.Context()) },
		"hot reset":      func(d *kernel.Device) error { return d.HotReset(t.Context()) },
	} {
		t.Run(name, func(t *testing.T) {
			d := openDevice(t, address)
			if err := reset(d); err != nil {
				t.Fatal(err)
			}
			n, err := driver.New(t.Context(), d, driver.Options{CommandTimeout: timeout})
			if err != nil {
				t.Fatal(err)
			}
			x, y := conform.NewWorld(t, provide(t, n), b).Connect(conform.Setup{})
			if err := exchange(t, x, y, "after the reset"); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestUnbind gives a NIC back to the kernel with our tool, and takes it again.
func TestUnbind(t *testing.T) {
	list, err := functions()
	if err != nil {
		t.Fatal(err)
	}
	driverOf := func() string {
		target, err := os.Readlink(filepath.Join("/sys/bus/pci/devices", list[0], "driver"))
		if err != nil {
			return ""
		}
		return filepath.Base(target)
	}
	if err := command(nil, "unbind", list[0]); err != nil {
		t.Fatal(err)
	}
	if d := driverOf(); d != "" {
		t.Errorf("after unbinding the driver is %q", d)
	}
	if err := command(nil, "info", "--device", "pci:"+list[0]+"?backend="+backend()); err == nil {
		t.Error("a NIC without a driver was opened")
	}
	if err := command(nil, "bind", list[0]); err != nil {
		t.Fatal(err)
	}
	if d := driverOf(); d != "vfio-pci" {
		t.Errorf("after binding the driver is %q", d)
	}
}
