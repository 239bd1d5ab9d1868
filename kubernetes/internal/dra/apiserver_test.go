package dra_test

import (
	"errors"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/kubernetes/names"
	"github.com/trapeze-nic/trapeze/via"
)

// TestAPIServer runs the driver against a real API server, on etcd, with what kubernetes/deploy and
// kubernetes/examples have. ci/kubernetes/run builds the programs that the variables name.
func TestAPIServer(t *testing.T) {
	(&cluster{t: t}).program("TRAPEZE_ETCD")
	needsPods(t)
	image := buildTrapeze(t) // before the time of the cluster begins
	c := startCluster(t)
	must.Get(c.admin.CoreV1().Nodes().Create(c.ctx, readyNode(), metav1.CreateOptions{}))(t)
	c.kubectl("apply", "--server-side", "--validate=strict", "-k", "../../deploy")
	c.kubectl("apply", "--server-side", "--validate=strict", "-f", c.program("TRAPEZE_MPI_OPERATOR"))
	// kubectl fails at once while the definition has no conditions.
	c.eventually("jobs of MPI", func() bool { return c.try("wait", "--for=condition=Established", "crd/mpijobs.kubeflow.org") == nil })
	for _, example := range []string{"file.yaml", "mpi.yaml"} {
		c.kubectl("apply", "--server-side", "--validate=strict", "-f", "../../examples/"+example)
	}
	startProgram(t, c.program("TRAPEZE_KUBE_SCHEDULER"), "--kubeconfig="+c.kubeconfig, "--leader-elect=false", "--secure-port=0", gates)
	r := &rig{}
	r.run(t, c.admin, c.as("trapeze-nic", "trapeze-nic"))
	t.Run("devices", func(t *testing.T) { devicesAtServer(r.in(t)) })
	t.Run("whole", func(t *testing.T) { wholeAtServer(r.in(t), image) })
	t.Run("share", func(t *testing.T) { shareAtServer(r.in(t), image) })
	t.Run("example", func(t *testing.T) { fileExample(r.in(t), image) })
	t.Run("names", func(t *testing.T) { namesAtServer(t, c) })
	t.Run("away", func(t *testing.T) { serverAway(r.in(t), c) })
}

// in is the rig for a subtest.
func (r *rig) in(t *testing.T) *rig {
	whole := r.t
	r.t = t
	t.Cleanup(func() { r.t = whole })
	return r
}

// devicesAtServer: the server keeps devices and taints as the driver has made them, and events.
func devicesAtServer(r *rig) {
	r.eventually("slices", func() bool {
		return r.device(whole) != nil && r.device("agent-port0") != nil && r.device("emulated-1") != nil
	})
	a := r.device("agent-port0")
	should.Hold(r.t, value(a, "vis") == 100 && a.Capacity["vis"].RequestPolicy != nil && a.AllowMultipleAllocations != nil, "the share is %+v", a)
	r.awaitCondition("agent-port0", "agent-gone", resourceapi.DeviceTaintEffectNoSchedule)
	r.fatalErrors(0)
	r.awaitHealth(whole, drahealth.HealthStatus_HEALTHY)
	r.tree.File("sys/class/net/ens1/carrier", "0\n")
	r.awaitCondition(whole, "no-link", resourceapi.DeviceTaintEffectNoSchedule)
	r.tree.File("sys/class/net/ens1/carrier", "1\n")
	r.awaitWell(whole)
}

// wholeAtServer: the scheduler gives no NIC away that the node needs.
func wholeAtServer(r *rig, image string) {
	r.tree.File("proc/net/route", "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\nens1\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n")
	r.eventually("a NIC that is not safe", func() bool { d := r.device(whole); return d != nil && !*d.Attributes["safe"].BoolValue })
	r.createPod("whole", oneDevice("whole", nil), podOf("whole"))
	r.awaitUnschedulable("whole")
	r.tree.Remove("proc/net/route")
	uid, devices := r.awaitScheduled("whole")
	ids, err := r.prepare("whole", uid)
	must.Hold(r.t, err == nil && slices.Equal(devices, []string{whole}), "%+v %+v", devices, err)
	got := r.output(ids, image, shell(`ls /dev/vfio && env | grep TRAPEZE | sort`)...)
	should.Hold(r.t, got == "12\nvfio\nTRAPEZE_DEVICE=pci:0000:03:00.0\nTRAPEZE_DEVICE_NIC=pci:0000:03:00.0\n", "the pod has %q", got)
	r.unprepared("whole", uid)
	r.driverIs(hostpcitestDriver)
}

// shareAtServer: the scheduler waits for the agent, and gives no more away than the NIC has.
func shareAtServer(r *rig, image string) {
	r.createPod("share", oneDevice("share", map[resourceapi.QualifiedName]resource.Quantity{"vis": resource.MustParse("8")}), podOf("share"))
	r.awaitUnschedulable("share")
	kill := r.startAgent(image)
	defer kill(syscall.SIGTERM)
	r.awaitWell("agent-port0")
	uid, devices := r.awaitScheduled("share")
	ids, err := r.prepare("share", uid)
	must.Hold(r.t, err == nil && slices.Equal(devices, []string{"agent-port0"}), "%+v %+v", devices, err)
	got := r.output(ids, image, shell(`echo $TRAPEZE_DEVICE; trapeze info --device "$TRAPEZE_DEVICE"`)...)
	should.Hold(r.t, strings.HasPrefix(got, "agent:port0?memory=67108864&vis=8\n"), "the pod says %q", got)
	// Of 100 VIs 92 are left.
	r.createPod("more", oneDevice("share", map[resourceapi.QualifiedName]resource.Quantity{"vis": resource.MustParse("93")}), podOf("more"))
	r.awaitUnschedulable("more")
	r.unprepared("share", uid)
}

// fileExample runs the two pods of examples/file.yaml. Claims are made of their templates, and pods
// of the jobs, by hand. There is no DNS of a cluster: the sender gets the receiver's address.
func fileExample(r *rig, image string) {
	port := freeUDPPort(r.t)
	ids, commands := map[string][]string{}, map[string][]string{}
	for _, name := range []string{"receiver", "sender"} {
		template := must.Get(r.client.ResourceV1().ResourceClaimTemplates("default").Get(r.ctx, name+"-nic", metav1.GetOptions{}))(r.t)
		job := must.Get(r.client.BatchV1().Jobs("default").Get(r.ctx, name, metav1.GetOptions{}))(r.t)
		raw := &template.Spec.Spec.Devices.Config[0].Opaque.Parameters.Raw
		*raw = []byte(strings.NewReplacer("receiver:9000", "127.0.0.1:"+port, `"port":9000`, `"port":`+port).Replace(string(*raw)))
		pod := job.Spec.Template.Spec
		commands[name] = pod.Containers[0].Command
		pod.ResourceClaims[0].ResourceClaimTemplateName, pod.ResourceClaims[0].ResourceClaimName = nil, &name
		r.createPod(name, template.Spec.Spec, pod)
		uid, _ := r.awaitScheduled(name)
		ids[name] = must.Get(r.prepare(name, uid))(r.t)
	}
	r.transfer(image, ids["sender"], ids["receiver"], commands["sender"], commands["receiver"])
}

// namesAtServer: programs with the role trapeze-names publish and find names.
func namesAtServer(t *testing.T, c *cluster) {
	c.kubectl("create", "serviceaccount", "program")
	c.kubectl("create", "rolebinding", "program", "--clusterrole=trapeze-names", "--serviceaccount=default:program")
	conform.NameService(t, func(t *testing.T) conform.NameServiceEnds {
		var cut atomic.Bool
		open := func(client kubernetes.Interface) via.NameService {
			// Names of one test are not those of the next.
			namespace := strings.ToLower(strings.Trim(notInNames.ReplaceAllString(t.Name(), "-"), "-"))
			if _, err := c.admin.CoreV1().Namespaces().Get(c.ctx, namespace, metav1.GetOptions{}); err != nil {
				c.kubectl("create", "namespace", namespace)
				c.kubectl("create", "rolebinding", "program", "-n", namespace, "--clusterrole=trapeze-names", "--serviceaccount=default:program")
			}
			return must.Get(names.New(names.Options{Client: client, Namespace: namespace}))(t)
		}
		way := c.config("default", "program")
		way.Wrap(func(next http.RoundTripper) http.RoundTripper {
			return roundTrip(func(q *http.Request) (*http.Response, error) {
				if cut.Load() {
					return nil, errors.New("the API server is away")
				}
				return next.RoundTrip(q)
			})
		})
		return conform.NameServiceEnds{One: open(c.client(way)), Other: open(c.as("default", "program")), Cut: func() { cut.Store(true) }}
	})
}

var notInNames = regexp.MustCompile(`[^A-Za-z0-9]+`)

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(q *http.Request) (*http.Response, error) { return f(q) }

// serverAway: the server ends and comes back. What changes meanwhile is in the slices then.
func serverAway(r *rig, c *cluster) {
	uid, _ := r.prepared("away", whole)
	c.stopServer()
	r.fatalErrors(7)
	r.awaitHealth(whole, drahealth.HealthStatus_UNHEALTHY)
	r.unprepared("away", uid)
	r.driverIs(hostpcitestDriver)
	c.startServer()
	r.awaitTaint(whole, "fatal-error", resourceapi.DeviceTaintEffectNoExecute)
}
