// Package virtqueuetest is the device's side of virtqueues, for tests: written from the
// specification and apart from the driver's side, so that one checks the other.
//
// It reads and writes bytes at offsets, as a device does, and trusts the driver no more
// than the driver trusts it.
package virtqueuetest

import (
	"errors"
	"fmt"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/mmio"
)

// ErrDriver is wrapped by errors about what the driver has written.
var ErrDriver = errors.New("the driver broke the rules")

// Memory finds n bytes at an address of the bus. It fails outside what the device may reach.
type Memory func(address uint64, n uint32) ([]byte, error)

// Areas are the three areas of a queue, as the device reaches them.
type Areas struct{ Descriptor, Driver, Device []byte }

// Part is a piece of a buffer.
type Part struct {
	Data     []byte
	Writable bool
}

// Buffer is one that the driver has made available.
type Buffer struct {
	Number uint16
	Parts  []Part
	count  int // descriptors
}

// Queue is the device's side of a queue. It is for one goroutine at a time.
type Queue interface {
	// Next returns the next available buffer; false: there is none.
	Next() (Buffer, bool, error)
	// Use gives a buffer back, of which length bytes have been written. The driver sees it
	// after Flush.
	Use(b Buffer, length uint32)
	// Flush shows the driver what was used. It reports whether it wants an interrupt.
	Flush() (interrupt bool)
	// Notifications asks the driver to notify, or not to. Asking reports whether buffers
	// have become available before.
	Notifications(wanted bool) (pending bool)
}

// New returns the device's side of a queue of size descriptors.
func New(packed bool, size int, eventIndex bool, a Areas, m Memory) Queue {
	if packed {
		return &packedQueue{areas: a, memory: m, size: uint32(size), eventIndex: eventIndex, nextWrap: true, usedWrap: true}
	}
	return &splitQueue{areas: a, memory: m, size: uint32(size), eventIndex: eventIndex}
}

// fence is a full barrier.
func fence() {
	var word atomic.Uint32
	word.Add(1)
	mmio.FromDevice()
}

// descriptor is one as it was read.
type descriptor struct {
	address uint64
	length  uint32
	a, b    uint16 // flags and next if split, number and flags if packed
}

func readDescriptor(area []byte, i uint32) descriptor {
	at := 16 * i
	return descriptor{mmio.Read64(pointer[uint64](area, at)), mmio.Read32(pointer[uint32](area, at+8)),
		mmio.Read16(pointer[uint16](area, at+12)), mmio.Read16(pointer[uint16](area, at+14))}
}

// chain collects the parts of a buffer.
type chain struct {
	memory Memory
	parts  []Part
	wrote  bool
}

func (c *chain) add(d descriptor, writable bool) error {
	if c.wrote && !writable {
		return fmt.Errorf("%w: a readable part follows a writable one", ErrDriver)
	}
	c.wrote = writable
	data, err := c.memory(d.address, d.length)
	if err != nil {
		return fmt.Errorf("%w: %w", ErrDriver, err)
	}
	c.parts = append(c.parts, Part{data, writable})
	return nil
}
