package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// allOnes is returned by a read when no device answers on the bus.
const allOnes uint32 = 0xffffffff

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

// inBlock calls f, which reads registers of a block, as an operation. It fails with
// ErrNotSupported if the device does not have the block. A device that has gone meanwhile has left
// nonsense in all that was read: then it has failed.
func (n *NIC) inBlock(op string, block uint32, f func() error) error {
	return n.do(n.background, op, func() error {
		if !n.regs.has(block) {
			return descriptors.ErrNotSupported
		}
		err := f()
		if err == nil || errors.Is(err, ErrBadRegisters) {
			if _, gone := n.regs.status(n.background); gone != nil {
				err = n.fail(gone)
			}
		}
		return err
	})
}

// alone carries out f, an operation on a block that not every device has, one at a time: mu is held
// meanwhile. A device without the block is ErrNotSupported, for the reason lacks.
func (n *NIC) alone(ctx context.Context, op string, block uint32, mu *sync.Mutex, lacks, hint string, f func() error) error {
	return n.do(ctx, op, func() error {
		if !n.regs.has(block) {
			return hinted(fmt.Errorf("%w: %s", descriptors.ErrNotSupported, lacks), hint)
		}
		mu.Lock()
		defer mu.Unlock()
		return f()
	})
}

// fault reads why the device has stopped.
func (r *registers) fault() error {
	var f FaultError
	if err := r.readAll(context.Background(), datasheet.BlockHealth, reading{datasheet.RegFault, &f.Code}, reading{datasheet.RegFaultDetail, &f.Detail}); err != nil {
		return err
	}
	return &f
}
