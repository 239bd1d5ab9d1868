package vfio

import (
	"fmt"
	"sync"
	"sync/atomic"
)

// Mapping is a mapped part of a region. Methods may be called from several
// goroutines.
type Mapping struct {
	b      []byte
	mu     sync.Mutex
	unmap  func() error
	closed atomic.Bool
}

// NewMapping is for back ends: it makes a Mapping of b, which is not Go heap
// memory. Close calls unmap, if there is one, once.
func NewMapping(b []byte, unmap func() error) *Mapping {
	return &Mapping{b: b, unmap: unmap}
}

// Bytes returns the mapped memory; nil after Close. It is for device memory
// that behaves as memory does, such as SRAM. Registers are accessed through
// Register32 and package mmio.
func (m *Mapping) Bytes() []byte {
	if m.closed.Load() {
		return nil
	}
	return m.b
}

// Register32 returns a pointer to the 32-bit register at offset, for the
// accessors of package mmio. It must not be used after Close. It fails with
// ErrOutOfRange, ErrMisaligned or ErrClosed.
func (m *Mapping) Register32(offset uint64) (*uint32, error) {
	fail := func(err error) (*uint32, error) {
		return nil, &Error{Op: fmt.Sprintf("find register at %#x", offset), Err: err}
	}
	switch {
	case m.closed.Load():
		return fail(ErrClosed)
	case offset%4 != 0:
		return fail(ErrMisaligned)
	case len(m.b) < 4 || offset > uint64(len(m.b)-4):
		return fail(ErrOutOfRange)
	}
	p := pointer32(m.b, offset)
	if p == nil {
		return fail(ErrMisaligned)
	}
	return p, nil
}

// Close unmaps the memory. Closing again does nothing.
func (m *Mapping) Close() error {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed.Swap(true) || m.unmap == nil {
		return nil
	}
	if err := m.unmap(); err != nil {
		return &Error{Op: "unmap region", Err: err}
	}
	return nil
}
