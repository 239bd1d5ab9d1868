package dra_test

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	drahealth "k8s.io/kubelet/pkg/apis/dra-health/v1"
	drapb "k8s.io/kubelet/pkg/apis/dra/v1"
	registerapi "k8s.io/kubelet/pkg/apis/pluginregistration/v1"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/kubernetes/internal/dra"
)

// wait bounds the waits of a test together.
const wait = 3 * time.Minute

// kubelet stands for a kubelet as a driver sees it: a folder in which sockets appear, and calls.
type kubelet struct {
	t                       *testing.T
	ctx                     context.Context
	plugins, registry, cdi  string
	registration, resources *grpc.ClientConn
}

// newKubelet makes the folders of a kubelet. Names of sockets are short.
func newKubelet(t *testing.T) *kubelet {
	folder := must.Get(os.MkdirTemp("", "k"))(t)
	t.Cleanup(func() { should.OK(t, os.RemoveAll(folder)) })
	ctx, cancel := context.WithTimeout(t.Context(), wait)
	t.Cleanup(cancel)
	k := &kubelet{t: t, ctx: ctx, plugins: filepath.Join(folder, "p"), registry: filepath.Join(folder, "r"), cdi: filepath.Join(folder, "c")}
	for _, f := range []string{k.plugins, k.registry} {
		must.OK(t, os.Mkdir(f, 0o700))
	}
	return k
}

// register waits for the driver's socket and registers the driver, as the kubelet does when it
// starts.
func (k *kubelet) register() {
	k.t.Helper()
	var sockets []string
	k.eventually("a socket in the registry", func() bool {
		sockets, _ = filepath.Glob(filepath.Join(k.registry, "*.sock"))
		return len(sockets) == 1
	})
	k.registration = k.dial(sockets[0])
	r := registerapi.NewRegistrationClient(k.registration)
	info := must.Get(r.GetInfo(k.ctx, &registerapi.InfoRequest{}, grpc.WaitForReady(true)))(k.t)
	must.Hold(k.t, info.Type == registerapi.DRAPlugin && info.Name == dra.DriverName, "%v", info)
	must.Get(r.NotifyRegistrationStatus(k.ctx, &registerapi.RegistrationStatus{PluginRegistered: true}))(k.t)
	k.resources = k.dial(info.Endpoint)
}

func (k *kubelet) dial(socket string) *grpc.ClientConn {
	k.t.Helper()
	c := must.Get(grpc.NewClient("unix://"+socket, grpc.WithTransportCredentials(insecure.NewCredentials())))(k.t)
	k.t.Cleanup(func() { c.Close() })
	return c
}

// prepare has a claim prepared, and returns the names of the devices for the runtime.
func (k *kubelet) prepare(name, uid string) ([]string, error) {
	k.t.Helper()
	r, err := drapb.NewDRAPluginClient(k.resources).NodePrepareResources(k.ctx,
		&drapb.NodePrepareResourcesRequest{Claims: []*drapb.Claim{{Namespace: "default", Name: name, Uid: uid}}}, grpc.WaitForReady(true))
	if err != nil {
		return nil, err
	}
	c := r.Claims[uid]
	if c == nil || c.Error != "" {
		return nil, fmt.Errorf("%v", c)
	}
	var ids []string
	for _, d := range c.Devices {
		ids = append(ids, d.CdiDeviceIds...)
	}
	return ids, nil
}

func (k *kubelet) unprepare(name, uid string) error {
	k.t.Helper()
	r, err := drapb.NewDRAPluginClient(k.resources).NodeUnprepareResources(k.ctx,
		&drapb.NodeUnprepareResourcesRequest{Claims: []*drapb.Claim{{Namespace: "default", Name: name, Uid: uid}}}, grpc.WaitForReady(true))
	if err != nil {
		return err
	}
	if c := r.Claims[uid]; c == nil || c.Error != "" {
		return fmt.Errorf("%v", c)
	}
	return nil
}

// awaitHealth reads the health of devices until that of one is as said.
func (k *kubelet) awaitHealth(device string, want drahealth.HealthStatus) {
	k.t.Helper()
	ctx, cancel := context.WithCancel(k.ctx)
	defer cancel()
	s, err := drahealth.NewDRAResourceHealthClient(k.resources).NodeWatchResources(ctx, &drahealth.NodeWatchResourcesRequest{}, grpc.WaitForReady(true))
	for err == nil {
		var r *drahealth.NodeWatchResourcesResponse
		if r, err = s.Recv(); err == nil {
			for _, d := range r.Devices {
				if d.Device.DeviceName == device && d.Health == want {
					return
				}
			}
		}
	}
	k.t.Fatalf("%s is never %v: %v", device, want, err)
}

func (k *kubelet) eventually(what string, is func() bool) {
	k.t.Helper()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-k.ctx.Done():
			k.t.Fatal("never:", what)
		case <-tick.C:
		}
	}
}
