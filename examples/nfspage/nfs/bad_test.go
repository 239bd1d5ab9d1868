package nfs_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/examples/nfspage/nfs"
)

// goodReply and goodRequest are packets that tests spoil.
func goodReply(t testing.TB) []byte {
	return packetOf(t, readReply{XID: 9, MessageType: 1, Verifier: auth{1, []byte("abcde")}, Attributes: &attributes{Type: 1}, Count: 5, Data: []byte("data!")})
}

func goodRequest(t testing.TB) []byte {
	return packetOf(t, writeRequest{RPCVersion: 2, Program: 100003, Version: 3, Procedure: 7, Credentials: auth{1, []byte("me")},
		File: []byte("handle"), Count: 5, Data: []byte("data!")})
}

// TestBadPackets: a packet with one thing wrong is refused with the field's name; where a
// word stands in a message is counted in bytes behind the headers.
func TestBadPackets(t *testing.T) {
	const headers = 28
	for _, c := range []struct {
		name  string
		kind  nfs.Kind
		at    int
		value uint32
		want  error
		field string
	}{
		{"a call for a reply", nfs.ReadReply, 4, 0, nfs.ErrOther, "message type"},
		{"denied", nfs.ReadReply, 8, 1, nfs.ErrOther, "reply status"},
		{"long verifier", nfs.ReadReply, 16, 401, nfs.ErrLength, "verifier length"},
		{"verifier beyond the packet", nfs.ReadReply, 16, 399, nfs.ErrShort, "verifier length"},
		{"no such procedure", nfs.ReadReply, 28, 3, nfs.ErrOther, "accept status"},
		{"stale handle", nfs.ReadReply, 32, 70, nfs.ErrOther, "NFS status"},
		{"neither yes nor no", nfs.ReadReply, 36, 2, nfs.ErrLength, "attributes follow"},
		{"count of other data", nfs.ReadReply, 124, 6, nfs.ErrLength, "data length"},
		{"length beyond the packet", nfs.ReadReply, 132, 0xffffffff, nfs.ErrLength, "data length"},
		{"a reply for a call", nfs.WriteRequest, 4, 1, nfs.ErrOther, "message type"},
		{"another RPC", nfs.WriteRequest, 8, 3, nfs.ErrOther, "RPC version"},
		{"another program", nfs.WriteRequest, 12, 100005, nfs.ErrOther, "program"},
		{"another version", nfs.WriteRequest, 16, 2, nfs.ErrOther, "program version"},
		{"another procedure", nfs.WriteRequest, 20, 6, nfs.ErrOther, "procedure"},
		{"long credentials", nfs.WriteRequest, 28, 0x80000000, nfs.ErrLength, "credentials length"},
		{"long handle", nfs.WriteRequest, 44, 65, nfs.ErrLength, "file handle length"},
	} {
		packet := goodReply(t)
		if c.kind == nfs.WriteRequest {
			packet = goodRequest(t)
		}
		binary.BigEndian.PutUint32(packet[headers+c.at:], c.value)
		var p nfs.Parts
		refusal(t, c.name, nfs.Reorder(c.kind, packet, &p), c.want, c.field)
	}
	var p nfs.Parts
	refusal(t, "no kind", nfs.Reorder(7, goodReply(t), &p), nfs.ErrOther, "kind")
	if nfs.Kind(7).FixedSize() != 0 || nfs.Kind(7).String() != "unknown kind" {
		t.Error("there are seven kinds")
	}
	for _, whole := range [][]byte{goodReply(t), goodRequest(t)} {
		kind := nfs.ReadReply
		if bytes.Equal(whole, goodRequest(t)) {
			kind = nfs.WriteRequest
		}
		// Cut off anywhere, with headers that say so.
		for n := range len(whole) - headers {
			if err := nfs.Reorder(kind, headed(whole[headers:headers+n]), &p); !errors.Is(err, nfs.ErrShort) {
				t.Errorf("%v of %d bytes: %v", kind, n, err)
			}
		}
		refusal(t, "a byte too many", nfs.Reorder(kind, headed(append(whole[headers:], 0)), &p), nfs.ErrLength, "bytes behind the data")
	}
}

// TestBadHeaders: what is no whole packet of UDP over IPv4 without options is refused.
func TestBadHeaders(t *testing.T) {
	for _, c := range []struct {
		at    int
		value byte
		want  error
		field string
	}{
		{0, 0x65, nfs.ErrOther, "IP version and header length"}, {0, 0x46, nfs.ErrOther, "IP version and header length"},
		{3, 0, nfs.ErrLength, "IP total length"}, {6, 0x20, nfs.ErrOther, "IP fragment"}, {7, 1, nfs.ErrOther, "IP fragment"},
		{9, 6, nfs.ErrOther, "IP protocol"}, {25, 0, nfs.ErrLength, "UDP length"},
	} {
		packet := goodReply(t)
		packet[c.at] = c.value
		var p nfs.Parts
		refusal(t, c.field, nfs.Reorder(nfs.ReadReply, packet, &p), c.want, c.field)
	}
	for n := range 28 {
		var p nfs.Parts
		refusal(t, "headers cut off", nfs.Reorder(nfs.ReadReply, goodReply(t)[:n], &p), nfs.ErrShort, "headers")
	}
}

// TestBadParts: parts that no packet has are refused, and what stood before stays as it was.
func TestBadParts(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(p *nfs.Parts)
		want  error
		field string
	}{
		{"fixed part cut off", func(p *nfs.Parts) { p.Fixed = p.Fixed[:95] }, nfs.ErrLength, "fixed part"},
		{"end that is not zero", func(p *nfs.Parts) { p.Fixed[95] = 1 }, nfs.ErrLength, "end of the fixed part"},
		{"data missing", func(p *nfs.Parts) { p.Data = p.Data[:4] }, nfs.ErrShort, "data length"},
		{"data too long", func(p *nfs.Parts) { p.Data = append(p.Data[:5:5], 0) }, nfs.ErrLength, "bytes that belong to nothing"},
		{"attributes missing", func(p *nfs.Parts) { p.Attributes = nil }, nfs.ErrShort, "credentials length"},
		{"attributes too long", func(p *nfs.Parts) { p.Attributes = append(p.Attributes, 0) }, nfs.ErrLength, "bytes that belong to nothing"},
		{"another packet's length", func(p *nfs.Parts) { p.Fixed[3]++ }, nfs.ErrLength, "IP total length"},
		{"a fragment", func(p *nfs.Parts) { p.Fixed[7] = 1 }, nfs.ErrOther, "IP fragment"},
	} {
		var p nfs.Parts
		if err := nfs.Reorder(nfs.WriteRequest, goodRequest(t), &p); err != nil {
			t.Fatal(err)
		}
		c.spoil(&p)
		b, err := nfs.Restore(nfs.WriteRequest, &p, []byte("before"))
		refusal(t, c.name, err, c.want, c.field)
		if string(b) != "before" {
			t.Errorf("%s: %q", c.name, b)
		}
	}
	_, err := nfs.Restore(7, &nfs.Parts{}, nil)
	refusal(t, "no kind", err, nfs.ErrOther, "kind")
	_, _, err = nfs.Lengths(7, nil)
	refusal(t, "no kind", err, nfs.ErrOther, "kind")
	_, _, err = nfs.Lengths(nfs.ReadReply, make([]byte, 71))
	refusal(t, "short", err, nfs.ErrLength, "fixed part")
	_, _, err = nfs.Lengths(nfs.ReadReply, make([]byte, 72))
	refusal(t, "zeros", err, nfs.ErrOther, "message type")
}

// FuzzReorder: whatever a packet says, it is refused or comes back byte for byte.
func FuzzReorder(f *testing.F) {
	f.Add(goodReply(f), false)
	f.Add(goodRequest(f), true)
	f.Fuzz(func(t *testing.T, message []byte, request bool) {
		kind := nfs.ReadReply
		if request {
			kind = nfs.WriteRequest
		}
		// Headers that fit let the fuzzer into the message.
		packets := [][]byte{message}
		if len(message) < 60000 {
			packets = append(packets, headed(message))
		}
		for _, packet := range packets {
			var p nfs.Parts
			err := nfs.Reorder(kind, packet, &p)
			var e *nfs.Error
			if err != nil {
				if !errors.As(err, &e) {
					t.Fatalf("%T %v", err, err)
				}
				continue
			}
			if back, err := nfs.Restore(kind, &p, nil); err != nil || !bytes.Equal(back, packet) {
				t.Fatalf("another packet comes back: %v", err)
			}
		}
	})
}

// FuzzRestore: whatever the parts are, they are refused or those of the packet that they
// make.
func FuzzRestore(f *testing.F) {
	var p nfs.Parts
	if err := nfs.Reorder(nfs.ReadReply, goodReply(f), &p); err != nil {
		f.Fatal(err)
	}
	f.Add(p.Fixed, p.Data, p.Attributes)
	f.Fuzz(func(t *testing.T, fixed, data, attributes []byte) {
		in := nfs.Parts{Fixed: fixed, Data: data, Attributes: attributes}
		packet, err := nfs.Restore(nfs.ReadReply, &in, nil)
		var e *nfs.Error
		if err != nil {
			if !errors.As(err, &e) {
				t.Fatalf("%T %v", err, err)
			}
			return
		}
		var out nfs.Parts
		if err := nfs.Reorder(nfs.ReadReply, packet, &out); err != nil || !bytes.Equal(out.Fixed, fixed) || !bytes.Equal(out.Data, data) || !bytes.Equal(out.Attributes, attributes) {
			t.Fatalf("other parts: %v", err)
		}
	})
}
