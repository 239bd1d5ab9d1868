package datasheet_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
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
		must.Be(t, h != nil, len(frame) >= HeaderSize && skew%4 == 0, "%d bytes, skew %d: header laid: %v", len(frame), skew, h != nil)
		if h == nil {
			return
		}
		must.Be(t, addressOfValue(h), addressOf(frame), "header at, frame")
		if h.Type.String() == "" || h.Destination.String() == "" {
			t.Fatal("no name")
		}
		body := ConnectBodyAt(frame[HeaderSize:])
		must.Be(t, body != nil, len(frame) >= HeaderSize+ConnectBodySize, "%d bytes: body laid: %v", len(frame), body != nil)
		if body != nil && (body.Kind.String() == "" || body.Reliability.String() == "") {
			t.Fatal("no name")
		}
		FrameChecksumOf(frame)
		must.Same(t, frame, data, "looking at a frame changed it")
	})
}
