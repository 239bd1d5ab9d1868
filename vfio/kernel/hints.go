package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

// errNotViable: a function of the group still has a driver of the kernel.
var errNotViable = errors.New("the IOMMU group is not viable")

// openNode opens a device node.
func (at opening) openNode(what, node string) (int, error) {
	path := at.root.Path(node)
	fd, err := at.sys.open(path, unix.O_RDWR)
	if err == nil {
		return fd, nil
	}
	step := "open " + what + " " + path + " of"
	switch {
	case errors.Is(err, unix.ENOENT), errors.Is(err, unix.ENODEV), errors.Is(err, unix.ENXIO):
		return -1, at.missing(step, err, node)
	case errors.Is(err, unix.EBUSY):
		return -1, at.fail(step, err, at.heldBy(node))
	case errors.Is(err, unix.EPERM) && at.fn.Unguarded:
		return -1, at.fail(step, err, "a device without IOMMU needs CAP_SYS_RAWIO: run as root")
	case errors.Is(err, unix.EACCES), errors.Is(err, unix.EPERM):
		return -1, at.fail(step, err, "run as root, or give this user the node: chown "+path)
	case errors.Is(err, unix.EMFILE):
		return -1, at.fail(step, err, "check ulimit -n")
	}
	return -1, at.fail(step, err, "")
}

// missing says which of the steps that lead to a node has not been done.
func (at opening) missing(step string, err error, node string) error {
	fn := at.fn
	var hint string
	switch {
	case fn.Bridge:
		hint = "it is a bridge, which stays with the kernel: functions behind it can be opened"
	case fn.Driver == "":
		hint = fmt.Sprintf("the function has no driver: modprobe vfio-pci, then trapeze bind %s", fn.Address)
	case fn.Class>>16 != hostpci.ClassNetwork && !hostpci.IsVFIO(fn.Driver):
		hint = fmt.Sprintf("it is no network controller (PCI class %06x): trapeze list shows those of this host", fn.Class)
	case !hostpci.IsVFIO(fn.Driver) && hostpci.InUse(at.root, fn.Address):
		hint = fmt.Sprintf("%s has the function, and this host uses it: trapeze doctor %s says for what; a NIC of Linux is used as eth:INTERFACE", fn.Driver, fn.Address)
	case !hostpci.IsVFIO(fn.Driver):
		hint = fmt.Sprintf("the function belongs to the driver %s: trapeze bind %s takes it away", fn.Driver, fn.Address)
	case fn.IOMMUGroup < 0:
		hint = noIOMMUHint
	case !at.root.Exists("dev/vfio"):
		hint = "there is no /dev/vfio: modprobe vfio-pci; in a container, pass the nodes in"
	case node == "dev/vfio/vfio":
		hint = "modprobe vfio_iommu_type1; a kernel without VFIO_CONTAINER has backend=cdev only"
	case node == "dev/iommu":
		hint = "modprobe iommufd (CONFIG_IOMMUFD, Linux 6.6 and later), or use backend=group"
	case strings.HasPrefix(node, "dev/vfio/devices"):
		hint = "this kernel gives functions no nodes of their own (CONFIG_VFIO_DEVICE_CDEV, Linux 6.6 and later), or they are not " +
			"passed into this container: use backend=group"
	default:
		hint = "vfio-pci has the function, but the group has no node: a kernel without VFIO_GROUP has backend=cdev only; " +
			"in a container, pass the node in"
	}
	return at.fail(step, err, hint)
}

const noIOMMUHint = "the function is in no IOMMU group: the IOMMU is off. Turn VT-d or AMD-Vi on in the firmware and boot with " +
	"intel_iommu=on (Intel); a virtual machine needs a virtual IOMMU"

// hintViable lists who is in the group, and what to do about it.
func (at opening) hintViable() string {
	members := append([]hostpci.Member{{Address: at.fn.Address, Driver: at.fn.Driver, Bridge: at.fn.Bridge}}, at.fn.GroupMembers...)
	slices.SortFunc(members, func(a, b hostpci.Member) int { return cmp.Compare(a.Address, b.Address) })
	var who, commands []string
	for _, m := range members {
		what := cmp.Or(m.Driver, "no driver")
		if m.Blocks() {
			what += ": in the way"
			commands = append(commands, "; trapeze bind "+m.Address)
		}
		who = append(who, fmt.Sprintf("%s (%s)", m.Address, what))
	}
	return fmt.Sprintf("group %d has %s", at.fn.IOMMUGroup, strings.Join(who, ", ")) + strings.Join(commands, "")
}

func (at opening) hintSetContainer(err error) string {
	switch {
	case errors.Is(err, unix.EPERM) && at.fn.Unguarded:
		return "a device without IOMMU needs CAP_SYS_RAWIO: run as root"
	case errors.Is(err, unix.EPERM):
		return at.hintViable()
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EINVAL):
		return at.heldBy(at.fn.GroupNode())
	}
	return ""
}

func hintNoContainer(err error) string {
	if errors.Is(err, unix.ENOTTY) {
		return "/dev/vfio/vfio is not a VFIO container"
	}
	return ""
}

func hintIOMMUType(iommu uintptr) string {
	if iommu == vfioNoIOMMU {
		return "echo 1 > /sys/module/vfio/parameters/enable_unsafe_noiommu_mode (CONFIG_VFIO_NOIOMMU), then bind the function again"
	}
	return "modprobe vfio_iommu_type1; if the function is in no IOMMU group, turn the IOMMU on"
}

func hintSetIOMMU(err error) string {
	switch {
	case errors.Is(err, unix.EPERM):
		return hintInterrupts("vfio_iommu_type1")
	case errors.Is(err, unix.ENODEV):
		return hintIOMMUType(vfioType1v2IOMMU)
	case errors.Is(err, unix.ENOMEM):
		return "the kernel has no memory for another IOMMU domain"
	}
	return ""
}

// hintInterrupts: without interrupt remapping a device can forge interrupts.
func hintInterrupts(module string) string {
	return "this machine cannot keep the device's interrupts apart: turn interrupt remapping on, or accept that with " +
		"echo 1 > /sys/module/" + module + "/parameters/allow_unsafe_interrupts"
}

func (at opening) hintDevice(err error) string {
	switch {
	case errors.Is(err, unix.EACCES):
		return hintToken
	case errors.Is(err, unix.ENODEV):
		return fmt.Sprintf("the group does not hold it: is it bound to vfio-pci? Its driver is %q", at.fn.Driver)
	case errors.Is(err, unix.EAGAIN):
		return "the kernel could not reset the function just now: try again"
	case errors.Is(err, unix.EINVAL) && at.token != "":
		return hintNoToken
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EINVAL):
		return "another holder has it open, or it is a physical function with virtual ones: " + at.heldBy(at.fn.GroupNode())
	case errors.Is(err, unix.EPERM):
		return hintInterrupts("vfio_iommu_type1")
	}
	return powerHint(at.root, at.fn.Address)
}

const (
	hintToken = "the function is virtual and its parent belongs to vfio-pci, or it is that parent: " +
		"vf_token=UUID must be the one by which the parent was opened"
	hintNoToken = "a vf_token is for a virtual function whose parent belongs to vfio-pci, and for that parent: leave it out"
)

func hintIOMMUFD(err error) string {
	switch {
	case errors.Is(err, unix.ENOTTY), errors.Is(err, unix.EOPNOTSUPP):
		return "/dev/iommu does not know this request: use backend=group"
	case errors.Is(err, unix.ENOMEM):
		return "the kernel has no memory for another address space"
	}
	return ""
}

// explainBind says why a node could not be bound to an iommufd. The kernel says
// "invalid argument" if the node is open elsewhere, which is "busy" to everyone
// else, and for a token that it does not know how to read.
func (at opening) explainBind(err error) (hint string, _ error) {
	switch {
	case errors.Is(err, unix.EINVAL) && at.token != "":
		return "this kernel takes no vf_token here (Linux 6.17 does): use backend=group; or else " + hintNoToken, err
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EBUSY):
		return at.heldBy(at.node, at.fn.GroupNode()), fmt.Errorf("%w (the kernel says: %w)", unix.EBUSY, err)
	case errors.Is(err, unix.EACCES):
		return hintToken, err
	case errors.Is(err, unix.EPERM):
		return hintInterrupts("iommufd"), err
	case errors.Is(err, unix.ENODEV):
		return noIOMMUHint, err
	case errors.Is(err, unix.EAGAIN):
		return "the kernel could not reset the function just now: try again", err
	}
	return powerHint(at.root, at.fn.Address), err
}

func hintAttach(err error) string {
	switch {
	case errors.Is(err, unix.EBUSY):
		return "a reset is under way, or another process holds a function of the same IOMMU group"
	case errors.Is(err, unix.EPERM):
		return hintInterrupts("iommufd")
	case errors.Is(err, unix.EADDRINUSE):
		return "memory is mapped where this function cannot have it: open it before mapping for others of its group"
	}
	return ""
}

// powerHint says what is known of a function that does not answer.
func powerHint(root hostpci.Root, address string) string {
	power := hostpci.PowerOf(root, address)
	if power.State == "" {
		return ""
	}
	hint := fmt.Sprintf("power state %s, runtime power management %s", power.State, power.Control)
	if power.State != "D0" {
		hint += ": load vfio-pci with disable_idle_d3=1, or echo on > /sys/bus/pci/devices/" + address + "/power/control"
	}
	return hint
}
