package doctor_test

import (
	"context"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/hostpcitest"
	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/doctor"
	"github.com/trapeze-nic/trapeze/vfio"
)

// TestAnyFunction: one function that could be driven is enough, and what is no
// NIC, ours or VFIO's is left out.
func TestAnyFunction(t *testing.T) {
	tree := healthy(t)
	tree.Function(hostpcitest.Function{Address: "0000:05:00.0", Vendor: 0x8086, Device: 0x1572, Class: 0x020000, Driver: "i40e", Group: 20})
	tree.Function(hostpcitest.Function{Address: "0000:06:00.0", Vendor: 0x1b36, Device: 0x10, Class: 0x010802, Driver: "nvme", Group: 21})
	r := must.Get(doctor.Run(t.Context(), tree.Root(), "", doctor.Options{Drivers: ours}))(t)
	should.Hold(t, len(r.Functions) == 2 && r.CouldStart && r.Functions[0].CouldStart && !r.Functions[1].CouldStart, "%+v", r)
}

// TestVirtualFunction: its IDs read as all ones in configuration space, and yet
// it is there.
func TestVirtualFunction(t *testing.T) {
	tree := healthy(t)
	tree.Function(hostpcitest.Function{Address: "0000:03:00.1", Behind: "0000:00:1c.0", Class: 0x020000, Group: 13})
	tree.Link("sys/devices/pci0000:00/0000:00:1c.0/0000:03:00.0/physfn", "sys/devices/pci0000:00/0000:00:1c.0/0000:03:00.1")
	config := nicConfig()
	copy(config, "\xff\xff\xff\xff")
	tree.File(nicDir+"/config", string(config))
	r, err := doctor.Run(t.Context(), tree.Root(), nic, doctor.Options{})
	should.Hold(t, err == nil && r.CouldStart, "%+v, %v", r, err)
	f, _ := find(r, "interrupts")
	should.Hold(t, f.What == "256 MSI-X vectors", "%+v", f)
}

func TestNoFunctions(t *testing.T) {
	tree := healthy(t)
	tree.Remove("sys/bus/pci/devices")
	r, err := doctor.Run(t.Context(), tree.Root(), "", doctor.Options{})
	must.Hold(t, err == nil && !r.CouldStart, "%+v, %v", r, err)
	f, ok := find(r, "functions")
	should.Hold(t, ok && f.Severity == doctor.Error && strings.Contains(f.Why, "emu:"), "%+v", f)
}

// TestBrokenFunction: one that cannot be read hides no other.
func TestBrokenFunction(t *testing.T) {
	tree := healthy(t)
	tree.Function(hostpcitest.Function{Address: "0000:05:00.0", Class: 0x020000})
	tree.File(hostpcitest.Dir("0000:05:00.0")+"/numa_node", "x\n")
	r, err := doctor.Run(t.Context(), tree.Root(), "", doctor.Options{})
	must.Hold(t, err == nil && r.CouldStart, "%+v, %v", r, err)
	f, ok := find(r, "functions")
	should.Hold(t, ok && f.Severity == doctor.Warning && strings.Contains(f.What, "0000:05:00.0"), "%+v", f)
}

// TestEmptyHost: a host that tells nothing gets findings, not errors.
func TestEmptyHost(t *testing.T) {
	r, err := doctor.Run(t.Context(), hostpcitest.New(t).Root(), "", doctor.Options{})
	should.Hold(t, err == nil && !r.CouldStart && len(r.Host) != 0, "%+v, %v", r, err)
}

func TestErrors(t *testing.T) {
	root := healthy(t).Root()
	for address, want := range map[string]error{"eth0": vfio.ErrBadAddress, "0000:09:00.0": hostpci.ErrNoFunction} {
		should.Refuse(doctor.Run(t.Context(), root, address, doctor.Options{}))(t, want, "%q", address)
	}
	should.Refuse(doctor.Run(t.Context(), "/nonexistent", "", doctor.Options{}))(t, os.ErrNotExist)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	should.Refuse(doctor.Run(ctx, root, "", doctor.Options{}))(t, context.Canceled)
	tree := healthy(t)
	tree.File("proc/self/status", "Uid:\tx\n")
	should.Explain(doctor.Run(t.Context(), tree.Root(), "", doctor.Options{}))(t, "Uid")
}

func TestJSON(t *testing.T) {
	b, err := json.Marshal(doctor.Finding{Check: "iommu", Severity: doctor.Error, What: "off", Fix: []string{"x"}})
	want := `{"check":"iommu","severity":"error","what":"off","fix":["x"]}`
	should.Hold(t, err == nil && string(b) == want, "%s, %v", b, err)
}

// TestThisHost looks at whatever machine runs the test, and leaves no file open.
func TestThisHost(t *testing.T) {
	before := leaktest.Files(t)
	r := must.Get(doctor.Run(t.Context(), "/", "", doctor.Options{Drivers: ours}))(t)
	should.Be(t, leaktest.Files(t), before, "files open before, after")
	for _, f := range r.Host {
		if f.What == "" || f.Severity == doctor.Error && len(f.Fix) == 0 {
			t.Errorf("%+v does not help", f)
		}
	}
}
