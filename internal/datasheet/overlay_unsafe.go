package datasheet

import (
	"sync/atomic"
	"unsafe"

	"github.com/trapeze-nic/trapeze/internal/atomicmem"
)

// Functions named XAt lay an X over the first bytes of b, and those named XsAt as many whole ones as b holds. They return nil
// if b is too short for one, or not aligned to the number of bytes that stands beside it.

func ControlAt(b []byte) *ControlSegment        { return overlay[ControlSegment](b, DescriptorAlign) }
func AddressSegmentAt(b []byte) *AddressSegment { return overlay[AddressSegment](b, 8) }
func DataSegmentAt(b []byte) *DataSegment       { return overlay[DataSegment](b, 8) }
func DataSegmentsAt(b []byte) []DataSegment     { return overlaySlice[DataSegment](b, 8) }
func TokensAt(b []byte) []Token                 { return overlaySlice[Token](b, TokenSize) }
func CompletionsAt(b []byte) []Completion       { return overlaySlice[Completion](b, CompletionSize) }
func RingSlotsAt(b []byte) []RingSlot           { return overlaySlice[RingSlot](b, DescriptorAlign) }
func RingPlacesAt(b []byte) []RingPlace         { return overlaySlice[RingPlace](b, 8) }
func HeaderAt(frame []byte) *Header             { return overlay[Header](frame, 4) }
func ExtensionAt(b []byte) *Extension           { return overlay[Extension](b, 8) }
func ConnectBodyAt(payload []byte) *ConnectBody { return overlay[ConnectBody](payload, 4) }
func DirectTableAt(b []byte) *DirectTable       { return overlay[DirectTable](b, DirectRegionSize) }
func ReferencesAt(b []byte) []Reference         { return overlaySlice[Reference](b, 8) }
func ChannelControlAt(b []byte) *ChannelControl { return overlay[ChannelControl](b, 64) }

// ChannelEndsAt lays the words about a channel's last PDUs over its control page, nil if b is
// shorter than that or not aligned to 64 bytes.
func ChannelEndsAt(b []byte) []uint32 {
	if len(b) < ChannelEnds+4*ChannelEndCount {
		return nil
	}
	return overlaySlice[uint32](b[ChannelEnds:ChannelEnds+4*ChannelEndCount], 64)
}

func CellsAt(b []byte) []Cell           { return overlaySlice[Cell](b, 8) }
func CommandAt(b []byte) *Command       { return overlay[Command](b, 8) }
func AdminEntryAt(b []byte) *AdminEntry { return overlay[AdminEntry](b, 8) }
func ProgressAt(b []byte) *Progress     { return overlay[Progress](b, ProgressSize) }
func DMARecordsAt(b []byte) []DMARecord { return overlaySlice[DMARecord](b, DMARecordSize) }

// Body lays a typed body over the command's 120 bytes.
func Body[T CommandBody](c *Command) *T {
	return (*T)(unsafe.Pointer(&c.Payload))
}

// Reply lays a typed body over the entry's 112 bytes.
func Reply[T ReplyBody](e *AdminEntry) *T {
	return (*T)(unsafe.Pointer(&e.Payload))
}

// LoadStatus reads Status with acquire: what the provider wrote before it
// (payload, length, immediate data) is visible after a status with StatusDone.
func (c *ControlSegment) LoadStatus() Status {
	return Status(atomic.LoadUint32(&c.Status))
}

// StoreStatus writes Status with release. It hands the descriptor over.
func (c *ControlSegment) StoreStatus(s Status) {
	atomicmem.Store32(&c.Status, uint32(s))
}

// Descriptor returns s from byte RingMessage on, as the control segment that it
// has the form of.
func (s *RingSlot) Descriptor() *ControlSegment {
	return (*ControlSegment)(unsafe.Add(unsafe.Pointer(s), RingMessage))
}

// LoadStatus reads Status with acquire, see ControlSegment.LoadStatus.
func (s *RingSlot) LoadStatus() Status { return Status(atomic.LoadUint32(&s.Status)) }

// StoreStatus writes Status with release, see ControlSegment.StoreStatus.
func (s *RingSlot) StoreStatus(st Status) { atomicmem.Store32(&s.Status, uint32(st)) }

// Load copies the entry at p into to. It returns false if the entry names nothing, or if the
// host was changing it meanwhile: to then holds a mixture.
func (p *RingPlace) Load(to *RingPlace) bool {
	// Acquiring loads stay in this order. Store has written Handle behind the tag that was
	// read, so what follows is of that entry, or of a later one whose tag is there by the end.
	to.Tag = atomic.LoadUint32(&p.Tag)
	to.Handle = atomic.LoadUint32(&p.Handle)
	to.Address = atomic.LoadUint64(&p.Address)
	to.Length = atomic.LoadUint32(&p.Length)
	return to.Handle != 0 && atomic.LoadUint32(&p.Tag) == to.Tag
}

// Store writes the entry of from to p, which names nothing meanwhile.
func (p *RingPlace) Store(from *RingPlace) {
	atomicmem.Store32(&p.Handle, 0)
	atomicmem.Store32(&p.Tag, from.Tag)
	atomicmem.Store32(&p.Length, from.Length)
	atomicmem.Store64(&p.Address, from.Address)
	atomicmem.Store32(&p.Handle, from.Handle)
}

// LoadFront reads Front with acquire: so many bytes of the message are visible after it.
func (c *ControlSegment) LoadFront() uint32 { return atomic.LoadUint32(&c.Front) }

// StoreFront writes Front with release.
func (c *ControlSegment) StoreFront(n uint32) { atomicmem.Store32(&c.Front, n) }

// LoadFlags reads Flags with acquire: the rest of the entry is visible after a
// matching phase bit.
func (c *Completion) LoadFlags() uint32 { return atomic.LoadUint32(&c.Flags) }

// Publish writes Flags with release. It hands the entry to the consumer.
func (c *Completion) Publish(flags uint32) { atomicmem.Store32(&c.Flags, flags) }

// LoadFlags reads Flags with acquire, see Completion.LoadFlags.
func (e *AdminEntry) LoadFlags() uint32 { return atomic.LoadUint32(&e.Flags) }

// Publish writes Flags with release, see Completion.Publish.
func (e *AdminEntry) Publish(flags uint32) { atomicmem.Store32(&e.Flags, flags) }

// LoadFlags reads Flags with acquire, see Completion.LoadFlags.
func (r *DMARecord) LoadFlags() uint32 { return atomic.LoadUint32(&r.Flags) }

// Publish writes Flags with release, see Completion.Publish.
func (r *DMARecord) Publish(flags uint32) { atomicmem.Store32(&r.Flags, flags) }

// Load copies the counters that the device keeps at p into to. It returns false
// if the device was writing meanwhile: to then holds a mixture, and the caller
// may try again.
func (p *Progress) Load(to *Progress) bool {
	// Acquiring loads stay in this order, and so do the releasing stores of Store.
	to.Sequence = atomic.LoadUint32(&p.Sequence)
	to.Frame = atomic.LoadUint32(&p.Frame)
	to.Length = atomic.LoadUint32(&p.Length)
	to.Arrived = atomic.LoadUint32(&p.Arrived)
	to.Sent = atomic.LoadUint32(&p.Sent)
	to.Queued = atomic.LoadUint32(&p.Queued)
	to.Flags = atomic.LoadUint32(&p.Flags)
	return to.Sequence&1 == 0 && atomic.LoadUint32(&p.Sequence) == to.Sequence
}

// Store writes the counters of from to p, where the host reads them. It takes
// the sequence from from, which it advances by two: p is memory of the host.
func (p *Progress) Store(from *Progress) {
	from.Sequence |= 1
	atomicmem.Store32(&p.Sequence, from.Sequence)
	atomicmem.Store32(&p.Frame, from.Frame)
	atomicmem.Store32(&p.Length, from.Length)
	atomicmem.Store32(&p.Arrived, from.Arrived)
	atomicmem.Store32(&p.Sent, from.Sent)
	atomicmem.Store32(&p.Queued, from.Queued)
	atomicmem.Store32(&p.Flags, from.Flags)
	from.Sequence++
	atomicmem.Store32(&p.Sequence, from.Sequence)
}

// LoadIndex reads a ring index that the other side writes, with acquire.
func LoadIndex(p *uint32) uint32 { return atomic.LoadUint32(p) }

// StoreIndex writes a ring index for the other side, with release.
func StoreIndex(p *uint32, v uint32) { atomicmem.Store32(p, v) }

// StoreWord32 writes 32 bits that the other side reads, with release.
func StoreWord32(p *uint32, v uint32) { atomicmem.Store32(p, v) }

// LoadWord reads 64 bits that another goroutine writes with StoreWord, with acquire.
func LoadWord(p *uint64) uint64 { return atomic.LoadUint64(p) }

// StoreWord writes 64 bits for another goroutine, with release.
func StoreWord(p *uint64, v uint64) { atomicmem.Store64(p, v) }

// IndexAt lays a ring index over the first 4 bytes of b, or returns nil if b is
// too short or not aligned to 4 bytes.
func IndexAt(b []byte) *uint32 { return overlay[uint32](b, 4) }

// EagerStatusAt lays the status bytes of an eager region over b, nil if b is not aligned to 4
// bytes; what is left over behind a multiple of 4 bytes is not in it.
func EagerStatusAt(b []byte) EagerStatus { return overlaySlice[uint32](b, 4) }

func overlay[T any](b []byte, align uintptr) *T {
	var t T
	if uintptr(len(b)) < unsafe.Sizeof(t) {
		return nil
	}
	p := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(p)%align != 0 {
		return nil
	}
	return (*T)(p)
}

func overlaySlice[T any](b []byte, align uintptr) []T {
	var t T
	n := uintptr(len(b)) / unsafe.Sizeof(t)
	p := unsafe.Pointer(unsafe.SliceData(b))
	if n == 0 || uintptr(p)%align != 0 {
		return nil
	}
	return unsafe.Slice((*T)(p), n)
}

// ReferenceBytes is the memory of references, as they stand in a frame.
func ReferenceBytes(r []Reference) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(r))), len(r)*ReferenceSize)
}
