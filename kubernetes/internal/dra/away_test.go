package dra_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1"

	resourceapi "k8s.io/api/resource/v1"

	"github.com/trapeze-nic/trapeze/ci/kit/hostpcitest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// TestAPIServerAway: without an API server for an hour, health still goes to the kubelet, prepared
// claims can be taken back, and none is taken away. All is made up for once it is there.
func TestAPIServerAway(t *testing.T) {
	r := newRig(t)
	r.prepared("c1", whole)
	other, _ := r.prepared("c2", "emulated-0")
	r.eventually("slices", func() bool { return r.device(whole) != nil })
	must.OK(t, r.client.ResourceV1().ResourceClaims("default").Delete(r.ctx, "c1", metav1.DeleteOptions{}))
	r.away.Store(true)
	for i := range 12 {
		r.pass(5 * time.Minute)
		r.fatalErrors(i + 1)
		r.awaitHealth(whole, drahealth.HealthStatus_UNHEALTHY)
		r.driverIs("vfio-pci")
	}
	ids, err := r.prepare("c3", "uid-c3")
	should.Hold(t, err != nil, "a claim that cannot be read was prepared: %+v", ids)
	r.unprepared("c2", other)
	r.away.Store(false)
	r.awaitTaint(whole, "fatal-error", resourceapi.DeviceTaintEffectNoExecute)
	r.pass(10 * time.Minute)
	r.eventually("the NIC of the claim that was deleted is given back", func() bool { return r.driverOf() == hostpcitestDriver })
}

// TestAPIServerSilent: an API server that takes requests and does not answer keeps neither health
// nor claims from the kubelet.
func TestAPIServerSilent(t *testing.T) {
	r := newRig(t)
	uid, _ := r.prepared("c1", "emulated-0")
	r.eventually("slices", func() bool { return r.device(whole) != nil })
	silent := make(chan struct{})
	r.client.(*fake.Clientset).PrependReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		select {
		case <-silent:
		case <-time.After(2 * time.Second): // a client's request ends with its context, which a fake one's does not see
		}
		return true, nil, errors.New("the API server is silent")
	})
	defer close(silent)
	r.fatalErrors(1)
	r.awaitHealth(whole, drahealth.HealthStatus_UNHEALTHY)
	r.pass(11 * time.Minute)
	r.awaitHealth(whole, drahealth.HealthStatus_HEALTHY)
	r.unprepared("c1", uid)
}

// fatalErrors has Advanced Error Reporting of the NIC count so many.
func (r *rig) fatalErrors(n int) {
	r.tree.File(hostpcitest.Dir("0000:03:00.0")+"/aer_dev_fatal", fmt.Sprintf("Undefined 1\nTOTAL_ERR_FATAL %d\n", n))
}
