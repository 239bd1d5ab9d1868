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
	// ErrInUse: the host uses the function. The error holds an *InUseError.
	ErrInUse = errors.New("the host uses it")
	// ErrNotViable: VFIO would not hand out its IOMMU group. The error holds a
	// *GroupError.
	ErrNotViable = errors.New("its IOMMU group is not viable")
	// ErrNoIOMMU: the function is in no IOMMU group.
	ErrNoIOMMU = errors.New("no IOMMU guards it")
	// ErrSRIOV: it has virtual functions.
	ErrSRIOV = errors.New("SR-IOV is enabled")
	// ErrNoDriver: the kernel has no such driver.
	ErrNoDriver = errors.New("the driver is not loaded")
	// ErrHeld: a process has it open. The error holds a *HeldError.
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

// InUseError says how the host uses a function.
type InUseError struct{ Uses []Use }

func (e *InUseError) Error() string {
	var s []string
	for _, u := range e.Uses {
		s = append(s, u.String())
	}
	return ErrInUse.Error() + ": " + strings.Join(s, "; ")
}

// Is makes it an ErrInUse.
func (e *InUseError) Is(target error) bool { return target == ErrInUse }

// GroupError lists the functions that keep VFIO from an IOMMU group.
type GroupError struct {
	Group int
	// Blockers are bound to drivers of the kernel's.
	Blockers []Member
}

func (e *GroupError) Error() string {
	var s []string
	for _, m := range e.Blockers {
		s = append(s, m.Address+" belongs to "+m.Driver)
	}
	return fmt.Sprintf("IOMMU group %d is not viable: %s", e.Group, strings.Join(s, ", "))
}

// Is makes it an ErrNotViable.
func (e *GroupError) Is(target error) bool { return target == ErrNotViable }

// HeldError lists the processes that have a function open.
type HeldError struct{ Holders []Holder }

func (e *HeldError) Error() string {
	var s []string
	for _, h := range e.Holders {
		s = append(s, h.String())
	}
	return strings.Join(s, ", ") + " has it open"
}

// Is makes it an ErrHeld.
func (e *HeldError) Is(target error) bool { return target == ErrHeld }
