package virtqueue

import (
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/round"
)

// Format is a queue's layout in memory.
type Format int

const (
	Split Format = iota
	Packed
)

func (f Format) String() string {
	if f == Packed {
		return "packed"
	}
	return "split"
}

// Flags of descriptors of both formats (VIRTQ_DESC_F_NEXT, VIRTQ_DESC_F_WRITE).
const (
	flagNext  = 1
	flagWrite = 2
)

const (
	// DescriptorSize is the size of a descriptor in bytes.
	DescriptorSize = 16
	// MaxSize is the largest number of descriptors of a queue of either format.
	MaxSize = 1 << 15
)

// Part is a piece of a buffer: Length bytes at bus address Address, which the device
// writes if Writable says so, else reads.
type Part struct {
	Address  uint64
	Length   uint32
	Writable bool
}

// Used is a buffer that the device has given back.
type Used struct {
	// Tag is the one that the buffer was added with.
	Tag uint32
	// Length is the number of bytes that the device says that it has written: at most the
	// writable ones.
	Length uint32
}

// Queue is the driver's side of a queue. It is for one goroutine at a time.
type Queue interface {
	// Room returns how many descriptors are free.
	Room() int
	// Add lends a buffer of one part to the device, which sees it after Publish. There
	// has to be room. The tag comes back with it.
	Add(p Part, tag uint32)
	// AddChain is Add for a buffer of several parts, readable ones first. There has
	// to be room for all of them.
	AddChain(parts []Part, tag uint32)
	// Publish shows the device what was added since. It reports whether the device
	// wants to be notified of it.
	Publish() (notify bool)
	// Take returns in used the buffers that have come back, oldest first, and how many
	// there are. After a violation there are none.
	Take(used []Used) int
	// Pending reports whether Take would return something.
	Pending() bool
	// Near reports whether n buffers, 1 to Lent, have come back, as far as can be told
	// without looking at what the device is about to write: who asks again and again takes
	// no cache line away from it. It is a hint.
	Near(n int) bool
	// Interrupts asks the device for an interrupt when it has used a buffer, or for
	// none; some may come nevertheless. Asking for one reports whether a buffer had
	// come back before: the interrupt may then never come.
	Interrupts(wanted bool) (pending bool)
	// Lent returns how many buffers the device has, published or not.
	Lent() int
	// Reclaim gives the tags of all buffers that the device has to f, and forgets them.
	// The queue takes no more: the device must have been stopped.
	Reclaim(f func(tag uint32))
	// Violation returns why the queue is not used any more, nil if it is: a *Violation.
	Violation() error
}

// Options of a queue.
type Options struct {
	Format Format
	// Size is the number of descriptors: 2 to MaxSize, and a power of two if split.
	Size int
	// EventIndex says that VIRTIO_F_EVENT_IDX was negotiated: each side says at which
	// buffer it wants to be notified.
	EventIndex bool
	// Index of the queue, for errors.
	Index int
}

// ErrOptions is wrapped by errors about a queue that cannot be.
var ErrOptions = errors.New("no such virtqueue")

// ErrViolation is wrapped by every *Violation.
var ErrViolation = errors.New("the device broke the rules of the virtqueue")

// Violation is a device's breach of a queue's rules. It wraps ErrViolation.
type Violation struct {
	Queue int
	// Field names the wrong field, and Value has what the device wrote.
	Field string
	Value uint64
	Why   string
}

func (v *Violation) Error() string {
	return fmt.Sprintf("virtqueue %d: %s is %#x: %s", v.Queue, v.Field, v.Value, v.Why)
}

// Unwrap returns ErrViolation.
func (v *Violation) Unwrap() error { return ErrViolation }

// Layout says where the areas of a queue are in its memory, in bytes.
type Layout struct{ Descriptor, Driver, Device, Size uint64 }

// areaAlign keeps areas off the neighbour that amd64 fetches along with a cache line. It
// is more than virtio asks for, 16 at most.
const areaAlign = 128

// usedShift is the distance from a multiple of areaAlign at which the device area of a split queue
// begins, in bytes. Its elements, of 8 bytes, come after 4 bytes, so it puts each of them at a
// multiple of 8: none crosses the end of a page. virtio asks for a multiple of 4 ("Split
// Virtqueues"), but behind an IOMMU QEMU 11.1 finds only the page in which an element
// begins, and writes the rest of it to the physical memory behind that page, which may be in other
// use (system/physmem.c, address_space_write_cached_slow).
const usedShift = 8 - splitRing

// Layout returns the layout of a queue. It fails with ErrOptions.
func (o Options) Layout() (Layout, error) {
	if o.Size < 2 || o.Size > MaxSize {
		return Layout{}, fmt.Errorf("%w: %d descriptors, want 2 to %d", ErrOptions, o.Size, MaxSize)
	}
	n := uint64(o.Size)
	var driver, device, shift uint64
	switch o.Format {
	case Split:
		if n&(n-1) != 0 {
			return Layout{}, fmt.Errorf("%w: %d descriptors of a split queue are no power of two", ErrOptions, n)
		}
		// Indexes of events have 16 bits and are accessed as 32.
		driver, device, shift = splitRing+2*n+4, splitRing+8*n+4, usedShift
	case Packed:
		driver, device = 4, 4
	default:
		return Layout{}, fmt.Errorf("%w: format %d", ErrOptions, o.Format)
	}
	l := Layout{Driver: round.Up(DescriptorSize*n, areaAlign)}
	l.Device = l.Driver + round.Up(driver, areaAlign) + shift
	l.Size = round.Up(l.Device+device, areaAlign)
	return l, nil
}

// New makes a queue in memory, which it zeroes: Size bytes of its layout, shared with the
// device, outside the Go heap and aligned to a cache line. It fails with ErrOptions.
func New(memory []byte, o Options) (Queue, error) {
	l, err := o.Layout()
	if err != nil {
		return nil, err
	}
	if uint64(len(memory)) < l.Size || !aligned(memory) {
		return nil, fmt.Errorf("%w: %d bytes of memory, want %d aligned to 16", ErrOptions, len(memory), l.Size)
	}
	clear(memory[:l.Size])
	if o.Format == Packed {
		return newPacked(memory, l, o), nil
	}
	return newSplit(memory, l, o), nil
}
