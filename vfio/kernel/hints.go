package kernel

import (
	"cmp"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

// errNotViable: a function of the group still has a driver of the kernel.
var errNotViable = errors.New("the IOMMU group is not viable")

// hostHint points to the command that examines the host: what a function lacks is found there, and only there.
func (h *host) hostHint(address string) string {
	hint := "sudo trapeze doctor " + address + " says what is missing, and the line that repairs it"
	if power := hostpci.PowerOf(h.root, address); power.State != "" && power.State != "D0" {
		hint = "power state " + power.State + "; " + hint
	}
	return hint
}

// failStep makes the error of a step that depends on the host.
func (at opening) failStep(step string, err error) error {
	return at.fail(step, err, at.hostHint(at.fn.Address))
}

// openNode opens a device node.
func (at opening) openNode(what, node string) (int, error) {
	path := at.root.Path(node)
	fd, err := at.sys.open(path, unix.O_RDWR)
	if err == nil {
		return fd, nil
	}
	step := "open " + what + " " + path + " of"
	if errors.Is(err, unix.EBUSY) {
		return -1, at.fail(step, err, at.heldBy(node))
	}
	return -1, at.failStep(step, err)
}

// heldBy says which other processes have one of the nodes open, as far as this one
// may look.
func (at opening) heldBy(nodes ...string) string {
	list, _ := hostpci.Holders(at.root, nodes) // root sees those that are hidden here
	list = slices.DeleteFunc(list, func(h hostpci.Holder) bool { return h.PID == os.Getpid() })
	if len(list) == 0 {
		return "another process, or another part of this one, holds it: fuser -v " + at.root.Path(nodes[0]) + " as root says which"
	}
	var names []string
	for _, h := range list {
		names = append(names, h.String())
	}
	return strings.Join(names, ", ") + " holds it"
}

// notViable makes the error of a group that VFIO does not hand out.
func (at opening) notViable(step string, err error) error {
	var drivers []string
	for _, m := range at.fn.Blockers() {
		drivers = append(drivers, m.String())
	}
	return at.fail(step, err, cmp.Or(strings.Join(drivers, ", "), "no other driver is seen")+"; "+at.hostHint(at.fn.Address))
}

const (
	hintToken = "the function is virtual and its parent belongs to vfio-pci, or it is that parent: " +
		"vf_token=UUID must be the one by which the parent was opened"
	hintNoToken = "a vf_token is for a virtual function whose parent belongs to vfio-pci, and for that parent: leave it out"
)

// failDevice makes the error of a device that its group does not give.
func (at opening) failDevice(step string, err error) error {
	switch {
	case errors.Is(err, unix.EACCES):
		return at.fail(step, err, hintToken)
	case errors.Is(err, unix.EINVAL) && at.Token != "":
		return at.fail(step, err, hintNoToken)
	case errors.Is(err, unix.EBUSY), errors.Is(err, unix.EINVAL):
		return at.fail(step, err, "another holder has it open, or it is a physical function with virtual ones: "+at.heldBy(at.fn.GroupNode()))
	}
	return at.failStep(step, err)
}

// failBind makes the error of a node that could not be bound to an iommufd. The kernel says
// "invalid argument" if the node is open elsewhere, which is "busy" to everyone
// else, and for a token that it does not know how to read.
func (at opening) failBind(step string, err error) error {
	switch {
	case errors.Is(err, unix.EINVAL) && at.Token != "":
		return at.fail(step, err, "this kernel takes no vf_token here (Linux 6.17 does): use backend=group; or else "+hintNoToken)
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EBUSY):
		return at.fail(step, fmt.Errorf("%w (the kernel says: %w)", unix.EBUSY, err), at.heldBy(at.node, at.fn.GroupNode()))
	case errors.Is(err, unix.EACCES):
		return at.fail(step, err, hintToken)
	}
	return at.failStep(step, err)
}
