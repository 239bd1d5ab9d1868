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

// Block is one register block in BAR0.
type Block struct {
	// Type is one of the Block constants of package descriptors, or unknown.
	Type uint32
	// Version is major<<16 | minor.
	Version uint32
	// Offset in BAR0 and Size, header included, in bytes.
	Offset uint64
	Size   uint32
}

// Name returns the block's type in words.
func (b Block) Name() string { return blockName(b.Type) }

type knownBlock struct {
	name    string
	minSize uint32 // up to the last register that the driver uses
}

var knownBlocks = map[uint32]knownBlock{
	datasheet.BlockIdentity:  {"identity", datasheet.RegPageSizeLog2 + 4},
	datasheet.BlockHealth:    {"health", datasheet.RegHeartbeat + 4},
	datasheet.BlockAdmin:     {"admin", datasheet.RegEventsLost + 4},
	datasheet.BlockProcessor: {"processor", datasheet.ProcessorHookBase + datasheet.ImageHookCount*datasheet.ProcessorHookSize},
	datasheet.BlockDMA:       {"DMA", datasheet.RegLogLost + 4},
	datasheet.BlockClock:     {"clock", datasheet.RegClockResolution + 4},
	datasheet.BlockCounters:  {"counters", datasheet.RegCounterBase},
	datasheet.BlockChannels:  {"channels", datasheet.RegStopped + 4},
	datasheet.BlockInterrupt: {"interrupt", datasheet.RegVectors + 4},
}

func blockName(t uint32) string {
	if k, ok := knownBlocks[t]; ok {
		return k.name
	}
	return fmt.Sprintf("type %#x", t)
}

// maxBlocks ends a chain that goes on for ever without a loop.
const maxBlocks = 256

// walkBlocks follows the chain of register blocks in a BAR of size bytes. It
// returns every block, also those that this driver does not know. read reads a
// register.
func walkBlocks(size uint64, read func(offset uint64) (uint32, error)) ([]Block, error) {
	var blocks []Block
	seen := map[uint64]bool{}
	for offset := uint64(0); ; {
		bad := func(format string, args ...any) error {
			return fmt.Errorf("%w: block at %#x: %s", ErrBadRegisters, offset, fmt.Sprintf(format, args...))
		}
		switch {
		case offset%4 != 0:
			return nil, bad("the offset is not a multiple of 4")
		case offset > size || size-offset < datasheet.BlockHeaderSize:
			return nil, bad("the header lies outside BAR0, which has %#x bytes", size)
		case seen[offset]:
			return nil, bad("the chain loops")
		case len(blocks) == maxBlocks:
			return nil, bad("the chain has more than %d blocks", maxBlocks)
		}
		seen[offset] = true

		var h [4]uint32
		for i := range h {
			v, err := read(offset + uint64(4*i))
			if err != nil {
				return nil, err
			}
			h[i] = v
		}
		if h == [4]uint32{allOnes, allOnes, allOnes, allOnes} {
			return nil, ErrDeviceGone
		}
		b := Block{
			Type: h[datasheet.BlockRegType/4], Version: h[datasheet.BlockRegVersion/4],
			Offset: offset, Size: h[datasheet.BlockRegSize/4],
		}
		if b.Size < datasheet.BlockHeaderSize || uint64(b.Size) > size-offset {
			return nil, bad("a size of %#x does not fit BAR0, which has %#x bytes", b.Size, size)
		}
		blocks = append(blocks, b)
		if offset = uint64(h[datasheet.BlockRegNext/4]); offset == 0 {
			return blocks, nil
		}
	}
}

// checkBlocks finds the blocks that this driver uses, and refuses what it
// cannot work with.
func checkBlocks(blocks []Block) (map[uint32]Block, error) {
	used := map[uint32]Block{}
	if blocks[0].Type != datasheet.BlockIdentity {
		return nil, fmt.Errorf("%w: BAR0 starts with the %s block, not with the identity block", ErrBadRegisters, blocks[0].Name())
	}
	for _, b := range blocks {
		k, ok := knownBlocks[b.Type]
		if !ok {
			continue
		}
		if b.Version>>16 != datasheet.BlockVersion1>>16 {
			return nil, &VersionError{Block: b.Type, Offset: b.Offset, Found: b.Version, Wanted: datasheet.BlockVersion1}
		}
		if b.Size < k.minSize {
			return nil, fmt.Errorf("%w: the %s block at %#x has %#x bytes, %#x are needed", ErrBadRegisters, k.name, b.Offset, b.Size, k.minSize)
		}
		if _, ok := used[b.Type]; ok {
			return nil, fmt.Errorf("%w: a second %s block at %#x", ErrBadRegisters, k.name, b.Offset)
		}
		used[b.Type] = b
	}
	for _, t := range []uint32{datasheet.BlockIdentity, datasheet.BlockHealth, datasheet.BlockAdmin} {
		if _, ok := used[t]; !ok {
			return nil, fmt.Errorf("%w: there is no %s block", ErrBadRegisters, blockName(t))
		}
	}
	return used, nil
}
