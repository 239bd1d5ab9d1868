package dra_test

import (
	"fmt"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trapeze-nic/trapeze/ci/kit/hostpcitest"
	"github.com/trapeze-nic/trapeze/kubernetes/internal/dra"
	"github.com/trapeze-nic/trapeze/kubernetes/internal/node"
)

func hundred(tb testing.TB) *node.Node {
	tree := hostpcitest.New(tb)
	for i := range 100 {
		f := hostpcitest.NIC()
		f.Address, f.Behind, f.Group = fmt.Sprintf("0000:%02x:00.0", i+3), "", i+20
		f.Driver, f.Netdev = "trapeze-nic", fmt.Sprintf("ens%d", i)
		tree.Function(f)
	}
	n, err := node.New(node.Options{Root: tree.Root(), Drivers: drivers, Own: "trapeze"})
	if err != nil {
		tb.Fatal(err)
	}
	return n
}

func unknown(node.Device) metav1.Time { return metav1.Time{} }

// TestManyNICs: no slice has more devices than the API server takes, and none is lost.
func TestManyNICs(t *testing.T) {
	devices, err := hundred(t).Devices()
	if err != nil || len(devices) != 100 {
		t.Fatalf("%d devices, %v", len(devices), err)
	}
	names := map[string]bool{}
	for _, s := range dra.Resources("n1", devices, unknown).Pools["n1"].Slices {
		if len(s.Devices) > 64 {
			t.Errorf("a slice of %d devices", len(s.Devices))
		}
		for _, d := range s.Devices {
			names[d.Name] = true
		}
	}
	if len(names) != 100 {
		t.Errorf("%d devices in slices", len(names))
	}
}

// BenchmarkSlices reads a node with 100 NICs and makes its slices.
func BenchmarkSlices(b *testing.B) {
	n := hundred(b)
	for b.Loop() {
		devices, err := n.Devices()
		if err != nil {
			b.Fatal(err)
		}
		dra.Resources("n1", devices, unknown)
	}
}
