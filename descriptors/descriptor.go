package descriptors

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Errors of building a descriptor.
var (
	ErrMisaligned      = errors.New("descriptor is not aligned to 64 bytes")
	ErrTooSmall        = errors.New("memory is too small for a descriptor")
	ErrTooManySegments = errors.New("descriptor has no room for another segment")
	ErrLengthOverflow  = errors.New("total length of the segments does not fit 32 bits")
	ErrInlineRoom      = errors.New("descriptor has no room for so much inline data")
)

// Descriptor is a view of one VI descriptor in registered memory: where the
// processor sees it and how the NIC names it. Between the post and the
// completion only Status and Ready may be called.
type Descriptor struct {
	control  *datasheet.ControlSegment
	segments []datasheet.DataSegment
	room     []byte // of the segments, for inline data
	remote   int    // segments before the data segments: 1 of RDMA
	used     int
	inline   uint32 // bytes of inline data
	address  uint64
	handle   uint32
	post     Post
	user     User
}

// User is the application's note on a descriptor. It is not in memory that the NIC
// sees, and Prepare and Rearm leave it as it is. It does not change while the descriptor
// is posted.
type User struct {
	// Word is of the application's choice. A completion queue gives it out with the
	// completion.
	Word uint64
	// Unsignaled, of a send: its completion without error is not reported. Completion queues
	// and the calls that take descriptors back pass over it: they
	// return a later one, or say that nothing is posted. The descriptor is the
	// application's again then. An error is reported as ever.
	Unsignaled bool
}

// Post is the driver's note on a descriptor, so that it is posted once. It is not
// in memory that the NIC sees.
type Post struct {
	// Owner is the driver's name for the VI that alone may post the descriptor; zero
	// for any. It is set before the first post.
	Owner uint32
	// Posted says that the descriptor is on the queue of Holder, whose lock guards
	// it: the queue to which it was posted last, if any.
	Posted bool
	Holder atomic.Pointer[Holder]
	// Seen tells Holder which state of its regions the descriptor was checked against.
	Seen uint64
}

// Holder is a work queue of a driver.
type Holder interface {
	// LetGo makes Holder of d nil, unless d is posted there or to another by now.
	LetGo(d *Descriptor)
}

// NewDescriptor lays a descriptor over mem, which the NIC knows as address in
// the region handle. mem holds the control segment and as many segments as fit
// behind it: 32+16*n bytes for n. The memory must start on a 64-byte boundary
// in both views. The descriptor starts out prepared as an empty send or
// receive.
func NewDescriptor(mem []byte, address uint64, handle uint32) (*Descriptor, error) {
	d, err := DescriptorAt(mem, address, handle)
	if err == nil {
		d.Prepare()
	}
	return d, err
}

// DescriptorAt is NewDescriptor for a descriptor that stands in mem already, such as
// one that a program in C has built. The memory stays as it is; Segments and Rearm know
// nothing of the segments that stand there.
func DescriptorAt(mem []byte, address uint64, handle uint32) (*Descriptor, error) {
	if len(mem) < datasheet.ControlSegmentSize {
		return nil, fmt.Errorf("%w: %d bytes, at least %d are needed", ErrTooSmall, len(mem), datasheet.ControlSegmentSize)
	}
	c := datasheet.ControlAt(mem)
	if c == nil || address%datasheet.DescriptorAlign != 0 {
		return nil, fmt.Errorf("%w: address %#x", ErrMisaligned, address)
	}
	segs := datasheet.DataSegmentsAt(mem[datasheet.ControlSegmentSize:])
	if len(segs) > datasheet.MaxSegments+1 {
		segs = segs[:datasheet.MaxSegments+1]
	}
	room := mem[datasheet.ControlSegmentSize:][:min(len(segs), datasheet.MaxSegments)*datasheet.DataSegmentSize]
	return &Descriptor{control: c, segments: segs, room: room, address: address, handle: handle}, nil
}

// DescriptorBytes returns the memory in bytes that a descriptor with n data
// segments takes, rounded up so that another may follow it.
func DescriptorBytes(n int) int {
	b := datasheet.ControlSegmentSize + n*datasheet.DataSegmentSize
	return (b + datasheet.DescriptorAlign - 1) &^ (datasheet.DescriptorAlign - 1)
}

// Prepare makes d an empty send or receive descriptor that is not done.
func (d *Descriptor) Prepare() {
	c := d.control
	c.Next, c.NextHandle, c.SegCount, c.Control = 0, 0, 0, datasheet.OpSend
	c.Front, c.Immediate, c.Length = 0, 0, 0
	c.StoreStatus(0)
	d.remote, d.used, d.inline = 0, 0, 0
}

// AddData appends a data segment: length bytes at application address address
// in region handle. On error d is unchanged.
func (d *Descriptor) AddData(address uint64, handle, length uint32) error {
	if d.remote+d.used >= len(d.segments) || d.used >= datasheet.MaxSegments || d.control.Control&datasheet.ControlInline != 0 {
		return fmt.Errorf("%w: it holds %d", ErrTooManySegments, d.used)
	}
	if total := uint64(d.control.Length) + uint64(length); total > 0xffffffff {
		return fmt.Errorf("%w: %d bytes", ErrLengthOverflow, total)
	}
	s := &d.segments[d.remote+d.used]
	s.Address, s.Handle, s.Length = address, handle, length
	d.used++
	d.control.SegCount = uint16(d.remote + d.used)
	d.control.Length += length
	return nil
}

// Inline returns the memory behind the control segment in which a message can be
// built that is sent with SetInline: 16 bytes for each segment that d has room for.
func (d *Descriptor) Inline() []byte { return d.room }

// SetInline makes the first n bytes of Inline the message of a send, instead of
// data segments: a device finds them with the descriptor. It
// fails with ErrInlineRoom, and changes nothing.
func (d *Descriptor) SetInline(n int) error {
	if n < 0 || n > len(d.room) {
		return fmt.Errorf("%w: %d bytes, of %d", ErrInlineRoom, n, len(d.room))
	}
	d.remote, d.used = 0, 0
	c := d.control
	c.Control = c.Control&^datasheet.ControlOpMask | datasheet.ControlInline
	c.SegCount = uint16((n + datasheet.DataSegmentSize - 1) / datasheet.DataSegmentSize)
	c.Length, d.inline = uint32(n), uint32(n)
	return nil
}

// SetRDMAWrite makes d an RDMA write of its data segments to address in region handle of
// the other end. It may be called before or after AddData. It fails with
// ErrTooManySegments if there is no room for the address segment, or d has inline data,
// and changes nothing then.
func (d *Descriptor) SetRDMAWrite(address uint64, handle uint32) error {
	return d.setRemote(datasheet.OpRDMAWrite, address, handle)
}

// SetRDMARead makes d an RDMA read from address in region handle of the other end to its
// data segments, see SetRDMAWrite.
func (d *Descriptor) SetRDMARead(address uint64, handle uint32) error {
	return d.setRemote(datasheet.OpRDMARead, address, handle)
}

func (d *Descriptor) setRemote(op datasheet.Control, address uint64, handle uint32) error {
	c := d.control
	if d.remote == 0 {
		if d.used >= len(d.segments) || c.Control&datasheet.ControlInline != 0 {
			return fmt.Errorf("%w: it holds %d, and RDMA takes one", ErrTooManySegments, d.used)
		}
		copy(d.segments[1:], d.segments[:d.used])
		d.remote = 1
		c.SegCount = uint16(1 + d.used)
	}
	// An address segment is a data segment whose last field is reserved.
	s := &d.segments[0]
	s.Address, s.Handle, s.Length = address, handle, 0
	c.Control = c.Control&^datasheet.ControlOpMask | op
	return nil
}

// SetFence makes the device begin d, on a send queue, only after all earlier RDMA reads of
// that queue are complete.
func (d *Descriptor) SetFence() { d.control.Control |= datasheet.ControlQueueFence }

// Rearm makes d ready to be posted again with the segments it had; length is
// the total of the data segments, or of the inline data (a completion overwrites
// it).
func (d *Descriptor) Rearm() {
	total := d.inline
	segments := d.segments[d.remote:][:d.used]
	for i := range segments {
		total += segments[i].Length
	}
	// The doorbell hands it over.
	d.control.Front, d.control.Length, d.control.Status = 0, total, 0
}

// SetImmediate adds 32 bits of immediate data to a send or an RDMA write.
func (d *Descriptor) SetImmediate(v uint32) {
	d.control.Control |= datasheet.ControlImmediate
	d.control.Immediate = v
}

// Status reads the status with acquire. After it says done, Length and
// Immediate may be read.
func (d *Descriptor) Status() datasheet.Status { return d.control.LoadStatus() }

// Ready reports whether the byte at offset of a receive's message, and all before it, are in
// memory and may be read. Of a receive that is not done it may be so only on a reliable VI
// with buffers in eager memory (SPEC.md 9.1), frame by frame; an error can end the message
// afterwards. Offsets at and behind its end are never ready.
func (d *Descriptor) Ready(offset uint32) bool {
	if s := d.control.LoadStatus(); s.Done() {
		return !s.Failed() && offset < d.control.Length
	}
	return offset < d.control.LoadFront()
}

// Length returns the bytes moved, once d is done; before the post, the total
// of the data segments.
func (d *Descriptor) Length() uint32 { return d.control.Length }

// Immediate returns the immediate data of a completed receive and whether the
// message had any.
func (d *Descriptor) Immediate() (uint32, bool) {
	return d.control.Immediate, d.control.LoadStatus()&datasheet.StatusImmediate != 0
}

// User is the application's note on d.
func (d *Descriptor) User() *User { return &d.user }

// Post returns what the driver notes of d.
func (d *Descriptor) Post() *Post { return &d.post }

// Segments returns the data segments added so far, in registered memory.
func (d *Descriptor) Segments() []datasheet.DataSegment { return d.segments[d.remote:][:d.used] }

// Sources returns the data segments that stand in memory, SegCount of them, for a send or an
// RDMA write: what the device is going to read. It is nil for an RDMA read and for inline
// data.
func (d *Descriptor) Sources() []datasheet.DataSegment {
	c := d.control
	n, from := min(int(c.SegCount), len(d.segments)), 0
	switch op := c.Control.Op(); {
	case c.Control&datasheet.ControlInline != 0:
		return nil
	case op == datasheet.OpRDMAWrite:
		from = min(1, n)
	case op != datasheet.OpSend:
		return nil
	}
	return d.segments[from:n]
}

// Control returns the control segment in registered memory.
func (d *Descriptor) Control() *datasheet.ControlSegment { return d.control }

// Token returns the work-queue token that names d.
func (d *Descriptor) Token() datasheet.Token {
	return datasheet.Token{Address: d.address, Handle: d.handle}
}
