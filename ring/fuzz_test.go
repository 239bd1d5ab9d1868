package ring

import "testing"

// FuzzHeader: whatever a message holds, what the parser takes is inside it, and is what
// put writes.
func FuzzHeader(f *testing.F) {
	f.Add([]byte{}, uint8(request))
	f.Add(make([]byte, MessageSize), uint8(reply))
	var b [MessageSize]byte
	header{kind: request, size: MaxRequest, tag: 0xabcdef01, payload: 4096}.put(b[:])
	f.Add(b[:], uint8(request))
	header{kind: reply, size: 1, tag: 7}.put(b[:])
	f.Add(b[:headerSize+1], uint8(reply))
	f.Add(b[:headerSize], uint8(reply))
	f.Fuzz(func(t *testing.T, b []byte, want uint8) {
		h, err := parseHeader(b, kind(want))
		if err != nil {
			return
		}
		if h.size < 0 || h.size > MaxRequest || headerSize+h.size > len(b) || h.kind != kind(want) {
			t.Fatalf("%+v of %d bytes", h, len(b))
		}
		var again [headerSize]byte
		h.put(again[:])
		if string(again[:]) != string(b[:headerSize]) {
			t.Errorf("% x is not % x", again, b[:headerSize])
		}
	})
}
