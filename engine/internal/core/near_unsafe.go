package core

import (
	"unsafe"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Control is the control segment at an address of the region, with room for a data segment behind it. It is nil if
// the region is not known to have that, or may not be written to.
func (n *near) Control(m *Regions, handle uint32, address uint64) *datasheet.ControlSegment {
	off := address - n.address
	if n.handle != handle || n.stamp != m.Stamp || off >= n.starts || address%datasheet.DescriptorAlign != 0 {
		return nil
	}
	return (*datasheet.ControlSegment)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(n.memory)), off))
}

// Behind is the data segment behind a control segment of the region.
func Behind(seg *datasheet.ControlSegment) *datasheet.DataSegment {
	return (*datasheet.DataSegment)(unsafe.Add(unsafe.Pointer(seg), datasheet.ControlSegmentSize))
}

// Inline is the data behind a control segment of the region, n bytes, nil if the region ends before.
func (n *near) Inline(seg *datasheet.ControlSegment, size uint32) *byte {
	first := unsafe.Add(unsafe.Pointer(seg), datasheet.ControlSegmentSize)
	if uint64(uintptr(first)-uintptr(unsafe.Pointer(unsafe.SliceData(n.memory))))+uint64(size) > uint64(len(n.memory)) {
		return nil
	}
	return (*byte)(first)
}

// Bytes is where n bytes at an address of the region begin, nil if they are not known to be there.
func (n *near) Bytes(m *Regions, handle uint32, address, size uint64) *byte {
	off := address - n.address
	if n.handle != handle || n.stamp != m.Stamp || off > uint64(len(n.memory)) || size > uint64(len(n.memory))-off {
		return nil
	}
	return (*byte)(unsafe.Add(unsafe.Pointer(unsafe.SliceData(n.memory)), off))
}
