package machine

import (
	"bytes"
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Image is an image whose programs are ready to run.
type Image struct {
	Name, Version string
	BuildID       [abi.MaxBuildID]byte
	Digest        [32]byte
	// Programs by hook; nil for hooks that the image does not use.
	Programs [abi.Hooks]*Program
	// WorstCase is the number of instructions that a run of each takes at most.
	WorstCase [abi.Hooks]uint32
	Maps      []*Map
}

// BootError is an image that the processor does not start.
type BootError struct {
	Fault datasheet.ProcessorFault
	// Hook and Instruction, an 8-byte slot, are where a program was refused;
	// otherwise zero.
	Hook        abi.Hook
	Instruction uint32
	Err         error
}

func (e *BootError) Error() string { return fmt.Sprintf("start image: %v: %v", e.Fault, e.Err) }

// Unwrap returns Err.
func (e *BootError) Unwrap() error { return e.Err }

// Boot makes ready the image at the start of a slot: it checks the image and its
// programs, decodes them, and lays their maps out in the slot. The host may write to
// the slot meanwhile and later: the image is copied first, and maps stand what
// happens to their memory. device is PCI vendor<<16 | device of the NIC, clock its
// clock in nanoseconds.
func Boot(slot []byte, device uint32, clock func() uint64) (*Image, *BootError) {
	decoded, err := flat.Decode(bytes.Clone(slot[:min(len(slot), flat.MaxSize)]))
	if err == nil {
		err = decoded.Suits(abi.Version, device, uint32(len(slot)))
	}
	if err != nil {
		return nil, &BootError{Fault: faultOf(err), Err: err}
	}
	img := &Image{Name: decoded.Name, Version: decoded.Version, BuildID: decoded.BuildID, Digest: decoded.Digest}
	// All is checked before anything is written into the slot.
	var stack [abi.Hooks]int
	for hook := range abi.Hooks {
		program, used := decoded.Program(hook)
		if !used {
			continue
		}
		report, err := checker.Check(program)
		if err != nil {
			return nil, refused(hook, err)
		}
		img.WorstCase[hook], stack[hook] = uint32(report.WorstCase), report.Stack
	}
	for i, spec := range decoded.Maps {
		size, err := flat.StorageSize(spec)
		if err != nil {
			return nil, &BootError{Fault: faultOf(err), Err: err}
		}
		at := uint64(decoded.Storage[i])
		m, err := NewMap(spec, slot[at:at+size])
		if err != nil {
			return nil, &BootError{Fault: datasheet.ProcessorFaultImage, Err: err}
		}
		img.Maps = append(img.Maps, m)
	}
	for hook := range abi.Hooks {
		if program, used := decoded.Program(hook); used {
			if img.Programs[hook], err = Compile(program, img.Maps, clock); err != nil {
				return nil, refused(hook, err)
			}
			img.Programs[hook].limitStack(stack[hook])
		}
	}
	return img, nil
}

// faultOf says which fault a refusal of the flat image is.
func faultOf(err error) datasheet.ProcessorFault {
	for _, f := range []struct {
		reason error
		fault  datasheet.ProcessorFault
	}{
		{flat.ErrDigest, datasheet.ProcessorFaultDigest},
		{flat.ErrABI, datasheet.ProcessorFaultABI},
		{flat.ErrDevice, datasheet.ProcessorFaultDevice},
		{flat.ErrSRAM, datasheet.ProcessorFaultSRAM},
	} {
		if errors.Is(err, f.reason) {
			return f.fault
		}
	}
	return datasheet.ProcessorFaultImage
}

// refused is a program that check or processor refuse.
func refused(hook abi.Hook, err error) *BootError {
	e := &BootError{Fault: datasheet.ProcessorFaultRefused, Hook: hook, Err: err}
	if check, ok := errors.AsType[*checker.Refusal](err); ok {
		e.Instruction = uint32(max(check.Instruction, 0))
	}
	return e
}
