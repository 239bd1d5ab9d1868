package driver

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// ReadSRAM copies the device's memory from offset on.
func (n *NIC) ReadSRAM(offset uint64, p []byte) error {
	return n.do(n.background, "read SRAM", func() error { return n.inSRAM(offset, p, n.bar4.read) })
}

// WriteSRAM copies p into the device's memory.
func (n *NIC) WriteSRAM(offset uint64, p []byte) error {
	return n.do(n.background, "write SRAM", func() error { return n.inSRAM(offset, p, n.bar4.write) })
}

// FreeSRAM returns the bytes of the memory that the device gives out which are not in use, and how
// many it has to give out in all; zeros for a device that gives out none.
func (n *NIC) FreeSRAM() (free, all uint32, err error) {
	err = n.inBlock("ask for free SRAM", datasheet.BlockIdentity, func() error {
		var base, left uint32
		if n.regs.blocks[datasheet.BlockIdentity].Size < datasheet.RegSRAMFree+4 {
			return nil
		}
		err := n.regs.readAll(n.background, datasheet.BlockIdentity, reading{datasheet.RegSRAMBase, &base}, reading{datasheet.RegSRAMFree, &left})
		if err != nil || base == allOnes { // it does not have the register
			return err
		}
		if base > n.identity.SRAM || left > n.identity.SRAM-base {
			return fmt.Errorf("%w: %#x bytes of SRAM are free behind %#x, of %#x", ErrProtocol, left, base, n.identity.SRAM)
		}
		free, all = left, n.identity.SRAM-base
		return nil
	})
	return free, all, err
}

// checkSRAM checks that size bytes from offset on are device memory.
func (n *NIC) checkSRAM(offset uint64, size int) error {
	if all := min(n.bar4.size, uint64(n.identity.SRAM)); offset > all || uint64(size) > all-offset {
		return fmt.Errorf("%w: %d bytes at %#x, SRAM has %#x", vfio.ErrOutOfRange, size, offset, all)
	}
	return nil
}

// noSRAM is the hint of errors about what stands in device memory.
const noSRAM = "this device has no memory of its own, or it cannot be mapped"

// hasSRAM reports whether the device has a feature that stands in memory of its own, and that can be mapped.
func (n *NIC) hasSRAM(feature uint64) bool {
	return n.identity.Features&feature != 0 && n.bar4.mapped.Window(0, 1) != nil
}

// givenSRAM returns a piece of device memory that the device has given out.
func (n *NIC) givenSRAM(what string, at, size, align uint64) ([]byte, error) {
	if err := n.checkSRAM(at, int(size)); err != nil {
		return nil, fmt.Errorf("%w: it gave out a %s: %w", ErrProtocol, what, err)
	}
	b := n.bar4.mapped.Window(at, int(size))
	if at%align != 0 || b == nil {
		return nil, fmt.Errorf("%w: it gave out a %s at %#x, which is not aligned or cannot be mapped", ErrProtocol, what, at)
	}
	return b, nil
}

// inSRAM is an access to device memory, if p fits there.
func (n *NIC) inSRAM(offset uint64, p []byte, access func(uint64, []byte) error) error {
	if err := n.checkSRAM(offset, len(p)); err != nil || len(p) == 0 {
		return err
	}
	return access(offset, p)
}

func (n *NIC) doorbellAt(offset uint64) doorbell {
	b := n.doorbellIn(n.bar2, offset)
	if n.marks && b.reg != nil {
		mark, group := datasheet.MarkOffsets(offset / datasheet.PageSize)
		b.mark, b.group = &n.bar2.mapped.Window(mark, 1)[0], &n.bar2.mapped.Window(group, 1)[0]
	}
	if n.local != nil && b.reg == nil {
		b.call = n.local.Ringer(b.bar.index, offset)
	}
	return b
}

// wantsMarks reports whether the device has to look for doorbells in memory: the driver then
// marks the pages to which it stores (SPEC.md 3.4).
func (n *NIC) wantsMarks() bool {
	return n.identity.Features&datasheet.FeatureDoorbellMarks != 0 && n.bar2.mapped.Window(0, datasheet.PageSize) != nil
}

// pulseAt returns a pulse register of the DMA block.
func (n *NIC) pulseAt(reg uint64) doorbell {
	return n.doorbellIn(n.bar0, n.regs.blocks[datasheet.BlockDMA].Offset+reg)
}

func (n *NIC) doorbellIn(r *region, offset uint64) doorbell {
	return doorbell{fail: n.fail, reg: r.pointer(offset), bar: r, offset: offset}
}

func (n *NIC) channelBellAt(offset uint64, count uint32) channelBell {
	b := channelBell{doorbell: n.doorbellAt(offset), base: offset, count: count}
	if b.reg != nil {
		b.words = make([]*uint32, count)
		for i := range b.words {
			b.words[i] = n.bar2.pointer(offset + 4*uint64(i))
		}
	}
	return b
}
