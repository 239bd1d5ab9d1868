package driver

import (
	"context"
	"fmt"
	"sync"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// registers is BAR0 with its blocks found.
type registers struct {
	bar    *region
	blocks map[uint32]Block
	// latch keeps the two halves of a 64-bit read together: reading the low half
	// latches the high half for the next read of it.
	latch sync.Mutex
}

func (r *registers) has(block uint32) bool {
	_, ok := r.blocks[block]
	return ok
}

// read reads a register. It ends with the context, where it can be made to wait.
func (r *registers) read(ctx context.Context, block uint32, reg uint64) (uint32, error) {
	return r.bar.read32(ctx, r.blocks[block].Offset+reg)
}

func (r *registers) write(block uint32, reg uint64, v uint32) error {
	return r.writeContext(context.Background(), block, reg, v)
}

// writeContext is write that ends with a context, where it can be made to wait.
func (r *registers) writeContext(ctx context.Context, block uint32, reg uint64, v uint32) error {
	return r.bar.write32(ctx, r.blocks[block].Offset+reg, v)
}

// read64 reads the register pair that starts at reg.
func (r *registers) read64(block uint32, reg uint64) (uint64, error) {
	r.latch.Lock()
	defer r.latch.Unlock()
	var low, high uint32
	err := r.readAll(context.Background(), block, reading{reg, &low}, reading{reg + 4, &high})
	return uint64(high)<<32 | uint64(low), err
}

// status reads the status register, by which the driver knows that the device is
// there: no device has all its bits set (SPEC.md 2.1). Others may read as all ones.
func (r *registers) status(ctx context.Context) (uint32, error) {
	s, err := r.read(ctx, datasheet.BlockHealth, datasheet.RegStatus)
	if err == nil && s == allOnes {
		err = ErrDeviceGone
	}
	return s, err
}

// reading is a register of a block, and where its value goes.
type reading struct {
	reg uint64
	v   *uint32
}

// readAll reads registers of a block in turn.
func (r *registers) readAll(ctx context.Context, block uint32, list ...reading) (err error) {
	for _, l := range list {
		if *l.v, err = r.read(ctx, block, l.reg); err != nil {
			return err
		}
	}
	return nil
}

// fault reads why the device has stopped.
func (r *registers) fault() error {
	var f FaultError
	if err := r.readAll(context.Background(), datasheet.BlockHealth, reading{datasheet.RegFault, &f.Code}, reading{datasheet.RegFaultDetail, &f.Detail}); err != nil {
		return err
	}
	return &f
}

// FaultError is a device that has stopped. It matches ErrDeviceFault.
type FaultError struct{ Code, Detail uint32 }

var faultNames = map[uint32]string{
	datasheet.FaultNone:       "no fault code",
	datasheet.FaultAdminDMA:   "an admin ring could not be reached at bus address",
	datasheet.FaultAdminIndex: "impossible admin ring index",
	datasheet.FaultMemory:     "memory that the device used has gone (unmapped, or its file cut off), detail",
}

func (e *FaultError) Error() string {
	name, ok := faultNames[e.Code]
	if !ok {
		name = fmt.Sprintf("fault code %d, detail", e.Code)
	}
	return fmt.Sprintf("%v: %s %#x", ErrDeviceFault, name, e.Detail)
}

func (e *FaultError) Unwrap() error { return ErrDeviceFault }
