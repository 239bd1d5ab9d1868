package dra_test

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trapeze-nic/trapeze/ci/kit/hostpcitest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

// TestPreparedAndLost: a claim that is prepared again has its NIC and its file again, whatever somebody has
// taken away meanwhile, and gives the NIC back in the end.
func TestPreparedAndLost(t *testing.T) {
	for name, lose := range map[string]func(t *testing.T, r *rig, file string){
		"the kernel's driver has the NIC": func(t *testing.T, r *rig, _ string) { r.giveBack(t) },
		"as after a restart of the node": func(t *testing.T, r *rig, _ string) {
			r.stop()
			r.giveBack(t)
			r.start()
		},
		"the group has another number": func(t *testing.T, r *rig, _ string) {
			r.tree.Remove("dev/vfio/12")
			nic := hostpcitest.NIC()
			nic.Group = 13
			nic.Driver = "vfio-pci"
			r.tree.Remove("sys/bus/pci/devices/" + nic.Address)
			r.tree.Function(nic)
			r.tree.File("dev/vfio/13", "")
		},
		"the file was deleted": func(t *testing.T, _ *rig, file string) {
			must.OK(t, os.Remove(file))
		},
		"the folder was deleted": func(t *testing.T, r *rig, file string) {
			r.giveBack(t)
			must.OK(t, os.RemoveAll(filepath.Dir(file)))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRig(t)
			uid, first := r.prepared("c1", whole)
			file := filepath.Join(r.cdi, "trapeze-"+uid+".json")
			lose(t, r, file)
			again, err := r.prepare("c1", uid)
			must.Hold(t, err == nil && slices.Equal(first, again), "prepared again: %v, %v, want %v", again, err, first)
			r.driverIs("vfio-pci")
			e := r.edits(again)
			must.Hold(t, slices.Contains(e.Env, "TRAPEZE_DEVICE=pci:0000:03:00.0") && len(e.DeviceNodes) == 2, "its file says %+v", e)
			for _, n := range e.DeviceNodes {
				should.Hold(t, r.tree.Root().Exists(strings.TrimPrefix(n.Path, "/")), "there is no node %s", n.Path)
			}
			r.unprepared("c1", uid)
			r.driverIs(hostpcitestDriver)
		})
	}
}

// giveBack gives the NIC back to the kernel behind the driver's back.
func (r *rig) giveBack(t *testing.T) {
	t.Helper()
	must.Get(hostpci.Unbind(r.ctx, r.tree.Root(), hostpcitest.NIC().Address, hostpci.Options{Write: r.kernel.Write}))(t)
}

// TestPreparedAndGone: a claim whose NIC is in use by the node again, or is gone, is not said to be prepared.
func TestPreparedAndGone(t *testing.T) {
	r := newRig(t)
	uid, _ := r.prepared("c1", whole)
	r.giveBack(t)
	const route = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
	r.tree.File("proc/net/route", route+"ens1\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n")
	should.Explain(r.prepare("c1", uid))(t, "device "+whole+" of request nic", "with the default route")
	r.tree.File("proc/net/route", route)
	r.tree.Remove("sys/bus/pci/devices/" + hostpcitest.NIC().Address)
	should.Explain(r.prepare("c1", uid))(t, "device "+whole+" of request nic", "gone")
}

// TestRegistersAgain: a driver whose socket somebody has removed registers with the kubelet again.
func TestRegistersAgain(t *testing.T) {
	r := newRig(t)
	uid := r.claim("c1", nil, resourceapi.DeviceRequestAllocationResult{Request: "em", Device: "emulated-0"})
	for _, pattern := range []string{filepath.Join(r.registry, "*.sock"), filepath.Join(r.plugins, "*", "dra*.sock")} {
		sockets, err := filepath.Glob(pattern)
		must.Hold(t, err == nil && len(sockets) == 1, "%q: %q, %v", pattern, sockets, err)
		before := must.Get(os.Stat(sockets[0]))(t)
		must.OK(t, os.Remove(sockets[0]))
		r.eventually("a new socket", func() bool {
			now, err := os.Stat(sockets[0])
			return err == nil && !now.ModTime().Equal(before.ModTime())
		})
		r.register()
		if _, err := r.prepare("c1", uid); err != nil {
			t.Error(err)
		}
	}
	must.OK(t, r.client.ResourceV1().ResourceSlices().DeleteCollection(r.ctx, metav1.DeleteOptions{}, metav1.ListOptions{}))
	r.eventually("slices", func() bool { return r.device(whole) != nil })
}

// TestTwoDriversOneFolder: two drivers that use one folder for claims do not give one NIC to two of these. The
// second one is asked while the first one binds.
func TestTwoDriversOneFolder(t *testing.T) {
	r := newRig(t)
	other := &rig{kubelet: newKubelet(t), tree: r.tree, kernel: r.kernel, client: r.client, own: r.own, agentClaims: r.agentClaims, write: r.kernel.Write}
	other.cdi = r.cdi
	other.start()
	t.Cleanup(func() { other.stop() })
	mine := r.claim("c1", nil, resourceapi.DeviceRequestAllocationResult{Request: "nic", Device: whole})
	theirs := r.claim("c2", nil, resourceapi.DeviceRequestAllocationResult{Request: "nic", Device: whole})
	asked, answer := false, make(chan error, 1)
	r.stop()
	r.write = func(name, value string) error {
		if !asked {
			asked = true
			go func() {
				_, err := other.prepare("c2", theirs)
				answer <- err
			}()
			time.Sleep(100 * time.Millisecond) // for a second driver that does not wait
		}
		return r.kernel.Write(name, value)
	}
	r.start()
	must.Get(r.prepare("c1", mine))(t)
	should.Say(t, <-answer, "default/c1", "the second driver gave the NIC away, too")
	if err := other.unprepare("c1", mine); err != nil { // as the kubelet asks the driver that registered last
		t.Error(err)
	}
	r.driverIs(hostpcitestDriver)
}
