package vfio_test

import (
	"errors"
	"math"
	"net"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/mmio"
	"github.com/trapeze-nic/trapeze/vfio"
)

func TestMappingRegister32(t *testing.T) {
	m := must.Get(vfio.AllocMemory(4096, vfio.MemoryOptions{}))(t)
	defer m.Close()
	b := m.Bytes()
	whole, odd := vfio.NewMapping(b, nil), vfio.NewMapping(b[1:], nil)
	small, none := vfio.NewMapping(b[:3], nil), vfio.NewMapping(nil, nil)
	tests := []struct {
		name    string
		mapping *vfio.Mapping
		offset  uint64
		want    error
	}{
		{"first", whole, 0, nil},
		{"inside", whole, 0x40, nil},
		{"last", whole, 4092, nil},
		{"behind", whole, 4096, vfio.ErrOutOfRange},
		{"far behind", whole, math.MaxUint64 - 3, vfio.ErrOutOfRange},
		{"misaligned", whole, 2, vfio.ErrMisaligned},
		{"misaligned at the end", whole, 4093, vfio.ErrMisaligned},
		{"misaligned mapping", odd, 0, vfio.ErrMisaligned},
		{"misaligned mapping, sum aligned", odd, 3, vfio.ErrMisaligned},
		{"too small", small, 0, vfio.ErrOutOfRange},
		{"empty", none, 0, vfio.ErrOutOfRange},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p, err := tt.mapping.Register32(tt.offset)
			must.Hold(t, errors.Is(err, tt.want) && (p == nil) == (tt.want != nil), "got %v, %v, want error %v", p, err, tt.want)
			if p == nil {
				return
			}
			mmio.Write32(p, 0x04030201)
			at := b[tt.offset : tt.offset+4]
			should.Be(t, [4]byte(at), [4]byte{1, 2, 3, 4})
		})
	}
}

func TestMappingClose(t *testing.T) {
	calls := 0
	fails := errors.New("unmap fails")
	m := vfio.NewMapping(make([]byte, 8), func() error { calls++; return fails })
	should.Fail(t, m.Close(), fails, "Close")
	err := m.Close()
	should.Hold(t, err == nil && calls == 1, "Close again: %v, %d calls", err, calls)
	should.Hold(t, m.Bytes() == nil, "Bytes after Close")
	_, err = m.Register32(0)
	should.Hold(t, errors.Is(err, vfio.ErrClosed) && errors.Is(err, net.ErrClosed), "Register32 after Close: %v", err)
	should.OK(t, vfio.NewMapping(nil, nil).Close())
}
