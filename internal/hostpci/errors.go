package hostpci

import (
	"errors"
	"fmt"
	"strings"
)

// Sentinel errors, to be found with errors.Is inside a *failure.Error.
var (
	// ErrNoFunction: there is no such PCI function.
	ErrNoFunction = errors.New("no such PCI function")
	// ErrBridge: bridges stay with the kernel.
	ErrBridge = errors.New("it is a bridge")
	// ErrInUse: the host uses the function. The error lists the uses.
	ErrInUse = errors.New("the host uses it")
	// ErrNotViable: VFIO would not hand out its IOMMU group. The error lists the members that belong to
	// drivers of the kernel.
	ErrNotViable = errors.New("its IOMMU group is not viable")
	// ErrNoIOMMU: the function is in no IOMMU group.
	ErrNoIOMMU = errors.New("no IOMMU guards it")
	// ErrSRIOV: it has virtual functions.
	ErrSRIOV = errors.New("SR-IOV is enabled")
	// ErrNoDriver: the kernel has no such driver.
	ErrNoDriver = errors.New("the driver is not loaded")
	// ErrHeld: a process has it open. The error lists the processes.
	ErrHeld = errors.New("a process holds it")
	// ErrNotVFIO: another driver than VFIO's has the function.
	ErrNotVFIO = errors.New("it is not bound to VFIO")
	// ErrTakenBack: VFIO takes every function with these IDs, this one too.
	ErrTakenBack = errors.New("VFIO's driver takes it at once again")
	// ErrRefused: the kernel took a write and did not do what it means.
	ErrRefused = errors.New("the kernel has not done it")
	// ErrStuck: a write to sysfs has not returned in time. It goes on in the
	// kernel and may still take effect.
	ErrStuck = errors.New("the kernel does not answer")
	// ErrLocked: another process binds or unbinds.
	ErrLocked = errors.New("another process is binding functions")
	// ErrRolledBack: what had been done was undone, all is as before.
	ErrRolledBack = errors.New("undone")
)

// detailed is sentinel with a list of what it is about.
func detailed[T fmt.Stringer](sentinel error, list []T) error {
	var s []string
	for _, e := range list {
		s = append(s, e.String())
	}
	return fmt.Errorf("%w: %s", sentinel, strings.Join(s, "; "))
}
