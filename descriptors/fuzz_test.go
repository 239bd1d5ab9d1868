package descriptors_test

import (
	"bytes"
	"errors"
	"testing"

	. "github.com/trapeze-nic/trapeze/descriptors"
)

// FuzzHeader lays a header and a connection body over arbitrary bytes: the
// overlays must stay inside them and leave them as they are, and the field
// accessors must take any value.
func FuzzHeader(f *testing.F) {
	request := alignedBytes(HeaderSize+ConnectBodySize, 0)
	h := HeaderAt(request)
	h.Destination, h.EtherType, h.Version, h.Type = Broadcast, EtherType, WireVersion, FrameConnectRequest
	h.Length, h.Flags = ConnectBodySize, FrameChecksum
	h.Checksum = FrameChecksumOf(request)
	f.Add(request, uint8(0))
	f.Add(request[:HeaderSize-1], uint8(0))
	f.Add(request[:HeaderSize+ConnectBodySize-1], uint8(4))
	f.Add(request, uint8(3))

	f.Fuzz(func(t *testing.T, data []byte, skew uint8) {
		frame := alignedBytes(len(data), int(skew%64))
		copy(frame, data)
		h := HeaderAt(frame)
		if fits := len(frame) >= HeaderSize && skew%4 == 0; (h != nil) != fits {
			t.Fatalf("%d bytes, skew %d: header laid: %v", len(frame), skew, h != nil)
		}
		if h == nil {
			return
		}
		if at := addressOfValue(h); at != addressOf(frame) {
			t.Fatalf("header at %#x, frame at %#x", at, addressOf(frame))
		}
		if h.Type.String() == "" || h.Destination.String() == "" {
			t.Fatal("no name")
		}
		body := ConnectBodyAt(frame[HeaderSize:])
		if fits := len(frame) >= HeaderSize+ConnectBodySize; (body != nil) != fits {
			t.Fatalf("%d bytes: body laid: %v", len(frame), body != nil)
		}
		if body != nil && (body.Kind.String() == "" || body.Reliability.String() == "") {
			t.Fatal("no name")
		}
		FrameChecksumOf(frame)
		if !bytes.Equal(frame, data) {
			t.Fatal("looking at a frame changed it")
		}
	})
}

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
