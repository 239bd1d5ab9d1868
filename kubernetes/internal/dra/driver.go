// Package dra is a driver of Kubernetes' Dynamic Resource Allocation for NICs: it publishes the
// NICs of a node as ResourceSlices and prepares claims for them.
package dra

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/kubernetes/scheme"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/dynamic-resource-allocation/kubeletplugin"
	"k8s.io/utils/ptr"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/kubernetes/internal/node"
)

// Options of a Driver.
type Options struct {
	// NodeName is the node's, and that of its pool.
	NodeName string
	Client   kubernetes.Interface
	Node     *node.Node
	// Root is where sys, proc and dev are; Bind says how functions are given to VFIO.
	Root hostpci.Root
	Bind hostpci.Options
	// Agent is told of the shares of its NICs.
	Agent Agent
	// CDI is the folder of the runtime for files of the Container Device Interface.
	CDI string
	// Plugins and Registry are the folders of the kubelet.
	Plugins, Registry string
	// Interval is between two looks at the devices.
	Interval time.Duration
	// PodUID lets two pods of the driver run while one replaces the other; empty for none.
	PodUID types.UID
	Logger *slog.Logger
}

const (
	// sweepEvery is between two searches for prepared claims that have been deleted.
	sweepEvery = 10 * time.Minute
	// bindEvery is between two looks for further pods of claims with shares: the kubelet does not tell.
	bindEvery = 30 * time.Second
	// refresh is between two reports of health. After 30 s without one the kubelet takes the health
	// for unknown.
	refresh = 10 * time.Second
	// apiTime bounds one request to the API server.
	apiTime = 10 * time.Second
	// mostEvents are written of one node at once; further ones are combined.
	mostEvents = 256
)

// Driver is the driver of one node.
type Driver struct {
	options Options
	claims  *claims
	log     *slog.Logger
	events  record.EventRecorder

	mu      sync.Mutex
	devices []node.Device
	since   map[string]condition
	changed chan struct{} // closed and replaced when health changes
}

// condition is one that a device is in, and since when.
type condition struct {
	node.Condition
	since metav1.Time
}

// Run serves the kubelet and publishes the node's devices until ctx ends. It returns nil then.
// Claims that are prepared stay so.
func Run(ctx context.Context, o Options) error {
	d := &Driver{options: o, log: o.Logger, since: map[string]condition{}, changed: make(chan struct{})}
	d.claims = &claims{store: store{o.CDI}, known: map[types.UID]claimState{}, pool: o.NodeName, root: o.Root, agent: o.Agent, options: o.Bind, find: d.find}
	// Events are written apart: an API server that is away must not keep the driver from looking.
	recorder := record.NewBroadcaster(record.WithCorrelatorOptions(record.CorrelatorOptions{BurstSize: mostEvents, MaxEvents: mostEvents}))
	defer recorder.Shutdown()
	recorder.StartRecordingToSink(&typedcorev1.EventSinkImpl{Interface: o.Client.CoreV1().Events("")})
	d.events = recorder.NewRecorder(scheme.Scheme, corev1.EventSource{Component: DriverName, Host: o.NodeName})
	if err := os.MkdirAll(o.CDI, 0o755); err != nil {
		return err
	}
	d.look()
	s, err := d.serve(ctx)
	if err != nil {
		return err
	}
	defer func() { s.Stop() }()
	tick := time.NewTicker(o.Interval)
	defer tick.Stop()
	var swept, bound time.Time
	for changed := true; ; changed = d.look() || changed {
		if changed {
			// It fails if writing the slices cannot begin.
			if err := s.PublishResources(ctx, d.resources()); err != nil && ctx.Err() == nil {
				return err
			}
		}
		switch now := o.Node.Now(); {
		case now.Sub(swept) >= sweepEvery:
			swept, bound = now, now
			d.sweep(ctx, func(claimState) bool { return true })
		case now.Sub(bound) >= bindEvery:
			bound = now
			d.sweep(ctx, claimState.shares)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		// Without its sockets the kubelet has forgotten the driver.
		if changed = !s.listens(); changed {
			d.log.Warn("a socket of the driver was removed, it registers with the kubelet again")
			s.Stop()
			if s, err = d.serve(ctx); err != nil {
				return err
			}
		}
	}
}

// server serves the kubelet at sockets.
type server struct {
	*kubeletplugin.Helper
	sockets []string
}

func (d *Driver) serve(ctx context.Context) (s server, err error) {
	o, folder := d.options, filepath.Join(d.options.Plugins, DriverName)
	if err := os.MkdirAll(folder, 0o750); err != nil {
		return s, err
	}
	listen := func(ctx context.Context, path string) (net.Listener, error) {
		s.sockets = append(s.sockets, path)
		if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		var l net.ListenConfig
		return l.Listen(ctx, "unix", path)
	}
	s.Helper, err = kubeletplugin.Start(ctx, d, kubeletplugin.DriverName(DriverName), kubeletplugin.NodeName(o.NodeName),
		kubeletplugin.KubeClient(o.Client), kubeletplugin.PluginDataDirectoryPath(folder), kubeletplugin.PluginListener(listen),
		kubeletplugin.RegistrarDirectoryPath(o.Registry), kubeletplugin.RegistrarListener(listen), kubeletplugin.RollingUpdate(o.PodUID))
	if err != nil {
		return s, fmt.Errorf("serve the kubelet: %w", err)
	}
	return s, nil
}

// listens says whether the kubelet still finds all sockets.
func (s server) listens() bool {
	return !slices.ContainsFunc(s.sockets, func(path string) bool {
		_, err := os.Lstat(path)
		return errors.Is(err, fs.ErrNotExist)
	})
}

func (d *Driver) find(name string) (node.Device, bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, v := range d.devices {
		if v.Name == name {
			return v, true
		}
	}
	return node.Device{}, false
}

// look reads the devices, and says whether the slices have to change.
func (d *Driver) look() bool {
	now, err := d.options.Node.Devices()
	lost, e := d.lost(now)
	now = append(now, lost...)
	if err = errors.Join(err, e); err != nil {
		d.log.Warn("some devices could not be read", "error", err)
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	same := reflect.DeepEqual(now, d.devices)
	for _, v := range now {
		was := d.since[v.Name]
		if v.Health.Condition != was.Condition {
			d.since[v.Name] = condition{v.Health.Condition, metav1.NewTime(d.options.Node.Now().Truncate(time.Second))}
			d.tell(v)
		}
	}
	if !same {
		d.devices = now
		close(d.changed)
		d.changed = make(chan struct{})
	}
	return !same
}

// lost are the functions that claims of this node have and sysfs has not: without them in the slices their pods
// would not learn of it.
func (d *Driver) lost(now []node.Device) (list []node.Device, err error) {
	claims, err := d.claims.store.all()
	for _, c := range claims {
		for _, p := range c.Devices {
			if p.Function == "" || p.Pool != d.options.NodeName || slices.ContainsFunc(now, func(v node.Device) bool { return v.Name == p.Device }) {
				continue
			}
			list = append(list, node.Device{Name: p.Device, Kind: node.WholeNIC, Function: hostpci.Function{Address: p.Function, IOMMUGroup: -1, NUMANode: -1},
				Health: node.Health{Condition: node.Gone, Detail: "sysfs has no such function any more"}})
		}
	}
	return list, err
}

// tell has an event of the node written: what has happened to a device.
func (d *Driver) tell(v node.Device) {
	d.log.Info("health of a device has changed", "device", v.Name, "condition", v.Health.Condition, "detail", v.Health.Detail)
	// The name stands for the UID in events of nodes, as the kubelet writes them.
	of := &corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: d.options.NodeName, UID: types.UID(d.options.NodeName)}
	if v.Health.Condition == "" {
		d.events.Eventf(of, corev1.EventTypeNormal, "NICHealthy", "%s is well again", v.Name)
		return
	}
	d.events.Eventf(of, corev1.EventTypeWarning, "NICUnhealthy", "%s: %s: %s", v.Name, v.Health.Condition, v.Health.Detail)
}

func (d *Driver) PrepareResourceClaims(ctx context.Context, list []*resourceapi.ResourceClaim) (map[types.UID]kubeletplugin.PrepareResult, error) {
	result := map[types.UID]kubeletplugin.PrepareResult{}
	for _, c := range list {
		s, err := d.claims.prepare(ctx, c)
		if err != nil {
			d.log.Warn("a claim cannot be prepared", "claim", c.Namespace+"/"+c.Name, "error", err)
			result[c.UID] = kubeletplugin.PrepareResult{Err: fmt.Errorf("claim %s/%s: %w", c.Namespace, c.Name, err)}
			continue
		}
		var devices []kubeletplugin.Device
		for i, p := range s.Devices {
			v := kubeletplugin.Device{Requests: []string{p.Request}, PoolName: p.Pool, DeviceName: p.Device,
				CDIDeviceIDs: []string{CDIKind + "=" + cdiName(s.UID, i)}}
			if p.ShareID != "" {
				v.ShareID = ptr.To(p.ShareID)
			}
			devices = append(devices, v)
		}
		result[c.UID] = kubeletplugin.PrepareResult{Devices: devices}
	}
	return result, nil
}

func (d *Driver) UnprepareResourceClaims(ctx context.Context, list []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	result := map[types.UID]error{}
	for _, c := range list {
		result[c.UID] = d.claims.unprepare(ctx, c.UID)
	}
	return result, nil
}

// sweep takes back what claims have that were deleted and never unprepared, and tells the agent of
// further pods of the others. Where the API server does not answer, all stays.
func (d *Driver) sweep(ctx context.Context, which func(claimState) bool) {
	list, err := d.claims.store.all()
	if err != nil {
		d.log.Warn("some prepared claims could not be read", "error", err)
	}
	for _, c := range list {
		if !which(c) {
			continue
		}
		within, cancel := context.WithTimeout(ctx, apiTime)
		now, err := d.options.Client.ResourceV1().ResourceClaims(c.Namespace).Get(within, c.Name, metav1.GetOptions{})
		cancel()
		if err != nil && !apierrors.IsNotFound(err) {
			d.log.Warn("prepared claims cannot be looked for, all stay", "error", err)
			return // the others would wait as long
		}
		if err == nil && now.UID == c.UID {
			if err := d.claims.rebind(ctx, now); err != nil {
				d.log.Warn("shares of a claim cannot be bound", "claim", c.Namespace+"/"+c.Name, "error", err)
			}
			continue
		}
		err = d.claims.unprepare(ctx, c.UID)
		d.log.Warn("a claim was deleted and never unprepared", "claim", c.Namespace+"/"+c.Name, "error", err)
	}
}

// HandleError is described at kubeletplugin.DRAPlugin. Publishing is tried again for as long as the
// API server is away.
func (d *Driver) HandleError(_ context.Context, err error, message string) {
	d.log.Warn(message, "error", err)
}

func (d *Driver) WatchHealthStatus(ctx context.Context, reports chan<- kubeletplugin.DeviceHealthReport) error {
	tick := time.NewTicker(refresh)
	defer tick.Stop()
	for {
		report, changed := d.report()
		select {
		case <-ctx.Done():
			return nil
		case reports <- report:
		}
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-tick.C:
		}
	}
}

func (d *Driver) report() (r kubeletplugin.DeviceHealthReport, changed <-chan struct{}) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, v := range d.devices {
		h := kubeletplugin.DeviceHealth{PoolName: d.options.NodeName, DeviceName: v.Name, LastUpdated: time.Now(),
			Health: kubeletplugin.HealthStatusHealthy}
		if v.Health.Condition != "" {
			h.Health, h.Message = kubeletplugin.HealthStatusUnhealthy, string(v.Health.Condition)+": "+v.Health.Detail
		}
		r.Devices = append(r.Devices, h)
	}
	return r, d.changed
}
