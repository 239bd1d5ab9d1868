package protocol_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/protocol"
)

// layouts are the messages with their bytes as memif.h has them, written by
// hand: the type, then the fields without padding.
var layouts = []struct {
	body  protocol.Body
	bytes []byte // what follows is zero
}{
	{protocol.Ack{}, []byte{1, 0}},
	{protocol.Hello{Name: "VPP", MinVersion: 0x0201, MaxVersion: 0x0403, MaxRegion: 0x0605, MaxS2C: 0x0807, MaxC2S: 0x0a09, MaxLog2: 14},
		append(append([]byte{2, 0}, padded("VPP", 32)...), 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 14)},
	{protocol.Init{Version: 0x0200, ID: 0x04030201, Mode: 2, Secret: "key", Name: "DPDK 22.11.11"},
		append(append([]byte{3, 0, 0, 2, 1, 2, 3, 4, 2}, padded("key", 24)...), padded("DPDK 22.11.11", 32)...)},
	{protocol.AddRegion{Index: 0x0201, Size: 0x0807060504030201}, []byte{4, 0, 1, 2, 1, 2, 3, 4, 5, 6, 7, 8}},
	{protocol.AddRing{Flags: 1, Index: 0x0302, Region: 0x0504, Offset: 0x09080706, Log2: 10, PrivateHeader: 0x0c0b},
		[]byte{5, 0, 1, 0, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12}},
	{protocol.Connect{Interface: "memif0/0"}, append([]byte{6, 0}, padded("memif0/0", 32)...)},
	{protocol.Connected{Interface: "memif1/0"}, append([]byte{7, 0}, padded("memif1/0", 32)...)},
	{protocol.Disconnect{Code: 0x04030201, Reason: "Device closed"},
		append([]byte{8, 0, 1, 2, 3, 4}, padded("Device closed", 96)...)},
}

func padded(s string, n int) []byte { return append([]byte(s), make([]byte, n-len(s))...) }

func TestLayouts(t *testing.T) {
	for _, tt := range layouts {
		m := protocol.Encode(tt.body)
		t.Run(m.Type().String(), func(t *testing.T) {
			should.Same(t, m[:], padded(string(tt.bytes), protocol.MessageSize), "encoded")
			got := must.Get(protocol.Decode(m))(t)
			should.Be(t, cmp.Diff(tt.body, got), "")
		})
	}
}

func TestStringsAreCut(t *testing.T) {
	long := strings.Repeat("x", 200)
	for _, tt := range []struct {
		body protocol.Body
		text func(protocol.Body) string
		n    int
	}{
		{protocol.Hello{Name: long}, func(b protocol.Body) string { return b.(protocol.Hello).Name }, protocol.NameSize - 1},
		{protocol.Init{Secret: long}, func(b protocol.Body) string { return b.(protocol.Init).Secret }, protocol.SecretSize - 1},
		{protocol.Init{Name: long}, func(b protocol.Body) string { return b.(protocol.Init).Name }, protocol.NameSize - 1},
		{protocol.Connect{Interface: long}, func(b protocol.Body) string { return b.(protocol.Connect).Interface }, protocol.NameSize - 1},
		{protocol.Disconnect{Reason: long}, func(b protocol.Body) string { return b.(protocol.Disconnect).Reason }, protocol.ReasonSize - 1},
	} {
		got, err := protocol.Decode(protocol.Encode(tt.body))
		should.Hold(t, err == nil && tt.text(got) == long[:tt.n], "%T: %d bytes are left, want %d (%v)", tt.body, len(tt.text(got)), tt.n, err)
	}
}

func TestUnknownTypes(t *testing.T) {
	for _, typ := range []uint16{0, 9, 0x0100, 0xffff} {
		m := protocol.Message{byte(typ), byte(typ >> 8)}
		body, err := protocol.Decode(&m)
		var bad *protocol.Error
		should.Hold(t, body == nil && errors.As(err, &bad) && bad.Field == "type" && bad.Value == uint64(typ), "type %d: %v, error %v", typ, body, err)
	}
}

// FuzzDecode: whatever comes is understood or refused, and what was understood
// is what is encoded again, but for bytes that mean nothing.
func FuzzDecode(f *testing.F) {
	for _, l := range layouts {
		f.Add(l.bytes)
	}
	f.Add([]byte{9, 0})
	f.Add(bytes.Repeat([]byte{0xff}, protocol.MessageSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		var m protocol.Message
		copy(m[:], b)
		body, err := protocol.Decode(&m)
		if err != nil {
			var bad *protocol.Error
			must.Hold(t, body == nil && errors.As(err, &bad) && strings.Contains(err.Error(), bad.Field), "%v, error %v", body, err)
			return
		}
		again := protocol.Encode(body)
		got := must.Get(protocol.Decode(again))(t)
		// A string that fills its field loses its last byte.
		if d := cmp.Diff(body, got); d != "" && !fills(&m) {
			t.Fatal(d)
		}
		must.Be(t, again.Type(), m.Type(), "type")
	})
}

// fills reports whether a string of a message has no zero.
func fills(m *protocol.Message) bool {
	for _, at := range map[protocol.Type][][2]int{
		protocol.TypeHello: {{2, 32}}, protocol.TypeInit: {{9, 24}, {33, 32}}, protocol.TypeConnect: {{2, 32}},
		protocol.TypeConnected: {{2, 32}}, protocol.TypeDisconnect: {{6, 96}},
	}[m.Type()] {
		if !bytes.Contains(m[at[0]:at[0]+at[1]], []byte{0}) {
			return true
		}
	}
	return false
}
