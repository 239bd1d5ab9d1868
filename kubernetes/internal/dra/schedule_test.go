package dra_test

import (
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
)

// readyNode is a node on which a scheduler places pods.
func readyNode() *corev1.Node {
	room := corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("8"), corev1.ResourceMemory: resource.MustParse("8Gi"), corev1.ResourcePods: resource.MustParse("100")}
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "n1"}, Status: corev1.NodeStatus{Capacity: room, Allocatable: room,
		Conditions: []corev1.NodeCondition{{Type: corev1.NodeReady, Status: corev1.ConditionTrue}}}}
}

// oneDevice asks for a device of one of our classes, with a capacity or nil.
func oneDevice(class string, capacity map[resourceapi.QualifiedName]resource.Quantity) resourceapi.ResourceClaimSpec {
	request := &resourceapi.ExactDeviceRequest{DeviceClassName: class + ".nic.trapeze-nic.github.io"}
	if capacity != nil {
		request.Capacity = &resourceapi.CapacityRequirements{Requests: capacity}
	}
	return resourceapi.ResourceClaimSpec{Devices: resourceapi.DeviceClaim{Requests: []resourceapi.DeviceRequest{{Name: "nic", Exactly: request}}}}
}

// podOf is a pod with a claim.
func podOf(claim string) corev1.PodSpec {
	return corev1.PodSpec{ResourceClaims: []corev1.PodResourceClaim{{Name: "nic", ResourceClaimName: &claim}},
		Containers: []corev1.Container{{Name: "c", Image: "trapeze", Resources: corev1.ResourceRequirements{Claims: []corev1.ResourceClaim{{Name: "nic"}}}}}}
}

// createPod makes a claim, and a pod of the same name that has it.
func (r *rig) createPod(name string, claim resourceapi.ResourceClaimSpec, pod corev1.PodSpec) {
	r.t.Helper()
	meta := metav1.ObjectMeta{Namespace: "default", Name: name}
	must.Get(r.client.ResourceV1().ResourceClaims("default").Create(r.ctx, &resourceapi.ResourceClaim{ObjectMeta: meta, Spec: claim}, metav1.CreateOptions{}))(r.t)
	must.Get(r.client.CoreV1().Pods("default").Create(r.ctx, &corev1.Pod{ObjectMeta: meta, Spec: pod}, metav1.CreateOptions{}))(r.t)
}

// awaitScheduled waits until the scheduler has placed a pod, and returns its claim's UID and devices.
func (r *rig) awaitScheduled(name string) (uid string, devices []string) {
	r.t.Helper()
	r.eventually("a node for pod "+name, func() bool {
		p, err := r.client.CoreV1().Pods("default").Get(r.ctx, name, metav1.GetOptions{})
		return err == nil && p.Spec.NodeName == "n1"
	})
	c, err := r.client.ResourceV1().ResourceClaims("default").Get(r.ctx, name, metav1.GetOptions{})
	must.Hold(r.t, err == nil && c.Status.Allocation != nil, "claim %+v, %v", c, err)
	for _, d := range c.Status.Allocation.Devices.Results {
		devices = append(devices, d.Device)
	}
	return string(c.UID), devices
}

// awaitUnschedulable waits until the scheduler has said that there is no device for a pod.
func (r *rig) awaitUnschedulable(name string) {
	r.t.Helper()
	r.eventually("no node for pod "+name, func() bool {
		p, err := r.client.CoreV1().Pods("default").Get(r.ctx, name, metav1.GetOptions{})
		return err == nil && p.Spec.NodeName == "" && slices.ContainsFunc(p.Status.Conditions, func(c corev1.PodCondition) bool {
			return c.Type == corev1.PodScheduled && c.Status == corev1.ConditionFalse && strings.Contains(c.Message, "cannot allocate all claims")
		})
	})
}
