package driver

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

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

// VersionError is a register block of a major version that this driver does
// not know. It matches ErrVersion.
type VersionError struct {
	Block  uint32 // type of the block
	Offset uint64 // in BAR0
	Found  uint32 // major<<16 | minor
	Wanted uint32 // major<<16 | minor
}

func (e *VersionError) Error() string {
	return fmt.Sprintf("%v: the %s block at %#x of BAR0 has version %d.%d, this driver knows %d.x", ErrVersion,
		blockName(e.Block), e.Offset, e.Found>>16, e.Found&0xffff, e.Wanted>>16)
}

func (e *VersionError) Unwrap() error { return ErrVersion }

// allOnes is returned by a read when no device answers on the bus.
const allOnes uint32 = 0xffffffff
