package kernel

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/vfio"
)

const opHotReset = "hot-reset"

// Affected is a function that a hot reset of another one resets too.
type Affected struct {
	// Address is domain, bus, device and function.
	Address string
	// Group is the IOMMU group, -1 if the device was opened through its own node:
	// the kernel then does not say.
	Group int
	// Owned says that this process holds the function, or its group.
	Owned bool
	// Driver that is bound to it, empty for none.
	Driver string
}

// HotResetFunctions lists the functions that HotReset resets, this one
// included. It fails with vfio.ErrNotSupported if the kernel cannot reset the
// bus or slot, as on a root bus.
func (d *Device) HotResetFunctions() ([]Affected, error) {
	op := "ask what a hot reset resets with"
	done, err := d.use(op)
	if err != nil {
		return nil, err
	}
	defer done()
	return d.affected(op)
}

func (d *Device) affected(op string) ([]Affected, error) {
	info, list, err := d.askHotReset()
	if errors.Is(err, unix.ENODEV) || errors.Is(err, unix.ENOTTY) {
		return nil, d.fail(op, fmt.Errorf("%w: %w", vfio.ErrNotSupported, err), "the kernel can reset neither the bus nor the slot of this function")
	}
	if err != nil {
		return nil, d.fail(op, err, "")
	}
	byID := info.flags&hotResetFlagDevID != 0
	groups := d.host.groups()
	var all []Affected
	for _, x := range list {
		a := Affected{Group: -1, Address: fmt.Sprintf("%04x:%02x:%02x.%x", x.segment, x.bus, x.devfn>>3, x.devfn&7)}
		// One that cannot be read is as good as none.
		a.Driver, _ = hostpci.DriverOf(d.host.root, a.Address)
		if byID {
			a.Owned = x.id != hotResetDevUnowned
		} else {
			a.Group = int(x.id)
			_, a.Owned = groups[a.Group]
		}
		all = append(all, a)
	}
	return all, nil
}

// askHotReset asks for the functions. The kernel says how many there are if
// they do not fit.
func (d *Device) askHotReset() (hotResetInfo, []hotResetDependent, error) {
	const most = 1 << 16
	var head hotResetInfo
	var one hotResetDependent
	for n := uint32(8); n <= most; {
		head = hotResetInfo{argsz: sizeOf(&head) + n*sizeOf(&one)}
		b := append(slices.Clone(bytesOf(&head)), make([]byte, n*sizeOf(&one))...)
		_, err := d.host.sys.ioctl(d.fd, vfioDeviceHotResetInfo, b)
		head, _ = load[hotResetInfo](b)
		if errors.Is(err, unix.ENOSPC) {
			n = max(2*n, head.count)
			continue
		}
		if err != nil {
			return head, nil, err
		}
		if head.count > n {
			return head, nil, fmt.Errorf("%w: %d functions in room for %d", errBadAnswer, head.count, n)
		}
		list := make([]hotResetDependent, head.count)
		for i := range list {
			list[i], _ = load[hotResetDependent](b[sizeOf(&head)+uint32(i)*sizeOf(&one):])
		}
		return head, list, nil
	}
	return head, nil, unix.ENOSPC
}

// groups lists the descriptors of the groups that this process has open, by
// number.
func (h *host) groups() map[int]int {
	h.turn <- struct{}{}
	defer func() { <-h.turn }()
	m := map[int]int{}
	for _, dev := range h.devices {
		if s, ok := dev.domain.space.(interface{ groupFD() int }); ok {
			m[dev.fn.IOMMUGroup] = s.groupFD()
		}
	}
	return m
}

// HotReset resets the bus or slot of the function, and with it every function
// that HotResetFunctions lists. All of them must be held by this process. It
// leaves this device as Reset does. Other devices of this process get an alert
// that wraps ErrDeviceFault, and their interrupts and bus mastering are off.
func (d *Device) HotReset(ctx context.Context) error {
	const op = opHotReset
	// One at a time: two that wait for each other's device never end.
	select {
	case d.host.resetting <- struct{}{}:
	case <-ctx.Done():
		return d.fail(op, ctx.Err(), "another hot reset is under way")
	}
	return d.reset(ctx, op, func() { <-d.host.resetting }, func(ctx context.Context) error {
		affected, err := d.affected(op)
		if err != nil {
			return err
		}
		if foreign := notOwned(affected); foreign != "" {
			return d.fail(op, unix.EPERM, "not held by this process: "+foreign)
		}
		for _, s := range d.siblings(affected) {
			if err := s.stopForReset(d); err != nil {
				return err
			}
		}
		return d.resetNow(ctx, op, func() error { return d.hotReset(affected) })
	})
}

// hotReset asks the kernel, with proof that the groups are ours. Of devices
// that were opened by their own nodes it knows.
func (d *Device) hotReset(affected []Affected) error {
	var fds []int
	if d.info.Backend != backendCdev {
		groups := d.host.groups()
		for _, a := range affected {
			if fd, ok := groups[a.Group]; ok && !slices.Contains(fds, fd) {
				fds = append(fds, fd)
			}
		}
	}
	r := hotReset{count: uint32(len(fds))}
	r.argsz = sizeOf(&r) + 4*r.count
	b := slices.Clone(bytesOf(&r))
	for _, fd := range fds {
		b = binary.NativeEndian.AppendUint32(b, uint32(int32(fd)))
	}
	_, err := d.host.sys.ioctl(d.fd, vfioDeviceHotReset, b)
	return err
}

// notOwned lists the functions that are not ours.
func notOwned(list []Affected) string {
	var names []string
	for _, a := range list {
		if !a.Owned {
			names = append(names, a.Address+" ("+cmp.Or(a.Driver, "no driver")+")")
		}
	}
	return strings.Join(names, ", ")
}

// siblings returns the other open devices among the functions.
func (d *Device) siblings(affected []Affected) []*Device {
	d.host.turn <- struct{}{}
	defer func() { <-d.host.turn }()
	var list []*Device
	for _, a := range affected {
		if other := d.host.devices[a.Address]; other != nil && other != d {
			list = append(list, other)
		}
	}
	return list
}

// stopForReset readies a device that is reset together with another one.
func (d *Device) stopForReset(with *Device) error {
	done, err := d.use(opHotReset)
	if err != nil {
		return nil // closed or taken away meanwhile
	}
	defer done()
	d.alert(fmt.Errorf("%w: it is being reset together with %s", ErrDeviceFault, with.fn.Address), "set it up again")
	return d.quiesce()
}
