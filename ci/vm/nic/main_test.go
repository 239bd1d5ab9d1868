package nic

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/kernel"
)

// timeout is for commands of the admin queue: a guest without hardware
// acceleration is slow.
const timeout = 10 * time.Second

// trapeze is our command in the guest.
const trapeze = "/bin/trapeze"

func TestMain(m *testing.M) {
	if os.Getenv("TRAPEZE_GUEST") == "" {
		fmt.Println("skipped: these tests need the devices and the kernel of a virtual machine: ci/vm/run")
		os.Exit(0)
	}
	// All tests use the NICs; that binding works is tested first, by doing it.
	if err := bindAll(); err != nil {
		fmt.Println("bind:", err)
		os.Exit(1)
	}
	goleak.VerifyTestMain(m)
}

func backend() string { return os.Getenv("TRAPEZE_BACKEND") }

// functions lists our NICs, sorted by address.
func functions() ([]string, error) {
	id := fmt.Sprintf("0x%04x 0x%04x", datasheet.PCIVendorID, datasheet.PCIDeviceID)
	paths, err := filepath.Glob("/sys/bus/pci/devices/*")
	if err != nil {
		return nil, err
	}
	var list []string
	for _, p := range paths {
		vendor, verr := os.ReadFile(filepath.Join(p, "vendor"))
		device, derr := os.ReadFile(filepath.Join(p, "device"))
		if verr == nil && derr == nil && strings.TrimSpace(string(vendor))+" "+strings.TrimSpace(string(device)) == id {
			list = append(list, filepath.Base(p))
		}
	}
	return list, nil
}

// command runs trapeze with --json and decodes what it prints.
func command(into any, args ...string) error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var stdout, stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, trapeze, append(args, "--json")...)
	cmd.Stdout, cmd.Stderr = &stdout, &stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(cmd.Args, " "), err, stderr.Bytes())
	}
	if into == nil {
		return nil
	}
	return json.Unmarshal(stdout.Bytes(), into)
}

// bindAll gives the NICs to vfio-pci with our own tool.
func bindAll() error {
	list, err := functions()
	if err != nil {
		return err
	}
	for _, f := range list {
		if err := command(nil, "bind", f); err != nil {
			return err
		}
	}
	// The nodes are made by a thread of the kernel's.
	time.Sleep(50 * time.Millisecond)
	return nil
}

// two returns the addresses of the two NICs.
func two(t testing.TB) (a, b string) {
	t.Helper()
	list, err := functions()
	must.Hold(t, err == nil && len(list) == 2, "NICs %v, %v: there are two in this guest", list, err)
	address := func(f string) string { return "pci:" + f + "?backend=" + backend() }
	return address(list[0]), address(list[1])
}

// openDevice opens a NIC without its driver.
func openDevice(t *testing.T, address string) *kernel.Device {
	t.Helper()
	d := must.Get(vfio.Open(t.Context(), address))(t)
	t.Cleanup(func() { _ = d.Close() })
	return d.(*kernel.Device)
}

// openPair opens both NICs with the driver; the test closes them.
func openPair(t *testing.T) (a, b *driver.NIC) {
	t.Helper()
	x, y := two(t)
	open := func(address string) *driver.NIC {
		n := must.Get(driver.Open(t.Context(), address, driver.Options{CommandTimeout: timeout}))(t)
		t.Cleanup(func() { _ = n.Close() })
		return n
	}
	return open(x), open(y)
}
