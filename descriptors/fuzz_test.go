package descriptors_test

import (
	"bytes"
	"errors"
	"testing"

	. "github.com/trapeze-nic/trapeze/descriptors"
	. "github.com/trapeze-nic/trapeze/internal/datasheet"
)

// FuzzDescriptor builds a descriptor over arbitrary memory and has a device of
// ill will write arbitrary bytes over it: the view must never reach outside.
func FuzzDescriptor(f *testing.F) {
	f.Add(make([]byte, 64), uint8(0), uint64(0x1000), uint16(2), uint32(8))
	f.Add(bytes.Repeat([]byte{0xff}, 96), uint8(0), uint64(64), uint16(4), uint32(0xffffffff))
	f.Add(make([]byte, 31), uint8(0), uint64(0), uint16(0), uint32(0))
	f.Add(make([]byte, 33), uint8(8), uint64(7), uint16(1), uint32(1))

	f.Fuzz(func(t *testing.T, data []byte, skew uint8, address uint64, segments uint16, length uint32) {
		mem := alignedBytes(len(data), int(skew%64))
		d, err := NewDescriptor(mem, address, 1)
		if err != nil {
			if !errors.Is(err, ErrTooSmall) && !errors.Is(err, ErrMisaligned) {
				t.Fatalf("unexpected error %v", err)
			}
			return
		}
		room := min((len(mem)-ControlSegmentSize)/DataSegmentSize, MaxSegments)
		for range segments % 300 {
			if err := d.AddData(address, 1, length); err != nil {
				break
			}
		}
		if len(d.Segments()) > room {
			t.Fatalf("%d segments in a descriptor with room for %d", len(d.Segments()), room)
		}
		copy(mem, data)
		if d.Status().String() == "" {
			t.Fatal("status has no text")
		}
		d.Rearm()
		d.Prepare()
		if d.Status() != 0 || d.Length() != 0 || len(d.Segments()) != 0 {
			t.Fatalf("prepared: %v, %d bytes, %d segments", d.Status(), d.Length(), len(d.Segments()))
		}
	})
}
