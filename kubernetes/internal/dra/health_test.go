package dra_test

import (
	"net"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1"

	"github.com/trapeze-nic/trapeze/ci/kit/hostpcitest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
)

// awaitTaint waits until the slices have one taint of a device, or none for "".
func (r *rig) awaitTaint(device, condition string, effect resourceapi.DeviceTaintEffect) {
	r.t.Helper()
	r.eventually("taint "+condition+" of "+device, func() bool {
		d := r.device(device)
		if condition == "" {
			return d != nil && len(d.Taints) == 0
		}
		return d != nil && len(d.Taints) == 1 && d.Taints[0].Value == condition && d.Taints[0].Effect == effect && d.Taints[0].TimeAdded != nil
	})
}

// awaitEvent waits for an event of the node whose message has the words.
func (r *rig) awaitEvent(kind string, words ...string) {
	r.t.Helper()
	r.eventually("event "+strings.Join(words, " "), func() bool {
		list, err := r.client.CoreV1().Events("default").List(r.ctx, metav1.ListOptions{})
		return err == nil && slices.ContainsFunc(list.Items, func(e corev1.Event) bool {
			return e.Type == kind && e.InvolvedObject.Name == "n1" && e.InvolvedObject.Kind == "Node" &&
				!slices.ContainsFunc(words, func(w string) bool { return !strings.Contains(e.Message, w) })
		})
	})
}

// awaitCondition waits until the kubelet, the slices and the events have a condition of a device.
func (r *rig) awaitCondition(device, condition string, effect resourceapi.DeviceTaintEffect) {
	r.t.Helper()
	r.awaitHealth(device, drahealth.HealthStatus_UNHEALTHY)
	r.awaitTaint(device, condition, effect)
	r.awaitEvent(corev1.EventTypeWarning, device, condition)
}

// awaitWell waits until all of them have it as well again.
func (r *rig) awaitWell(device string) {
	r.t.Helper()
	r.awaitHealth(device, drahealth.HealthStatus_HEALTHY)
	r.awaitTaint(device, "", "")
	r.awaitEvent(corev1.EventTypeNormal, device, "well again")
}

func TestHealthOfLink(t *testing.T) {
	r := newRig(t)
	r.awaitHealth(whole, drahealth.HealthStatus_HEALTHY)
	r.tree.File("sys/class/net/ens1/carrier", "0\n")
	r.awaitCondition(whole, "no-link", resourceapi.DeviceTaintEffectNoSchedule)
	r.tree.File("sys/class/net/ens1/carrier", "1\n")
	r.awaitWell(whole)
}

// TestHealthOfReset: a function that does not answer is resetting, and gone after 10 seconds.
func TestHealthOfReset(t *testing.T) {
	r := newRig(t)
	r.awaitHealth(whole, drahealth.HealthStatus_HEALTHY)
	config := hostpcitest.Dir("0000:03:00.0") + "/config"
	answers := must.Get(os.ReadFile(r.tree.Root().Path(config)))(t)
	r.tree.File(config, strings.Repeat("\xff", len(answers)))
	r.awaitCondition(whole, "resetting", resourceapi.DeviceTaintEffectNoSchedule)
	r.pass(11 * time.Second)
	r.awaitCondition(whole, "gone", resourceapi.DeviceTaintEffectNoExecute)
	r.tree.File(config, string(answers))
	r.awaitWell(whole)
}

// TestHealthOfErrors: errors from before the driver do not count, and others for ten minutes.
func TestHealthOfErrors(t *testing.T) {
	r := newRig(t)
	r.stop()
	r.fatalErrors(3)
	r.start()
	r.awaitHealth(whole, drahealth.HealthStatus_HEALTHY)
	r.fatalErrors(4)
	r.awaitCondition(whole, "fatal-error", resourceapi.DeviceTaintEffectNoExecute)
	r.pass(11 * time.Minute)
	r.awaitWell(whole)
}

// TestHealthOfLost: a function that leaves the bus stays in the slices for as long as a claim has
// it. A driver that is started later knows that, too.
func TestHealthOfLost(t *testing.T) {
	r := newRig(t)
	uid, _ := r.prepared("c1", whole)
	r.tree.Remove(hostpcitest.Dir("0000:03:00.0"))
	r.awaitCondition(whole, "gone", resourceapi.DeviceTaintEffectNoExecute)
	r.stop()
	r.start()
	r.awaitHealth(whole, drahealth.HealthStatus_UNHEALTHY)
	r.unprepared("c1", uid)
	r.eventually("slices without it", func() bool { return r.device("emulated-0") != nil && r.device(whole) == nil })
}

func TestHealthOfAgent(t *testing.T) {
	r := newRig(t)
	r.awaitCondition("agent-port0", "agent-gone", resourceapi.DeviceTaintEffectNoSchedule)
	r.tree.Dir("run/trapeze")
	// The path of a socket has 107 bytes at most: the test would not run in longer folders.
	l := must.Get(net.Listen("unix", r.tree.Root().Path("run/trapeze/agent.sock")))(t)
	r.awaitWell("agent-port0")
	must.OK(t, l.Close())
	r.awaitHealth("agent-port0", drahealth.HealthStatus_UNHEALTHY)
	r.awaitTaint("agent-port0", "agent-gone", resourceapi.DeviceTaintEffectNoSchedule)
}
