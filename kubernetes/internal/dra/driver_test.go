package dra_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/trapeze-nic/trapeze/ci/kit/hostpcitest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/kubernetes/internal/dra"
	"github.com/trapeze-nic/trapeze/kubernetes/internal/node"
)

const whole = "pci-0000-03-00-0"

var drivers = []hostpci.Driver{{Name: "trapeze", Vendor: 0x1234, Device: 0x7250}}

// rig is a driver with a node, a kubelet and an API server, none of which is real.
type rig struct {
	*kubelet
	tree        *hostpcitest.Tree
	kernel      *hostpcitest.Kernel
	write       func(name, value string) error // of the driver into sysfs
	client      kubernetes.Interface           // of the test
	own         kubernetes.Interface           // of the driver
	away        atomic.Bool                    // the API server is
	agentClaims string
	later       atomic.Int64 // by how much the driver's clock is ahead, in nanoseconds
	stop        func()
}

// pass makes the driver's clock go on by d.
func (r *rig) pass(d time.Duration) { r.later.Add(int64(d)) }

// newRig makes one with client-go's fake API server.
func newRig(t *testing.T) *rig {
	r := &rig{}
	client := fake.NewClientset(&corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1", UID: "node-uid"}})
	client.PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return r.away.Load(), nil, errors.New("the API server is away")
	})
	r.run(t, client, client)
	return r
}

// run starts all but the API server.
func (r *rig) run(t *testing.T, client, own kubernetes.Interface) {
	r.kubelet, r.tree, r.client, r.own = newKubelet(t), hostpcitest.New(t), client, own
	r.agentClaims = filepath.Join(t.TempDir(), "claims")
	nic := hostpcitest.NIC()
	nic.Driver, nic.Netdev = "trapeze-nic", "ens1"
	r.tree.Function(nic)
	r.tree.Driver("vfio-pci")
	r.tree.File("sys/module/vfio_pci/initstate", "live\n")
	r.tree.File("dev/vfio/vfio", "")
	r.tree.File("dev/vfio/12", "")
	r.kernel = r.tree.Kernel(map[string]string{nic.Address: nic.Driver})
	r.write = r.kernel.Write
	r.start()
	t.Cleanup(func() { r.stop() })
}

// start starts a driver, as a pod of its own would be.
func (r *rig) start() {
	r.t.Helper()
	n := must.Get(node.New(node.Options{Root: r.tree.Root(), Drivers: drivers, Own: "trapeze", Emulated: 2,
		Agents: []node.Agent{{Name: "port0", Socket: "/run/trapeze/agent.sock", VIs: 100, Memory: 1 << 30}},
		Now:    func() time.Time { return time.Now().Add(time.Duration(r.later.Load())) }}))(r.t)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- dra.Run(ctx, dra.Options{NodeName: "n1", Client: r.own, Node: n, Root: r.tree.Root(), Bind: hostpci.Options{Write: r.write},
			Agent: dra.Agent{Claims: r.agentClaims, Cgroups: "/" + podGroup}, CDI: r.cdi, Plugins: r.plugins, Registry: r.registry, Interval: 20 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	}()
	r.stop = func() {
		cancel()
		should.OK(r.t, <-ended)
		r.stop = func() {}
	}
	r.register()
}

// claim makes a claim that is allocated as the scheduler would.
func (r *rig) claim(name string, config []resourceapi.DeviceAllocationConfiguration, results ...resourceapi.DeviceRequestAllocationResult) string {
	r.t.Helper()
	c := &resourceapi.ResourceClaim{ObjectMeta: metav1.ObjectMeta{Namespace: "default", Name: name, UID: types.UID("uid-" + name)}}
	for _, result := range results {
		request := &resourceapi.ExactDeviceRequest{DeviceClassName: "nic.example", AllocationMode: resourceapi.DeviceAllocationModeExactCount, Count: 1}
		if len(result.ConsumedCapacity) > 0 {
			request.Capacity = &resourceapi.CapacityRequirements{Requests: result.ConsumedCapacity}
		}
		c.Spec.Devices.Requests = append(c.Spec.Devices.Requests, resourceapi.DeviceRequest{Name: result.Request, Exactly: request})
	}
	return r.allocate(c, config, results...)
}

// podUID is the pod of a claim.
func podUID(claim string) types.UID { return types.UID("pod-" + claim) }

// allocate makes a claim with what was allocated for it, and returns its UID.
func (r *rig) allocate(c *resourceapi.ResourceClaim, config []resourceapi.DeviceAllocationConfiguration, results ...resourceapi.DeviceRequestAllocationResult) string {
	r.t.Helper()
	for i := range results {
		results[i].Driver, results[i].Pool = dra.DriverName, "n1"
	}
	claims := r.client.ResourceV1().ResourceClaims(c.Namespace)
	c = must.Get(claims.Create(r.ctx, c, metav1.CreateOptions{}))(r.t)
	c.Status.Allocation = &resourceapi.AllocationResult{Devices: resourceapi.DeviceAllocationResult{Results: results, Config: config}}
	c.Status.ReservedFor = []resourceapi.ResourceClaimConsumerReference{{Resource: "pods", Name: c.Name, UID: podUID(c.Name)}}
	must.Get(claims.UpdateStatus(r.ctx, c, metav1.UpdateOptions{}))(r.t)
	return string(c.UID)
}

func opaque(raw string) []resourceapi.DeviceAllocationConfiguration {
	return []resourceapi.DeviceAllocationConfiguration{{Source: resourceapi.AllocationConfigSourceClaim, DeviceConfiguration: resourceapi.DeviceConfiguration{
		Opaque: &resourceapi.OpaqueDeviceConfiguration{Driver: dra.DriverName, Parameters: runtime.RawExtension{Raw: []byte(raw)}}}}}
}

// edits are what the runtime would do to a container with devices.
func (r *rig) edits(ids []string) (all specs.ContainerEdits) {
	r.t.Helper()
	files, _ := filepath.Glob(filepath.Join(r.cdi, "*.json"))
	for _, path := range files {
		text := must.Get(os.ReadFile(path))(r.t)
		var s specs.Spec
		must.OK(r.t, json.Unmarshal(text, &s))
		for _, d := range s.Devices {
			if slices.Contains(ids, s.Kind+"="+d.Name) {
				all.Env = append(all.Env, d.ContainerEdits.Env...)
				all.Mounts = append(all.Mounts, d.ContainerEdits.Mounts...)
				all.DeviceNodes = append(all.DeviceNodes, d.ContainerEdits.DeviceNodes...)
			}
		}
	}
	return all
}

func (r *rig) driverOf() string {
	return must.Get(hostpci.DriverOf(r.tree.Root(), hostpcitest.NIC().Address))(r.t)
}

// prepared makes a claim to a device, prepares it, and returns its UID and the names for the runtime.
func (r *rig) prepared(name, device string) (uid string, ids []string) {
	r.t.Helper()
	uid = r.claim(name, nil, resourceapi.DeviceRequestAllocationResult{Request: "nic", Device: device})
	return uid, must.Get(r.prepare(name, uid))(r.t)
}

// unprepared takes a claim back.
func (r *rig) unprepared(name, uid string) {
	r.t.Helper()
	should.OK(r.t, r.unprepare(name, uid))
}

// driverIs checks which driver has the NIC.
func (r *rig) driverIs(want string) {
	r.t.Helper()
	should.Be(r.t, r.driverOf(), want, "driver")
}

// device is a device as the slices have it; nil if they have not.
func (r *rig) device(name string) *resourceapi.Device {
	list, err := r.client.ResourceV1().ResourceSlices().List(r.ctx, metav1.ListOptions{})
	if err != nil {
		return nil
	}
	for _, s := range list.Items {
		for _, d := range s.Spec.Devices {
			if d.Name == name {
				return &d
			}
		}
	}
	return nil
}

func TestPublishes(t *testing.T) {
	r := newRig(t)
	r.eventually("slices", func() bool { return r.device(whole) != nil })
	d := r.device(whole)
	for name, want := range map[resourceapi.QualifiedName]any{"safe": true, "aloneInGroup": true, "defaultRoute": false, "inUse": false,
		"numaNode": int64(0), "iommuGroup": int64(12), "fits": "trapeze", "kind": "vfio", "resource.kubernetes.io/pciBusID": "0000:03:00.0"} {
		a := d.Attributes[name]
		var got any
		switch {
		case a.BoolValue != nil:
			got = *a.BoolValue
		case a.IntValue != nil:
			got = *a.IntValue
		case a.StringValue != nil:
			got = *a.StringValue
		}
		should.Be(t, got, want, "%s", name)
	}
	a := r.device("agent-port0")
	if a.AllowMultipleAllocations == nil || !*a.AllowMultipleAllocations || value(a, "vis") != 100 || value(a, "memory") != 1<<30 {
		t.Errorf("the share is %+v", a)
	}
	should.Hold(t, r.device("emulated-1") != nil, "an emulated NIC is missing")
}

func value(d *resourceapi.Device, capacity resourceapi.QualifiedName) int64 {
	q := d.Capacity[capacity].Value
	return q.Value()
}

// TestWholeNIC: a claim gets the function by VFIO; no other claim gets it; and the kernel has it back in the end.
func TestWholeNIC(t *testing.T) {
	r := newRig(t)
	uid, first := r.prepared("c1", whole)
	r.driverIs("vfio-pci")
	e := r.edits(first)
	if !slices.Contains(e.Env, "TRAPEZE_DEVICE=pci:0000:03:00.0") || !slices.Contains(e.Env, "TRAPEZE_DEVICE_NIC=pci:0000:03:00.0") {
		t.Errorf("the environment is %q", e.Env)
	}
	var nodes []string
	for _, n := range e.DeviceNodes {
		nodes = append(nodes, n.Path)
	}
	slices.Sort(nodes)
	should.Same(t, nodes, []string{"/dev/vfio/12", "/dev/vfio/vfio"}, "nodes")
	other := r.claim("c2", nil, resourceapi.DeviceRequestAllocationResult{Request: "nic", Device: whole})
	should.Explain(r.prepare("c2", other))(t, "default/c1", "a second claim")
	r.register() // the kubelet has restarted
	for range 2 {
		r.unprepared("c1", uid)
	}
	r.driverIs(hostpcitestDriver)
	_, err := r.prepare("c2", other)
	should.Hold(t, err == nil, "%+v", err)
	r.unprepared("c2", other)
	files, _ := filepath.Glob(filepath.Join(r.cdi, "*"))
	should.Hold(t, len(files) == 0, "left behind: %q", files)
}

const hostpcitestDriver = "trapeze-nic"

// TestInUse: a NIC with the node's default route is marked, and no claim gets it.
func TestInUse(t *testing.T) {
	r := newRig(t)
	r.eventually("slices", func() bool { return r.device(whole) != nil })
	r.tree.File("proc/net/route", "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\nens1\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n")
	r.eventually("the default route in the slice", func() bool {
		d := r.device(whole)
		return d != nil && *d.Attributes["defaultRoute"].BoolValue && !*d.Attributes["safe"].BoolValue
	})
	uid := r.claim("c1", nil, resourceapi.DeviceRequestAllocationResult{Request: "nic", Device: whole})
	should.Explain(r.prepare("c1", uid))(t, "not safe")
	should.Same(t, r.kernel.Writes(), nil, "written")
}

func TestShareAndEmulated(t *testing.T) {
	r := newRig(t)
	share := types.UID("s1")
	uid := r.claim("c1", opaque(`{"apiVersion":"nic.trapeze-nic.github.io/v1","kind":"NICParameters","port":9000,"peers":["a.example:9000","b:1"]}`),
		resourceapi.DeviceRequestAllocationResult{Request: "em", Device: "emulated-0"})
	ids := must.Get(r.prepare("c1", uid))(t)
	if e := r.edits(ids); !slices.Contains(e.Env, "TRAPEZE_DEVICE=emu:?wire=udp://0.0.0.0:9000&peer=a.example:9000,b:1") {
		t.Errorf("%q", e.Env)
	}
	uid = r.claim("c2", nil, resourceapi.DeviceRequestAllocationResult{Request: "s", Device: "agent-port0", ShareID: &share,
		ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{"vis": resource.MustParse("64"), "memory": resource.MustParse("256Mi")}},
		resourceapi.DeviceRequestAllocationResult{Request: "em-2", Device: "emulated-1"})
	ids = must.Get(r.prepare("c2", uid))(t)
	e := r.edits(ids)
	should.Same(t, e.Env, []string{"TRAPEZE_DEVICE_S=agent:port0?memory=268435456&vis=64", "TRAPEZE_DEVICE_EM_2=emu:?wire=udp://0.0.0.0:0"})
	should.Hold(t, len(e.Mounts) == 1 && e.Mounts[0].HostPath == "/run/trapeze" && len(e.DeviceNodes) == 0, "%+v", e)
}

// TestHostileClaims: none is prepared, nothing is changed, and the error names what is wrong.
func TestHostileClaims(t *testing.T) {
	r := newRig(t)
	head := `{"apiVersion":"nic.trapeze-nic.github.io/v1","kind":"NICParameters",`
	for i, c := range []struct{ device, parameters, says string }{
		{"emulated-9", "", "no such device"},
		{"../../etc", "", "no such device"},
		{"emulated-0", `{"apiVersion":"v2","kind":"NICParameters"}`, "apiVersion"},
		{"emulated-0", head + `"port":70000}`, "port 70000"},
		{"emulated-0", head + `"port":-1}`, "port -1"},
		{"emulated-0", head + `"socket":"/run/containerd.sock"}`, "socket"},
		{"emulated-0", head + `"peers":["a:1&key=/etc/shadow"]}`, "peers"},
		{"emulated-0", head + `"peers":["a&role=x:1"]}`, "peers"},
		{"emulated-0", head + `"peers":["a:0"]}`, "peers"},
		{"emulated-0", head + `"peers":[` + strings.Repeat(`"a:1",`, 16) + `"a:1"]}`, "at most 16"},
		{"emulated-0", head + `"peers":["` + strings.Repeat("a", 5000) + `:1"]}`, "at most 4096"},
		{whole, head + `"port":1}`, "only emulated"},
		{"agent-port0", head + `"port":1}`, "only emulated"},
	} {
		name := fmt.Sprintf("hostile-%d", i)
		var config []resourceapi.DeviceAllocationConfiguration
		if c.parameters != "" {
			config = opaque(c.parameters)
		}
		uid := r.claim(name, config, resourceapi.DeviceRequestAllocationResult{Request: "bad", Device: c.device})
		should.Explain(r.prepare(name, uid))(t, c.says, "%s %s", c.device, c.parameters)
	}
	uid := r.claim("half", nil, resourceapi.DeviceRequestAllocationResult{Request: "a", Device: whole}, resourceapi.DeviceRequestAllocationResult{Request: "b", Device: "gone"})
	ids, err := r.prepare("half", uid)
	should.Hold(t, err != nil, "%+v", ids)
	r.driverIs(hostpcitestDriver)
	files, _ := filepath.Glob(filepath.Join(r.cdi, "*"))
	should.Hold(t, len(files) == 0, "left behind: %q", files)
}

// TestNeverUnprepared: a claim that was deleted while the driver was down loses what it has, but
// not while the API server is away.
func TestNeverUnprepared(t *testing.T) {
	r := newRig(t)
	uid, _ := r.prepared("c1", whole)
	r.stop()
	must.OK(t, r.client.ResourceV1().ResourceClaims("default").Delete(r.ctx, "c1", metav1.DeleteOptions{}))
	r.away.Store(true)
	r.start()
	if ids, err := r.prepare("c1", uid); err == nil { // it is not to be had without the API server
		t.Error(ids)
	}
	r.driverIs("vfio-pci")
	r.stop()
	r.away.Store(false)
	r.start()
	r.eventually("the NIC is given back", func() bool { return r.driverOf() == hostpcitestDriver })
}
