package dra

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/gofrs/flock"
	resourceapi "k8s.io/api/resource/v1"
	"k8s.io/apimachinery/pkg/types"
	"tags.cncf.io/container-device-interface/specs-go"

	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/kubernetes/internal/node"
)

// Errors of claims.
var (
	// ErrNoDevice: the node has no such device now.
	ErrNoDevice = errors.New("the node has no such device")
	// ErrTaken: another claim has the device.
	ErrTaken = errors.New("another claim has the device")
	// ErrUnsafe: giving the device away would take it, or another one, from the node.
	ErrUnsafe = errors.New("the device is not safe to give away")
)

// Variable is the variable of the environment with the address of a claim's only device. With
// _REQUEST behind it, in capitals, it has that of the device of a request.
const Variable = "TRAPEZE_DEVICE"

// agentSocket is where a program looks for its agent.
const agentSocket = "/run/trapeze/agent.sock"

// lockTime bounds the wait for another driver that uses the same folder.
const lockTime = 30 * time.Second

// claims prepares claims for the containers of this node, and takes back what they have.
type claims struct {
	mu    sync.Mutex
	store store
	// known are the claims that this driver has prepared, for when their files are deleted.
	known   map[types.UID]claimState
	pool    string
	root    hostpci.Root
	agent   Agent
	options hostpci.Options // for Bind and Unbind
	// find looks for a device.
	find func(name string) (node.Device, bool)
}

// lock keeps other goroutines out, and other drivers with the same folder: while the pod of the driver
// is replaced there are two.
func (c *claims) lock(ctx context.Context) (unlock func(), err error) {
	ctx, cancel := context.WithTimeout(ctx, lockTime)
	defer cancel()
	c.mu.Lock()
	defer func() {
		if err != nil {
			c.mu.Unlock()
		}
	}()
	if err := os.MkdirAll(c.store.folder, 0o755); err != nil {
		return nil, err
	}
	l := flock.New(c.store.folder, flock.SetFlag(os.O_RDONLY))
	if _, err := l.TryLockContext(ctx, 2*time.Millisecond); err != nil {
		return nil, fmt.Errorf("another driver has locked %s: %w", l.Path(), err)
	}
	return func() { l.Close(); c.mu.Unlock() }, nil
}

// load reads the file of a claim, or remembers what was in it. It says whether there is a file.
func (c *claims) load(uid types.UID) (s claimState, found, file bool, err error) {
	s, file, err = c.store.load(uid)
	if err != nil || file {
		return s, file, file, err
	}
	s, found = c.known[uid]
	return s, found, false, nil
}

// save writes the file of a claim.
func (c *claims) save(s claimState) error {
	if err := c.store.save(s); err != nil {
		return err
	}
	c.known[s.UID] = s
	return nil
}

// prepare prepares a claim. Of one that is prepared it takes again the parts that were taken away meanwhile.
func (c *claims) prepare(ctx context.Context, claim *resourceapi.ResourceClaim) (claimState, error) {
	if !goodUID.MatchString(string(claim.UID)) || claim.Status.Allocation == nil {
		return claimState{}, fmt.Errorf("claim %s/%s has no UID or no allocation", claim.Namespace, claim.Name)
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return claimState{}, err
	}
	defer unlock()
	was, found, file, err := c.load(claim.UID)
	if err == nil && found {
		var changed bool
		changed, err = c.retake(ctx, &was)
		if changed || err == nil && !file {
			err = errors.Join(err, c.save(was))
		}
		if err == nil {
			err = c.bind(claim, was)
		}
	}
	if err != nil || found {
		return was, err
	}
	s := claimState{Namespace: claim.Namespace, Name: claim.Name, UID: claim.UID}
	var ours []resourceapi.DeviceRequestAllocationResult
	for _, r := range claim.Status.Allocation.Devices.Results {
		if r.Driver == DriverName {
			ours = append(ours, r)
		}
	}
	for _, r := range ours {
		d, err := c.prepareDevice(ctx, claim, r)
		if err == nil {
			variable := Variable + "_" + environmentName(r.Request)
			d.edits.Env = append(d.edits.Env, variable+"="+d.address)
			if len(ours) == 1 {
				d.edits.Env = append(d.edits.Env, Variable+"="+d.address)
			}
			s.Devices = append(s.Devices, d.prepared)
			continue
		}
		err = fmt.Errorf("device %s of request %s: %w", r.Device, r.Request, err)
		return claimState{}, errors.Join(err, c.giveBack(ctx, s))
	}
	err = c.bind(claim, s)
	if err == nil {
		err = c.save(s)
	}
	if err != nil {
		return claimState{}, errors.Join(err, c.giveBack(ctx, s))
	}
	return s, nil
}

// retake gives functions of a claim to VFIO that the kernel's driver has again, as after a restart of the
// node. It enters other nodes that functions have now. It says whether s has changed.
func (c *claims) retake(ctx context.Context, s *claimState) (changed bool, err error) {
	for i := range s.Devices {
		p := &s.Devices[i]
		if p.Function == "" {
			continue
		}
		f, err := hostpci.Lookup(c.root, p.Function)
		if err == nil && hostpci.IsVFIO(f.Driver) {
			paths, err := nodes(c.root, f)
			if err == nil && slices.EqualFunc(paths, p.edits.DeviceNodes, func(path string, n *specs.DeviceNode) bool { return path == n.Path }) {
				continue
			}
		}
		var again preparedDevice
		if err == nil {
			d, ok := c.find(p.Device)
			if err = ErrNoDevice; ok {
				err = c.takeFunction(ctx, s.UID, d, &again)
			}
		}
		if err != nil {
			return changed, fmt.Errorf("device %s of request %s, which the claim had: %w", p.Device, p.Request, err)
		}
		changed, p.Bound, p.edits.DeviceNodes = true, p.Bound || again.Bound, again.edits.DeviceNodes
	}
	return changed, nil
}

// environmentName is a request as part of the name of a variable.
func environmentName(request string) string {
	return strings.ToUpper(strings.NewReplacer("-", "_", "/", "_", ".", "_").Replace(request))
}

type preparedDevice struct {
	prepared
	address string
}

func (c *claims) prepareDevice(ctx context.Context, claim *resourceapi.ResourceClaim, r resourceapi.DeviceRequestAllocationResult) (preparedDevice, error) {
	p := preparedDevice{prepared: prepared{Request: r.Request, Pool: r.Pool, Device: r.Device}}
	if r.ShareID != nil {
		p.ShareID = *r.ShareID
	}
	d, ok := c.find(r.Device)
	if !ok || r.Pool != c.pool {
		return p, ErrNoDevice
	}
	parameters, err := parameters(claim, r.Request)
	if err != nil {
		return p, err
	}
	if d.Kind != node.Emulated && parameters.Kind != "" {
		return p, fmt.Errorf("%w: only emulated NICs take some", ErrParameters)
	}
	switch d.Kind {
	case node.Emulated:
		p.address = parameters.Address()
	case node.AgentShare:
		granted := map[resourceapi.QualifiedName]int64{}
		for name, q := range r.ConsumedCapacity {
			v, whole := q.AsInt64()
			if !whole || v <= 0 {
				return p, fmt.Errorf("%w: %s %s", ErrParameters, name, q.String())
			}
			granted[name] = v
		}
		p.address = share(d.Address, granted)
		p.Share = &agentlink.Claim{NIC: d.Agent.Name, VIs: uint32(min(granted[capacityVIs], math.MaxUint32)), Memory: uint64(granted[capacityMemory]),
			Rate: granted[capacityBandwidth]}
		// The folder, as the agent makes its socket anew when it is replaced.
		p.edits.Mounts = []*specs.Mount{{HostPath: filepath.Dir(d.Agent.Socket), ContainerPath: filepath.Dir(agentSocket),
			Options: []string{"ro", "nosuid", "nodev", "noexec", "bind"}}}
	case node.WholeNIC:
		return p, c.takeFunction(ctx, claim.UID, d, &p)
	}
	return p, nil
}

// takeFunction gives a function to VFIO, if it is safe to.
func (c *claims) takeFunction(ctx context.Context, uid types.UID, d node.Device, p *preparedDevice) error {
	address := d.Function.Address
	owner, taken, err := c.store.owner(address, uid)
	switch {
	case err != nil:
		return fmt.Errorf("which claim has it cannot be read: %w", err)
	case taken:
		return fmt.Errorf("%w: %s/%s", ErrTaken, owner.Namespace, owner.Name)
	case !d.Safe():
		return fmt.Errorf("%w: %s", ErrUnsafe, whyUnsafe(d))
	}
	result, err := hostpci.Bind(ctx, c.root, address, c.options)
	if err != nil {
		return err
	}
	p.Function, p.Bound, p.address = address, len(result.Changes) > 0, d.Address
	f, err := hostpci.Lookup(c.root, address)
	var paths []string
	if err == nil {
		paths, err = nodes(c.root, f)
	}
	if err == nil {
		for _, path := range paths {
			p.edits.DeviceNodes = append(p.edits.DeviceNodes, &specs.DeviceNode{Path: path, Permissions: "rw"})
		}
		return nil
	}
	if p.Bound {
		_, undo := hostpci.Unbind(ctx, c.root, address, c.options)
		err = errors.Join(err, undo)
	}
	return err
}

func whyUnsafe(d node.Device) string {
	switch {
	case len(d.Uses) > 0:
		return d.Uses[0].String()
	case !d.Function.Alone():
		return "it is not alone in an IOMMU group"
	}
	return "it has virtual functions"
}

// nodes are the nodes by which a container reaches a function that VFIO has: its own with
// iommufd's, and that of its group with VFIO's.
func nodes(root hostpci.Root, f hostpci.Function) (paths []string, err error) {
	own, err := f.Nodes(root)
	if err != nil {
		return nil, err
	}
	for _, name := range append(own, "dev/vfio/vfio", "dev/iommu") {
		if root.Exists(name) {
			paths = append(paths, "/"+name)
		}
	}
	if len(paths) == 0 {
		return nil, fmt.Errorf("VFIO has no node for %s", f.Address)
	}
	return paths, nil
}

// unprepare takes back what a claim has. A claim that is not prepared has nothing.
func (c *claims) unprepare(ctx context.Context, uid types.UID) error {
	if !goodUID.MatchString(string(uid)) {
		return fmt.Errorf("claim %.100q: that is no UID", uid)
	}
	unlock, err := c.lock(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	s, found, _, err := c.load(uid)
	if err != nil || !found {
		return err
	}
	if err := c.giveBack(ctx, s); err != nil {
		return err
	}
	delete(c.known, uid)
	return c.store.remove(uid)
}

// giveBack gives the functions of a claim back to the kernel, if the driver has taken them, and
// withdraws its shares.
func (c *claims) giveBack(ctx context.Context, s claimState) (err error) {
	for i, d := range s.Devices {
		if d.Share != nil {
			err = errors.Join(err, agentlink.WithdrawClaim(c.agent.Claims, cdiName(s.UID, i)))
		}
		if !d.Bound {
			continue
		}
		_, e := hostpci.Unbind(ctx, c.root, d.Function, c.options)
		switch {
		case errors.Is(e, hostpci.ErrNoFunction), errors.Is(e, hostpci.ErrNotVFIO): // gone, or given back already
		default:
			err = errors.Join(err, e)
		}
	}
	return err
}
