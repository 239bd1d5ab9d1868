// Package dra is a driver of Kubernetes' Dynamic Resource Allocation for NICs: it publishes the
// NICs of a node as ResourceSlices and prepares claims for them.
package dra

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	resourceapi "k8s.io/api/resource/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
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
	// CDI is the folder of the runtime for files of the Container Device Interface.
	CDI string
	// Plugins and Registry are the folders of the kubelet.
	Plugins, Registry string
	// Interval is between two looks at the devices; zero is 5 seconds.
	Interval time.Duration
	// PodUID lets two pods of the driver run while one replaces the other; empty for none.
	PodUID types.UID
	Logger *slog.Logger
}

const (
	interval = 5 * time.Second
	// sweepEvery is between two searches for prepared claims that have been deleted.
	sweepEvery = 10 * time.Minute
	// refresh is between two reports of health. After 30 s without one the kubelet takes the health
	// for unknown.
	refresh = 10 * time.Second
	// apiTime bounds one request to the API server.
	apiTime = 10 * time.Second
)

// Driver is the driver of one node.
type Driver struct {
	options Options
	claims  *claims
	log     *slog.Logger

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
	d, err := newDriver(o)
	if err != nil {
		return err
	}
	d.look(ctx)
	folder := filepath.Join(o.Plugins, DriverName)
	if err := errors.Join(os.MkdirAll(folder, 0o750), os.MkdirAll(o.CDI, 0o755)); err != nil {
		return err
	}
	h, err := kubeletplugin.Start(ctx, d, kubeletplugin.DriverName(DriverName), kubeletplugin.NodeName(o.NodeName),
		kubeletplugin.KubeClient(o.Client), kubeletplugin.PluginDataDirectoryPath(folder),
		kubeletplugin.RegistrarDirectoryPath(o.Registry), kubeletplugin.RollingUpdate(o.PodUID))
	if err != nil {
		return fmt.Errorf("serve the kubelet: %w", err)
	}
	defer h.Stop()
	if err := d.publish(ctx, h); err != nil {
		return err
	}
	tick, sweep := time.NewTicker(cmp.Or(o.Interval, interval)), time.NewTicker(sweepEvery)
	defer tick.Stop()
	defer sweep.Stop()
	d.sweep(ctx)
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-sweep.C:
			d.sweep(ctx)
		case <-tick.C:
			if d.look(ctx) {
				if err := d.publish(ctx, h); err != nil {
					return err
				}
			}
		}
	}
}

// publish has the slices of the last look written. It fails if that cannot begin.
func (d *Driver) publish(ctx context.Context, h *kubeletplugin.Helper) error {
	err := h.PublishResources(ctx, d.resources())
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func newDriver(o Options) (*Driver, error) {
	if o.NodeName == "" || o.Client == nil || o.Node == nil {
		return nil, errors.New("the driver needs the node's name, a client and the node")
	}
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	d := &Driver{options: o, log: o.Logger, since: map[string]condition{}, changed: make(chan struct{})}
	d.claims = &claims{store: store{o.CDI}, pool: o.NodeName, root: o.Root, options: o.Bind, find: d.find}
	return d, nil
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
func (d *Driver) look(ctx context.Context) bool {
	now, err := d.options.Node.Devices()
	if err != nil {
		d.log.Warn("some devices could not be read", "error", err)
	}
	d.mu.Lock()
	same := reflect.DeepEqual(now, d.devices)
	var events []node.Device
	for _, v := range now {
		was := d.since[v.Name]
		if v.Health.Condition != was.Condition {
			d.since[v.Name] = condition{v.Health.Condition, metav1.NewTime(time.Now().Truncate(time.Second))}
			if was.Condition != "" || v.Health.Condition != "" {
				events = append(events, v)
			}
		}
	}
	d.devices = now
	if !same {
		close(d.changed)
		d.changed = make(chan struct{})
	}
	d.mu.Unlock()
	for _, v := range events {
		d.tell(ctx, v)
	}
	return !same
}

// tell writes an event of the node: what has happened to a device.
func (d *Driver) tell(ctx context.Context, v node.Device) {
	kind, reason, message := corev1.EventTypeNormal, "NICHealthy", v.Name+" is well again"
	if v.Health.Condition != "" {
		kind, reason = corev1.EventTypeWarning, "NICUnhealthy"
		message = fmt.Sprintf("%s: %s: %s", v.Name, v.Health.Condition, v.Health.Detail)
	}
	d.log.Info("health of a device has changed", "device", v.Name, "condition", v.Health.Condition, "detail", v.Health.Detail)
	within, cancel := context.WithTimeout(ctx, apiTime)
	defer cancel()
	now := metav1.Now()
	_, err := d.options.Client.CoreV1().Events(metav1.NamespaceDefault).Create(within, &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("trapeze-nic.%x", now.UnixNano()), Namespace: metav1.NamespaceDefault},
		// The name stands for the UID in events of nodes, as the kubelet writes them.
		InvolvedObject: corev1.ObjectReference{APIVersion: "v1", Kind: "Node", Name: d.options.NodeName, UID: types.UID(d.options.NodeName)},
		Type:           kind, Reason: reason, Message: message, Count: 1, FirstTimestamp: now, LastTimestamp: now,
		Source: corev1.EventSource{Component: DriverName, Host: d.options.NodeName},
	}, metav1.CreateOptions{})
	if err != nil {
		d.log.Warn("the event could not be written", "error", err)
	}
}

// PrepareResourceClaims is described at kubeletplugin.DRAPlugin.
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

// UnprepareResourceClaims is described at kubeletplugin.DRAPlugin.
func (d *Driver) UnprepareResourceClaims(ctx context.Context, list []kubeletplugin.NamespacedObject) (map[types.UID]error, error) {
	result := map[types.UID]error{}
	for _, c := range list {
		result[c.UID] = d.claims.unprepare(ctx, c.UID)
	}
	return result, nil
}

// sweep takes back what claims have that were deleted and never unprepared. Where the API server
// does not answer, all stays.
func (d *Driver) sweep(ctx context.Context) {
	list, err := d.claims.store.all()
	if err != nil {
		d.log.Warn("some prepared claims could not be read", "error", err)
	}
	for _, c := range list {
		within, cancel := context.WithTimeout(ctx, apiTime)
		now, err := d.options.Client.ResourceV1().ResourceClaims(c.Namespace).Get(within, c.Name, metav1.GetOptions{})
		cancel()
		if err != nil && !apierrors.IsNotFound(err) || err == nil && now.UID == c.UID {
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

// WatchHealthStatus is described at kubeletplugin.DRAPlugin.
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
