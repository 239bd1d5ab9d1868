package deviceplugin_test

import (
	"context"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/trapeze-nic/trapeze/ci/kit/hostpcitest"
	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/kubernetes/internal/deviceplugin"
	"github.com/trapeze-nic/trapeze/kubernetes/internal/node"
)

func TestMain(m *testing.M) { leaktest.Main(m) }

// registry is the kubelet's side: it takes registrations.
type registry struct {
	api.UnimplementedRegistrationServer
	taken chan *api.RegisterRequest
}

func (r *registry) Register(_ context.Context, q *api.RegisterRequest) (*api.Empty, error) {
	r.taken <- q
	return &api.Empty{}, nil
}

// kubelet starts a kubelet at a folder.
func kubelet(t *testing.T, folder string, r *registry) (stop func()) {
	t.Helper()
	l, err := net.Listen("unix", filepath.Join(folder, "kubelet.sock"))
	if err != nil {
		t.Fatal(err)
	}
	s, ended := grpc.NewServer(), make(chan struct{})
	api.RegisterRegistrationServer(s, r)
	go func() { defer close(ended); _ = s.Serve(l) }()
	return func() { s.Stop(); <-ended }
}

func TestPlugin(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	folder, err := os.MkdirTemp("", "d")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(folder)
	tree := hostpcitest.New(t)
	bound, other := hostpcitest.NIC(), hostpcitest.NIC()
	bound.Driver = "vfio-pci"
	other.Address, other.Driver, other.Group = "0000:04:00.0", "trapeze-nic", 13
	tree.Function(bound)
	tree.Function(other)
	tree.File("dev/vfio/vfio", "")
	tree.File("dev/vfio/12", "")
	n, err := node.New(node.Options{Root: tree.Root(), Drivers: []hostpci.Driver{{Name: "trapeze", Vendor: 0x1234, Device: 0x7250}}, Own: "trapeze", Emulated: 1})
	if err != nil {
		t.Fatal(err)
	}
	r := &registry{taken: make(chan *api.RegisterRequest, 10)}
	stop := kubelet(t, folder, r)
	defer func() { stop() }()
	running, end := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- deviceplugin.Run(running, deviceplugin.Options{Node: n, Root: tree.Root(), Folder: folder, Interval: 10 * time.Millisecond, Logger: slog.New(slog.DiscardHandler)})
	}()
	defer func() {
		end()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}()
	registered := func() *api.RegisterRequest {
		t.Helper()
		select {
		case q := <-r.taken:
			return q
		case <-ctx.Done():
			t.Fatal("it does not register")
			return nil
		}
	}
	q := registered()
	if q.ResourceName != deviceplugin.ResourceName || q.Version != api.Version {
		t.Errorf("%v", q)
	}
	c, err := grpc.NewClient("unix://"+filepath.Join(folder, q.Endpoint), grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	client := api.NewDevicePluginClient(c)
	watching, stopWatching := context.WithCancel(ctx)
	defer stopWatching()
	list, err := client.ListAndWatch(watching, &api.Empty{})
	if err != nil {
		t.Fatal(err)
	}
	await := func(health string) {
		t.Helper()
		for {
			l, err := list.Recv()
			if err != nil {
				t.Fatal(err)
			}
			if len(l.Devices) != 2 || l.Devices[0].ID != "pci-0000-03-00-0" || l.Devices[1].ID != "emulated-0" {
				t.Fatalf("%v: a NIC that the kernel has must not be offered", l)
			}
			if l.Devices[0].Health == health {
				return
			}
		}
	}
	await(api.Healthy)
	a, err := client.Allocate(ctx, &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: []string{"pci-0000-03-00-0", "emulated-0"}}}})
	if err != nil {
		t.Fatal(err)
	}
	one := a.ContainerResponses[0]
	if one.Envs["TRAPEZE_DEVICE"] != "pci:0000:03:00.0" || one.Envs["TRAPEZE_DEVICE_1"] != "emu:?wire=udp://0.0.0.0:0" || len(one.Devices) != 2 {
		t.Errorf("%v", one)
	}
	if a, err := client.Allocate(ctx, &api.AllocateRequest{ContainerRequests: []*api.ContainerAllocateRequest{{DevicesIds: []string{"pci-0000-04-00-0"}}}}); err == nil {
		t.Error("allocated:", a)
	}
	tree.File(hostpcitest.Dir(bound.Address)+"/config", string([]byte{0xff, 0xff, 0xff, 0xff}))
	await(api.Unhealthy)
	stop() // the kubelet restarts
	stop = kubelet(t, folder, r)
	registered()
}
