package datasheet_test

import (
	"bytes"
	"testing"

	. "github.com/trapeze-nic/trapeze/internal/datasheet"
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
