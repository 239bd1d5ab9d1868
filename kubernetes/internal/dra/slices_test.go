package dra_test

import (
	"fmt"
	"syscall"
	"testing"
	"time"

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

// BenchmarkSlices reads a node with 100 NICs and makes its slices. On a busy machine cpu-ms/op is
// what that takes alone.
func BenchmarkSlices(b *testing.B) {
	n := hundred(b)
	began := processorTime(b)
	for b.Loop() {
		devices, err := n.Devices()
		if err != nil {
			b.Fatal(err)
		}
		dra.Resources("n1", devices, unknown)
	}
	b.ReportMetric(float64((processorTime(b)-began).Milliseconds())/float64(b.N), "cpu-ms/op")
}

// processorTime returns the time of processors that this process has used.
func processorTime(b *testing.B) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
