package function

import (
	"encoding/binary"
	"fmt"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/mmio"
	"github.com/trapeze-nic/trapeze/vfio"
)

// BAR is a memory BAR: mapped where the device allows it, trapped (an access is a call)
// elsewhere. Registers are 32-bit, at multiples of 4.
type BAR struct {
	dev    vfio.Device
	index  int
	size   uint64
	mapped vfio.MappedBAR
}

// OpenBAR maps what can be mapped of a BAR, which has least bytes at least. It fails with
// ErrProtocol if it is smaller.
func (f *Function) OpenBAR(index int, least uint64) (*BAR, error) {
	info, err := f.dev.Region(index)
	if err != nil {
		return nil, err
	}
	if info.Size < least {
		return nil, fmt.Errorf("%w: BAR%d has %#x bytes, want %#x", ethernet.ErrProtocol, index, info.Size, least)
	}
	b := &BAR{dev: f.dev, index: index, size: info.Size}
	if b.mapped, err = vfio.MapBAR(f.dev, index, info); err != nil {
		return nil, fmt.Errorf("%w: %w", ethernet.ErrProtocol, err)
	}
	f.bars = append(f.bars, b)
	return b, nil
}

// Size returns the size in bytes.
func (b *BAR) Size() uint64 { return b.size }

// Read reads a register.
func (b *BAR) Read(offset uint64) (uint32, error) {
	if p := b.mapped.Register(offset); p != nil {
		return mmio.Read32(p), nil
	}
	var v [4]byte
	err := b.dev.ReadRegion(b.index, offset, v[:])
	return binary.LittleEndian.Uint32(v[:]), err
}

// Write writes a register.
func (b *BAR) Write(offset uint64, v uint32) error {
	if p := b.mapped.Register(offset); p != nil {
		mmio.Write32(p, v)
		return nil
	}
	var w [4]byte
	binary.LittleEndian.PutUint32(w[:], v)
	return b.dev.WriteRegion(b.index, offset, w[:])
}

// Doorbell is one register that is written on the data path.
type Doorbell struct {
	reg    *uint32 // nil if trapped
	bar    *BAR
	offset uint64
	buf    [4]byte // of a trapped write; here because it would escape to the heap
}

// Doorbell finds the register at offset.
func (b *BAR) Doorbell(offset uint64) Doorbell {
	return Doorbell{reg: b.mapped.Register(offset), bar: b, offset: offset}
}

// Ring writes the register, after all that was written to memory before. Only a trapped
// one can fail.
func (d *Doorbell) Ring(v uint32) error {
	mmio.ToDevice()
	if d.reg != nil {
		mmio.Write32(d.reg, v)
		return nil
	}
	binary.LittleEndian.PutUint32(d.buf[:], v)
	return d.bar.dev.WriteRegion(d.bar.index, d.offset, d.buf[:])
}
