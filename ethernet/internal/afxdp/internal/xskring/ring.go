package xskring

import (
	"errors"
	"fmt"
	"math/bits"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/atomicmem"
)

// Errors of this package.
var (
	// ErrLayout: a ring does not lie in its mapping.
	ErrLayout = errors.New("a ring lies outside its mapping")
	// ErrViolation is wrapped by what Rings.Violation returns.
	ErrViolation = errors.New("a ring makes no sense")
)

// Memory is where a ring is: its mapping, and what is where in it, in bytes
// (XDP_MMAP_OFFSETS).
type Memory struct {
	Bytes                                 []byte
	Producer, Consumer, Flags, Descriptor uint64
	// Entries is the number of its entries, a power of two.
	Entries int
}

// needWakeup in the flags of a ring: the kernel goes on only when it is called
// (XDP_RING_NEED_WAKEUP).
const needWakeup = 1 << 0

// ring is one of the four. Indices run freely; the entry is the index modulo the size.
type ring[T uint64 | Desc] struct {
	producer, consumer, flags *uint32
	entries                   []T
	// next is our index: entries up to here are written, or taken. published is the one that
	// the other side has been told.
	next, published uint32
}

func newRing[T uint64 | Desc](m Memory) (r ring[T], err error) {
	if m.Entries < 1 || bits.OnesCount(uint(m.Entries)) != 1 {
		return r, fmt.Errorf("%w: it has %d entries", ErrLayout, m.Entries)
	}
	if r.producer, err = word(m.Bytes, m.Producer); err != nil {
		return r, err
	}
	if r.consumer, err = word(m.Bytes, m.Consumer); err != nil {
		return r, err
	}
	if r.flags, err = word(m.Bytes, m.Flags); err != nil {
		return r, err
	}
	r.entries, err = entries[T](m.Bytes, m.Descriptor, m.Entries)
	return r, err
}

func (r *ring[T]) at(index uint32) *T { return &r.entries[index&uint32(len(r.entries)-1)] }

// wants reports whether the kernel waits for a call.
func (r *ring[T]) wants() bool { return atomic.LoadUint32(r.flags)&needWakeup != 0 }

// produce shows the other side what has been written.
func (r *ring[T]) produce() {
	if r.published != r.next {
		r.published = r.next
		atomicmem.Store32(r.producer, r.next)
	}
}

// ready is the number of entries that the other side has written; ok is false if they cannot be.
func (r *ring[T]) ready() (n uint32, ok bool) {
	n = atomic.LoadUint32(r.producer) - r.next
	return n, n <= uint32(len(r.entries))
}

// consume gives the entries that were taken back.
func (r *ring[T]) consume() {
	if r.published != r.next {
		r.published = r.next
		atomicmem.Store32(r.consumer, r.next)
	}
}

// behind counts the entries that were shown and that the other side has not taken; ok is
// false if it says that it has taken others.
func (r *ring[T]) behind() (n uint32, ok bool) {
	n = r.published - atomic.LoadUint32(r.consumer)
	return n, n <= uint32(len(r.entries))
}
