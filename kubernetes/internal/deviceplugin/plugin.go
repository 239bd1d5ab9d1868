// Package deviceplugin offers the NICs of a node to kubelets without Dynamic Resource Allocation,
// by the device plugin API v1beta1. That API has no end of an allocation: only functions that VFIO
// has already are offered, and emulated NICs.
package deviceplugin

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	api "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/kubernetes/internal/dra"
	"github.com/trapeze-nic/trapeze/kubernetes/internal/node"
)

// ResourceName names the resource in the requests of containers.
const ResourceName = "trapeze-nic.github.io/nic"

// socket is the plugin's, beside the kubelet's.
const socket = "trapeze-nic.sock"

const (
	interval    = 5 * time.Second
	answer      = 10 * time.Second // bounds a registration
	retryPeriod = 2 * time.Second
)

// Options of Run.
type Options struct {
	Node *node.Node
	Root hostpci.Root
	// Folder of the kubelet for device plugins.
	Folder string
	// Interval is between two looks at devices and at the kubelet's socket; zero is 5 seconds.
	Interval time.Duration
	Logger   *slog.Logger
}

type plugin struct {
	api.UnimplementedDevicePluginServer
	o Options

	mu      sync.Mutex
	devices []node.Device
	changed chan struct{} // closed and replaced when devices are
}

// Run serves the kubelet until ctx ends, and registers anew when the kubelet has restarted.
func Run(ctx context.Context, o Options) error {
	if o.Interval == 0 {
		o.Interval = interval
	}
	p := &plugin{o: o, changed: make(chan struct{})}
	for {
		err := p.serve(ctx)
		if ctx.Err() != nil {
			return nil
		}
		o.Logger.Info("registering with the kubelet again", "error", err)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(min(retryPeriod, o.Interval)):
		}
	}
}

// serve serves one life of the kubelet: until its socket is another one, or ours is gone.
func (p *plugin) serve(ctx context.Context) error {
	kubelet, own := filepath.Join(p.o.Folder, "kubelet.sock"), filepath.Join(p.o.Folder, socket)
	if err := os.Remove(own); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	life, err := os.Stat(kubelet)
	if err != nil {
		return err
	}
	l, err := net.Listen("unix", own)
	if err != nil {
		return err
	}
	p.look()
	s := grpc.NewServer()
	api.RegisterDevicePluginServer(s, p)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = s.Serve(l) // it ends when the server is stopped
	}()
	defer func() { s.Stop(); <-ended }()
	if err := register(ctx, kubelet); err != nil {
		return err
	}
	tick := time.NewTicker(p.o.Interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		now, err := os.Stat(kubelet)
		// Numbers of files are used again, times of sockets are not.
		if err != nil || !os.SameFile(life, now) || !life.ModTime().Equal(now.ModTime()) {
			return errors.New("the kubelet has restarted")
		}
		if _, err := os.Stat(own); err != nil { // a kubelet that starts removes the sockets of plugins
			return err
		}
		p.look()
	}
}

func register(ctx context.Context, kubelet string) error {
	ctx, cancel := context.WithTimeout(ctx, answer)
	defer cancel()
	c, err := grpc.NewClient("unix://"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer c.Close()
	_, err = api.NewRegistrationClient(c).Register(ctx, &api.RegisterRequest{Version: api.Version, Endpoint: socket, ResourceName: ResourceName})
	return err
}

// look reads the devices that can be offered.
func (p *plugin) look() {
	all, err := p.o.Node.Devices()
	if err != nil {
		p.o.Logger.Warn("some devices could not be read", "error", err)
	}
	var now []node.Device
	for _, d := range all {
		if d.Kind == node.Emulated || d.Kind == node.WholeNIC && d.Safe() && hostpci.IsVFIO(d.Function.Driver) {
			now = append(now, d)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if !reflect.DeepEqual(now, p.devices) {
		p.devices = now
		close(p.changed)
		p.changed = make(chan struct{})
	}
}

func (p *plugin) list() (r *api.ListAndWatchResponse, changed <-chan struct{}) {
	p.mu.Lock()
	defer p.mu.Unlock()
	r = &api.ListAndWatchResponse{}
	for _, d := range p.devices {
		v := &api.Device{ID: d.Name, Health: api.Healthy}
		if d.Health.Condition != "" {
			v.Health = api.Unhealthy
		}
		if d.Kind == node.WholeNIC && d.Function.NUMANode >= 0 {
			v.Topology = &api.TopologyInfo{Nodes: []*api.NUMANode{{ID: int64(d.Function.NUMANode)}}}
		}
		r.Devices = append(r.Devices, v)
	}
	return r, p.changed
}

// GetDevicePluginOptions is described at the API.
func (p *plugin) GetDevicePluginOptions(context.Context, *api.Empty) (*api.DevicePluginOptions, error) {
	return &api.DevicePluginOptions{}, nil
}

// ListAndWatch is described at the API.
func (p *plugin) ListAndWatch(_ *api.Empty, s api.DevicePlugin_ListAndWatchServer) error {
	for {
		r, changed := p.list()
		if err := s.Send(r); err != nil {
			return err
		}
		select {
		case <-s.Context().Done():
			return nil
		case <-changed:
		}
	}
}

// Allocate is described at the API.
func (p *plugin) Allocate(_ context.Context, request *api.AllocateRequest) (*api.AllocateResponse, error) {
	r := &api.AllocateResponse{}
	for _, c := range request.ContainerRequests {
		one, err := p.container(c.DevicesIds)
		if err != nil {
			return nil, err
		}
		r.ContainerResponses = append(r.ContainerResponses, one)
	}
	return r, nil
}

// container makes the answer for one container. The variable of the first device has no number.
func (p *plugin) container(ids []string) (*api.ContainerAllocateResponse, error) {
	r := &api.ContainerAllocateResponse{Envs: map[string]string{}}
	for i, id := range ids {
		d, ok := p.find(id)
		if !ok {
			return nil, fmt.Errorf("%w: %.100q", dra.ErrNoDevice, id)
		}
		address := d.Address
		if d.Kind == node.Emulated {
			address = dra.Parameters{}.Address()
		} else {
			nodes, err := dra.Nodes(p.o.Root, d.Function.Address)
			if err != nil {
				return nil, err
			}
			for _, path := range nodes {
				r.Devices = append(r.Devices, &api.DeviceSpec{ContainerPath: path, HostPath: path, Permissions: "rw"})
			}
		}
		name := dra.Variable
		if i > 0 {
			name = fmt.Sprintf("%s_%d", name, i)
		}
		r.Envs[name] = address
	}
	return r, nil
}

func (p *plugin) find(id string) (node.Device, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, d := range p.devices {
		if d.Name == id {
			return d, true
		}
	}
	return node.Device{}, false
}
