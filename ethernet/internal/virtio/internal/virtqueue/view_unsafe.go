package virtqueue

import "unsafe"

// aligned reports whether memory starts at a multiple of 16, the most that virtio asks for.
func aligned(memory []byte) bool {
	return uintptr(unsafe.Pointer(unsafe.SliceData(memory)))%DescriptorSize == 0
}

// at returns a pointer to a T in memory, which is long enough and aligned.
func at[T any](memory []byte, offset uint64) *T { return (*T)(unsafe.Pointer(&memory[offset])) }

// view points a queue's fields into memory, which has the layout's size.
func (q *split) view(memory []byte, l Layout, size int) {
	n := uint64(size)
	q.descriptors = unsafe.Slice(at[splitDescriptor](memory, l.Descriptor), size)
	q.availWord, q.avail = at[uint32](memory, l.Driver), unsafe.Slice(at[uint16](memory, l.Driver+splitRing), size)
	q.usedEvent = at[uint32](memory, l.Driver+splitRing+2*n)
	q.usedWord, q.used = at[uint32](memory, l.Device), unsafe.Slice(at[usedElement](memory, l.Device+splitRing), size)
	q.availEvent = at[uint32](memory, l.Device+splitRing+8*n)
}

// view points a queue's fields into memory, which has the layout's size.
func (q *packed) view(memory []byte, l Layout, size int) {
	q.descriptors = unsafe.Slice(at[packedDescriptor](memory, l.Descriptor), size)
	q.driverEvent, q.deviceEvent = at[uint32](memory, l.Driver), at[uint32](memory, l.Device)
}
