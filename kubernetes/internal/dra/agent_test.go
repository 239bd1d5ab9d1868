package dra_test

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1"

	"github.com/trapeze-nic/trapeze/ci/kit/cgrouptest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/kubernetes/internal/dra"
)

// shareOf is an allocation of a share, as the scheduler makes it.
func shareOf(id types.UID, vis, memory string) resourceapi.DeviceRequestAllocationResult {
	return resourceapi.DeviceRequestAllocationResult{Request: "nic", Device: "agent-port0", ShareID: &id,
		ConsumedCapacity: map[resourceapi.QualifiedName]resource.Quantity{"vis": resource.MustParse(vis), "memory": resource.MustParse(memory)}}
}

// TestSharesOfAgent: two pods with shares of a running agent send a file. They have the folder of its
// socket and nothing else. The agent's end is seen, and so is the next one.
func TestSharesOfAgent(t *testing.T) {
	needsPods(t)
	image := buildTrapeze(t)
	r := newRig(t)
	r.awaitCondition("agent-port0", "agent-gone", resourceapi.DeviceTaintEffectNoSchedule)
	kill := r.startAgent(image)
	r.awaitWell("agent-port0")

	ids := map[string][]string{}
	for name, vis := range map[string]string{"sender": "8", "receiver": "8", "greedy": "17"} {
		var err error
		ids[name], err = r.prepare(name, r.claim(name, nil, shareOf(types.UID("share-"+name), vis, "64Mi")))
		must.Hold(t, err == nil, "%+v", err)
	}
	if out, err := r.pod(ids["sender"], image, "touch", "/run/trapeze/mine").CombinedOutput(); err == nil {
		t.Errorf("a pod can write where the socket is: %s", out)
	}
	should.Be(t, r.output(ids["sender"], image, "ls", "/run/trapeze"), "agent.sock\n", "what a pod has")
	send := shell(`head -c 1M /dev/urandom > /tmp/file && sha256sum /tmp/file && trapeze send --device "$TRAPEZE_DEVICE" /tmp/file`)
	receive := shell(`trapeze recv --device "$TRAPEZE_DEVICE" --output /tmp/file && sha256sum /tmp/file`)
	r.transfer(image, ids["sender"], ids["receiver"], send, receive)
	r.heldToShare(image, ids["sender"])
	if out, err := r.pod(ids["greedy"], image, shell(`trapeze info --device "$TRAPEZE_DEVICE"`)...).CombinedOutput(); err == nil || !strings.Contains(string(out), "vis") {
		t.Errorf("a share of 17 VIs where 16 are granted: %v: %s", err, out)
	}
	r.unprepared("greedy", "uid-greedy")
	if left, err := agentlink.ReadClaims(r.agentClaims); err != nil || len(left) != 2 || left["uid-sender-0"].VIs != 8 {
		t.Errorf("%+v, %v", left, err)
	}
	kill(syscall.SIGKILL)
	r.awaitCondition("agent-port0", "agent-gone", resourceapi.DeviceTaintEffectNoSchedule)
	kill = r.startAgent(image)
	r.awaitHealth("agent-port0", drahealth.HealthStatus_HEALTHY)
	r.transfer(image, ids["sender"], ids["receiver"], send, receive) // the folder has the new agent's socket
	kill(syscall.SIGTERM)
}

// podGroup is the control group above those of the pods of these tests.
var podGroup = fmt.Sprintf("trapeze-test-%d", os.Getpid())

// heldToShare: the sender's pod gets its claim's share of 8 VIs and 64 MiB, and no more of the 16 VIs
// that the agent's file grants. So does a pod that the claim gets later. It has one NIC at a time.
func (r *rig) heldToShare(image string, ids []string) {
	ask := func(in func(*exec.Cmd), options string) string {
		c := r.pod(ids, image, shell("trapeze info --device 'agent:port0?"+options+"'")...)
		in(c)
		out, _ := c.CombinedOutput() // says what is refused
		return string(out)
	}
	r.t.Run("held to the share", func(t *testing.T) {
		if got := ask(func(*exec.Cmd) {}, "vis=16"); strings.Contains(got, "grants") {
			t.Errorf("a program that no claim holds: %s", got)
		}
		in := cgrouptest.Make(t, dra.PodCgroups(podGroup, podUID("sender"))[0]+"/container")
		for options, want := range map[string]string{
			"vis=9": "vis=9: claim uid-sender-0 grants 8 at most", "memory=65M": "memory=68157440: claim uid-sender-0 grants 67108864 bytes", "vis=8": "agent:port0",
		} {
			should.Contain(t, ask(in, options), want, "%s", options)
		}
		later := cgrouptest.Make(t, dra.PodCgroups(podGroup, "pod-later")[3])
		if got := ask(later, "vis=9"); strings.Contains(got, "grants") {
			t.Errorf("before the claim has the pod: %s", got)
		}
		claims := r.client.ResourceV1().ResourceClaims("default")
		c := must.Get(claims.Get(r.ctx, "sender", metav1.GetOptions{}))(t)
		c.Status.ReservedFor = append(c.Status.ReservedFor, resourceapi.ResourceClaimConsumerReference{Resource: "pods", Name: "later", UID: "pod-later"})
		must.Get(claims.UpdateStatus(r.ctx, c, metav1.UpdateOptions{}))(t)
		r.pass(time.Minute)
		r.eventually("the later pod is held", func() bool { return strings.Contains(ask(later, "vis=9"), "claim uid-sender-0") })
	})
}

// TestPodCgroups: the names are those that the kubelet gives.
func TestPodCgroups(t *testing.T) {
	for root, want := range map[string][]string{
		"/": {"/kubepods/podu-1", "/kubepods.slice/kubepods-podu_1.slice", "/kubepods/burstable/podu-1", "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-podu_1.slice",
			"/kubepods/besteffort/podu-1", "/kubepods.slice/kubepods-besteffort.slice/kubepods-besteffort-podu_1.slice"},
		"/kubelet": {"/kubelet/kubepods/podu-1", "/kubelet.slice/kubelet-kubepods.slice/kubelet-kubepods-podu_1.slice"},
	} {
		if got := dra.PodCgroups(root, "u-1"); !slices.Equal(got[:len(want)], want) {
			t.Errorf("%s: %q", root, got)
		}
	}
	if got := dra.PodCgroups("/", "../x"); got != nil {
		t.Errorf("%q", got)
	}
}

func shell(script string) []string { return []string{"sh", "-c", script} }

// startAgent starts an agent on the rig's host, and returns what ends it by a signal.
func (r *rig) startAgent(image string) (kill func(syscall.Signal)) {
	r.t.Helper()
	r.tree.Dir("run/trapeze")
	config := filepath.Join(r.t.TempDir(), "agent.toml")
	text := fmt.Sprintf("socket = %q\nclaims = %q\n[nic.port0]\naddress = \"emu:\"\n[[grant]]\nusers = [\"*\"]\nvis = 16\nmemory = \"64M\"\n", r.tree.Root().Path("run/trapeze/agent.sock"), r.agentClaims)
	must.OK(r.t, os.WriteFile(config, []byte(text), 0o600))
	c := startProgram(r.t, filepath.Join(image, "trapeze"), "agent", "--file", config)
	return func(s syscall.Signal) {
		should.OK(r.t, c.Process.Signal(s))
		_ = c.Wait() // its exit code may be that of the signal
	}
}
