package dra_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	"k8s.io/apimachinery/pkg/types"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1"
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
		if ids[name], err = r.prepare(name, r.claim(name, nil, shareOf(types.UID("share-"+name), vis, "64Mi"))); err != nil {
			t.Fatal(err)
		}
	}
	if out, err := r.pod(ids["sender"], image, "touch", "/run/trapeze/mine").CombinedOutput(); err == nil {
		t.Errorf("a pod can write where the socket is: %s", out)
	}
	if got := r.output(ids["sender"], image, "ls", "/run/trapeze"); got != "agent.sock\n" {
		t.Errorf("a pod has %q", got)
	}
	send := shell(`head -c 1M /dev/urandom > /tmp/file && sha256sum /tmp/file && trapeze send --device "$TRAPEZE_DEVICE" /tmp/file`)
	receive := shell(`trapeze recv --device "$TRAPEZE_DEVICE" --output /tmp/file && sha256sum /tmp/file`)
	r.transfer(image, ids["sender"], ids["receiver"], send, receive)
	if out, err := r.pod(ids["greedy"], image, shell(`trapeze info --device "$TRAPEZE_DEVICE"`)...).CombinedOutput(); err == nil || !strings.Contains(string(out), "vis") {
		t.Errorf("a share of 17 VIs where 16 are granted: %v: %s", err, out)
	}
	kill(syscall.SIGKILL)
	r.awaitCondition("agent-port0", "agent-gone", resourceapi.DeviceTaintEffectNoSchedule)
	kill = r.startAgent(image)
	r.awaitHealth("agent-port0", drahealth.HealthStatus_HEALTHY)
	r.transfer(image, ids["sender"], ids["receiver"], send, receive) // the folder has the new agent's socket
	kill(syscall.SIGTERM)
}

func shell(script string) []string { return []string{"sh", "-c", script} }

// startAgent starts an agent on the rig's host, and returns what ends it by a signal.
func (r *rig) startAgent(image string) (kill func(syscall.Signal)) {
	r.t.Helper()
	r.tree.Dir("run/trapeze")
	config := filepath.Join(r.t.TempDir(), "agent.toml")
	text := fmt.Sprintf("socket = %q\n[nic.port0]\naddress = \"emu:\"\n[[grant]]\nusers = [\"*\"]\nvis = 16\nmemory = \"64M\"\n", r.tree.Root().Path("run/trapeze/agent.sock"))
	if err := os.WriteFile(config, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
	c := startProgram(r.t, filepath.Join(image, "trapeze"), "agent", "--file", config)
	return func(s syscall.Signal) {
		if err := c.Process.Signal(s); err != nil {
			r.t.Error(err)
		}
		_ = c.Wait() // its exit code may be that of the signal
	}
}
