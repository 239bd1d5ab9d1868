package kernel

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/vfio"
)

func init() {
	h := newHost(linux{}, "/")
	vfio.Register("pci", func(ctx context.Context, a vfio.Address) (vfio.Device, error) {
		d, err := h.open(ctx, a)
		if err != nil {
			return nil, err
		}
		return d, nil
	})
}

// requestGrace is the time that the holder of a device has to close it after the
// kernel has asked for it.
const requestGrace = 2 * time.Second

// host is this process's side of a kernel: what it has open there.
type host struct {
	sys   system
	root  hostpci.Root
	grace time.Duration

	// turn is held while anything is opened or released. A group, or an iommufd
	// for a group, can be open once only, so functions of a group share it.
	turn    chan struct{}
	domains map[string]*domain
	devices map[string]*Device // by function
	iommufd iommufd
}

func newHost(sys system, root hostpci.Root) *host {
	return &host{sys: sys, root: root, grace: requestGrace, turn: make(chan struct{}, 1),
		domains: map[string]*domain{}, devices: map[string]*Device{}}
}

// opening is one attempt to open a device.
type opening struct {
	*host
	options
	fn hostpci.Function
	// node is the function's own, such as "dev/vfio/devices/vfio0"; empty for none.
	node string
}

// fail makes the error of a step.
func (at opening) fail(step string, err error, hint string) error {
	return &vfio.Error{Op: step, Device: at.text, Err: err, Hint: hint}
}

func (h *host) open(ctx context.Context, a vfio.Address) (*Device, error) {
	o, err := parseOptions(a)
	if err != nil {
		return nil, err
	}
	at := opening{host: h, options: o}
	select {
	case h.turn <- struct{}{}:
		defer func() { <-h.turn }()
	case <-ctx.Done():
		return nil, at.fail("open", ctx.Err(), "")
	}
	if err := ctx.Err(); err != nil {
		return nil, at.fail("open", err, "")
	}
	if at.fn, err = hostpci.Find(h.root, o.function); err == nil {
		at.node, err = at.fn.DeviceNode(h.root)
	}
	switch {
	case errors.Is(err, hostpci.ErrNoFunction):
		return nil, at.fail("find", unix.ENODEV, "there is no such PCI function: see lspci -D or trapeze list")
	case err != nil:
		return nil, at.fail("find", err, "")
	case h.devices[o.function] != nil:
		return nil, at.fail("open", unix.EBUSY, "this process has it open already")
	}
	return at.choose()
}

// choose opens the device by the back end that was asked for.
func (at opening) choose() (*Device, error) {
	switch {
	case at.Backend == backendNoIOMMU, at.Backend == backendAuto && at.fn.Unguarded && os.Getenv(noIOMMUVariable) == "allow":
		return at.with(backendNoIOMMU)
	case at.fn.Unguarded:
		return nil, at.fail("open", vfio.ErrNotSupported, fmt.Sprintf("no IOMMU guards this function: turn the IOMMU on, or accept "+
			"that the device can read and write all memory with backend=noiommu or %s=allow", noIOMMUVariable))
	case at.Backend != backendAuto:
		return at.with(at.Backend)
	case at.node == "" || !at.root.Exists("dev/iommu"):
		return at.with(backendGroup)
	}
	d, err := at.with(backendCdev)
	if err == nil || !at.mayFallBack(err) {
		return d, err
	}
	d, gerr := at.with(backendGroup)
	if gerr != nil {
		return nil, errors.Join(err, gerr)
	}
	slog.Info("device was opened through its group", "device", at.text, "because", err)
	return d, nil
}

// mayFallBack reports whether the group may do what failed through the
// function's own node: permissions of nodes differ, and older kernels take no
// token there.
func (at opening) mayFallBack(err error) bool {
	if !at.root.Exists(at.fn.GroupNode()) {
		return false
	}
	for _, e := range []error{unix.ENOENT, unix.EACCES, unix.ENODEV, unix.ENXIO, unix.ENOTTY, unix.EOPNOTSUPP} {
		if errors.Is(err, e) {
			return true
		}
	}
	return at.Token != "" && errors.Is(err, unix.EINVAL)
}

// with opens the device by one back end.
func (at opening) with(backend string) (*Device, error) {
	d, err := at.join(backend)
	if err != nil {
		return nil, err
	}
	fd, err := d.space.openDevice(at)
	if err != nil {
		return nil, errors.Join(err, at.leave(d))
	}
	dev, err := at.newDevice(backend, d, fd)
	if err != nil {
		return nil, errors.Join(err, at.sys.close(fd), at.leave(d))
	}
	at.devices[at.function] = dev
	return dev, nil
}

// join returns the address space of the function's group, and opens it if no
// other function has.
func (at opening) join(backend string) (*domain, error) {
	key := fmt.Sprint(backend, " ", at.fn.IOMMUGroup)
	if d := at.domains[key]; d != nil {
		d.users++
		return d, nil
	}
	var s space
	var err error
	switch backend {
	case backendCdev:
		s, err = at.openIOMMUFD()
	case backendGroup:
		s, err = at.openContainer(vfioType1v2IOMMU)
	default:
		s, err = at.openUnguarded()
	}
	if err != nil {
		return nil, err
	}
	d := &domain{space: s, key: key, users: 1}
	at.domains[key] = d
	return d, nil
}

// leave gives up what join returned. The caller has its turn.
func (h *host) leave(d *domain) error {
	d.users--
	if d.users > 0 {
		return nil
	}
	delete(h.domains, d.key)
	return d.space.close()
}

// share returns which part of how many of its group's bus addresses belongs to
// a function.
func (at opening) share() (part, of int) {
	of = 1
	for _, m := range at.fn.GroupMembers {
		if m.Bridge { // VFIO hands none out
			continue
		}
		of++
		if m.Address < at.fn.Address {
			part++
		}
	}
	return part, of
}
