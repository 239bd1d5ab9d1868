package ring

import (
	"context"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

var noPayload datasheet.DataSegment

// Frame is a part of registered memory: Length bytes from Offset on. The zero value has no
// memory.
type Frame struct {
	Memory         *via.Memory
	Offset, Length int
}

// Bytes returns the memory, or nil if it is closed or the frame is outside of it.
func (f Frame) Bytes() []byte {
	if f.Memory == nil {
		return nil
	}
	b := f.Memory.Bytes()
	if f.Offset < 0 || f.Length < 0 || f.Offset > len(b) || f.Length > len(b)-f.Offset {
		return nil
	}
	return b[f.Offset:][:f.Length:f.Length]
}

// segment describes f for the NIC, which may write to it if written is set.
func (r *Ring) segment(op string, f Frame, written bool) (datasheet.DataSegment, error) {
	m := f.Memory
	if m == nil {
		if f.Length != 0 {
			return datasheet.DataSegment{}, r.refuse(op, via.ErrInvalidParameter, "", "%d bytes of no memory", f.Length)
		}
		return datasheet.DataSegment{}, nil
	}
	b := m.Bytes()
	if b == nil {
		return datasheet.DataSegment{}, r.refuse(op, via.ErrClosed, "", "the memory is closed")
	}
	if f.Offset < 0 || f.Length < 0 || f.Offset > len(b) || f.Length > len(b)-f.Offset {
		return datasheet.DataSegment{}, r.refuse(op, via.ErrInvalidParameter, "", "%d bytes at %d, of memory of %d", f.Length, f.Offset, len(b))
	}
	known := &r.sendable
	if written {
		known = &r.receivable
	}
	if !known.contains(m) {
		switch a := m.Attributes(); {
		case a.Ptag != r.options.Ptag:
			return datasheet.DataSegment{}, r.refuse(op, via.ErrInvalidPtag, "ring and memory must have the same protection tag", "")
		case written && a.ReadOnly:
			return datasheet.DataSegment{}, r.refuse(op, via.ErrInvalidParameter, "", "the memory is read-only")
		}
		known.add(m)
	}
	return datasheet.DataSegment{Address: m.Address() + uint64(f.Offset), Handle: m.Handle(), Length: uint32(f.Length)}, nil
}

// memories remembers a few memories that a ring may use, as asking takes a lock of the NIC. The
// NIC itself finds attributes that have changed since.
type memories struct {
	known [4]atomic.Pointer[via.Memory]
	next  atomic.Uint32
}

func (s *memories) contains(m *via.Memory) bool {
	for i := range s.known {
		if s.known[i].Load() == m {
			return true
		}
	}
	return false
}

func (s *memories) add(m *via.Memory) {
	s.known[s.next.Add(1)%uint32(len(s.known))].Store(m)
}

// SetPlace has payloads of messages with this tag land in f, until EndPlace. A longer payload
// is discarded whole. Of tags that are equal modulo 256, only the last one has a place.
func (r *Ring) SetPlace(tag uint32, f Frame) error {
	const op = "set place"
	payload, err := r.segment(op, f, true)
	if err != nil {
		return err
	}
	if payload.Handle == 0 {
		return r.refuse(op, via.ErrInvalidParameter, "", "no memory")
	}
	return r.d.SetPlace(tag, payload)
}

// EndPlace ends the place of a tag. When it returns, nothing more lands there, not even of a
// message that is on its way. It asks the NIC, and takes some microseconds.
func (r *Ring) EndPlace(ctx context.Context, tag uint32) error {
	return r.d.EndPlace(ctx, tag)
}
