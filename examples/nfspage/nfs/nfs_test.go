package nfs_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	xdr "github.com/stellar/go-xdr/xdr3"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/examples/nfspage/nfs"
)

// The messages of RFC 5531 and RFC 1813 as a public XDR library encodes them. A pointer is
// what XDR calls optional.
type (
	auth struct {
		Flavor uint32
		Body   []byte
	}
	readReply struct {
		XID, MessageType, ReplyStatus uint32
		Verifier                      auth
		AcceptStatus, Status          uint32
		Attributes                    *attributes
		Count                         uint32
		EOF                           bool
		Data                          []byte
	}
	writeRequest struct {
		XID, MessageType, RPCVersion, Program, Version, Procedure uint32
		Credentials, Verifier                                     auth
		File                                                      []byte
		Offset                                                    uint64
		Count, Stable                                             uint32
		Data                                                      []byte
	}
	attributes struct {
		Type, Mode, Links, UID, GID uint32
		Size, Used                  uint64
		Device                      [2]uint32
		FileSystem, FileID          uint64
		Access, Modify, Change      [2]uint32
	}
)

// packetOf encodes a message and puts headers before it.
func packetOf(t testing.TB, message any) []byte {
	t.Helper()
	var b bytes.Buffer
	if _, err := xdr.Marshal(&b, message); err != nil {
		t.Fatal(err)
	}
	return headed(b.Bytes())
}

// headed puts headers of IP and UDP before a message.
func headed(message []byte) []byte {
	be := binary.BigEndian
	p := append([]byte{0x45, 0}, be.AppendUint16(nil, uint16(28+len(message)))...)
	p = append(p, 0x12, 0x34, 0x40, 0, 64, 17, 0xab, 0xcd, 10, 0, 0, 1, 10, 0, 0, 2)
	p = append(p, 3, 0xff, 8, 1)
	p = be.AppendUint16(p, uint16(8+len(message)))
	return append(append(p, 0x55, 0xaa), message...)
}

func someBytes(r *rapid.T, name string, most int) []byte {
	return rapid.SliceOfN(rapid.Byte(), 0, most).Draw(r, name)
}

func drawReply(r *rapid.T, data []byte) readReply {
	m := readReply{XID: rapid.Uint32().Draw(r, "xid"), MessageType: 1, Verifier: auth{rapid.Uint32().Draw(r, "flavor"), someBytes(r, "verifier", 400)},
		EOF: rapid.Bool().Draw(r, "eof"), Data: data}
	m.Count = uint32(len(m.Data))
	if rapid.Bool().Draw(r, "attributes") {
		m.Attributes = &attributes{Type: 1, Mode: 0o644, Size: rapid.Uint64().Draw(r, "size"), FileID: 77, Change: [2]uint32{5, 6}}
	}
	return m
}

func drawRequest(r *rapid.T, data []byte) writeRequest {
	m := writeRequest{XID: rapid.Uint32().Draw(r, "xid"), RPCVersion: 2, Program: 100003, Version: 3, Procedure: 7,
		Credentials: auth{1, someBytes(r, "credentials", 400)}, Verifier: auth{0, someBytes(r, "verifier", 400)}, File: someBytes(r, "file", 64),
		Offset: rapid.Uint64().Draw(r, "offset"), Stable: 2, Data: data}
	m.Count = uint32(len(m.Data))
	return m
}

// there and back: the parts, and that the packet comes out as it went in.
func reordered(t *rapid.T, k nfs.Kind, packet []byte) nfs.Parts {
	t.Helper()
	var p nfs.Parts
	if err := nfs.Reorder(k, packet, &p); err != nil {
		t.Fatal(err)
	}
	if len(p.Fixed) != k.FixedSize() || k.FixedSize()%8 != 0 {
		t.Fatalf("%d fixed bytes, FixedSize says %d", len(p.Fixed), k.FixedSize())
	}
	data, varying, err := nfs.Lengths(k, p.Fixed)
	if err != nil || data != len(p.Data) || varying != len(p.Attributes) {
		t.Fatalf("Lengths says %d and %d, %v; they are %d and %d", data, varying, err, len(p.Data), len(p.Attributes))
	}
	back, err := nfs.Restore(k, &p, []byte("before"))
	if err != nil || !bytes.Equal(back, append([]byte("before"), packet...)) {
		t.Fatalf("%d bytes come back of %d, %v", len(back)-6, len(packet), err)
	}
	return p
}

// TestReadReply: the data and the attributes are those that the library encoded, and the
// library decodes what comes back.
func TestReadReply(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		m := drawReply(r, someBytes(r, "data", 5000))
		p := reordered(r, nfs.ReadReply, packetOf(t, m))
		if !bytes.Equal(p.Data, m.Data) {
			r.Fatal("other data")
		}
		varying := bytes.TrimPrefix(p.Attributes, m.Verifier.Body)
		if m.Attributes != nil {
			var got attributes
			pad := -len(m.Verifier.Body) & 3
			if _, err := xdr.Unmarshal(bytes.NewReader(varying[pad:]), &got); err != nil || got != *m.Attributes {
				r.Fatalf("attributes %+v, want %+v, %v", got, *m.Attributes, err)
			}
		}
		back, err := nfs.Restore(nfs.ReadReply, &p, nil)
		if err != nil {
			r.Fatal(err)
		}
		var got readReply
		if _, err := xdr.Unmarshal(bytes.NewReader(back[28:]), &got); err != nil || !cmp.Equal(got, m) {
			r.Fatalf("%v\n%s", err, cmp.Diff(m, got))
		}
	})
}

func TestWriteRequest(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		m := drawRequest(r, someBytes(r, "data", 5000))
		p := reordered(r, nfs.WriteRequest, packetOf(t, m))
		if !bytes.Equal(p.Data, m.Data) || !bytes.Contains(p.Attributes, m.File) || !bytes.HasPrefix(p.Attributes, m.Credentials.Body) {
			r.Fatal("other data, credentials or file handle")
		}
	})
}

// TestPage: whatever varies, the fixed part is as long, so that the page behind it lies
// where it should; and Reorder leaves it where it is.
func TestPage(t *testing.T) {
	page := bytes.Repeat([]byte("page"), 1024)
	for _, verifier := range []int{0, 1, 8, 400} {
		packet := packetOf(t, readReply{MessageType: 1, Verifier: auth{1, make([]byte, verifier)}, Attributes: &attributes{}, Count: 4096, Data: page})
		var p nfs.Parts
		if err := nfs.Reorder(nfs.ReadReply, packet, &p); err != nil || len(p.Fixed) != 72 || len(p.Data) != 4096 {
			t.Fatalf("%d and %d bytes, %v", len(p.Fixed), len(p.Data), err)
		}
		packet[len(packet)-1] ^= 0xff
		if p.Data[4095] != packet[len(packet)-1] {
			t.Error("the page was copied")
		}
	}
	if n := nfs.WriteRequest.FixedSize(); n != 96 {
		t.Errorf("%d bytes before the page of a request", n)
	}
}

// TestNothingIsAllocated once the parts have been used.
func TestNothingIsAllocated(t *testing.T) {
	packet := packetOf(t, readReply{MessageType: 1, Attributes: &attributes{}, Count: 4096, Data: make([]byte, 4096)})
	var p nfs.Parts
	b := make([]byte, 0, len(packet))
	if n := testing.AllocsPerRun(10, func() {
		if err := nfs.Reorder(nfs.ReadReply, packet, &p); err != nil {
			t.Fatal(err)
		}
		if _, err := nfs.Restore(nfs.ReadReply, &p, b); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// refusal checks that an error is typed and names the field.
func refusal(t *testing.T, what string, err, want error, field string) {
	t.Helper()
	var e *nfs.Error
	if !errors.Is(err, want) || !errors.As(err, &e) || e.Field != field {
		t.Errorf("%s: %v", what, err)
	}
}
