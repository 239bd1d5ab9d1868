package datasheet_test

import (
	"encoding/binary"
	"encoding/hex"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	. "github.com/trapeze-nic/trapeze/internal/datasheet"
)

// crc32c computes CRC-32C bit by bit, as RFC 3720 defines it.
func crc32c(b []byte) uint32 {
	const polynomial = 0x82f63b78 // 0x1edc6f41 reflected
	crc := ^uint32(0)
	for _, v := range b {
		crc ^= uint32(v)
		for range 8 {
			low := crc & 1
			crc >>= 1
			crc ^= polynomial * low
		}
	}
	return ^crc
}

// TestReferenceCRC checks the reference with the vectors of RFC 3720, B.4,
// which prints the bytes as they stand on the wire.
func TestReferenceCRC(t *testing.T) {
	var zeros, ones, up, down [32]byte
	for i := range 32 {
		ones[i], up[i], down[i] = 0xff, byte(i), byte(31-i)
	}
	// An iSCSI read command PDU.
	read := must.Get(hex.DecodeString("01c00000" + "00000000" + "00000000" + "00000000" +
		"14000000" + "00000400" + "00000014" + "00000018" +
		"28000000" + "00000000" + "02000000" + "00000000"))(t)
	for _, tt := range []struct {
		name string
		data []byte
		want string
	}{
		{"32 zero bytes", zeros[:], "aa36918a"},
		{"32 bytes of ones", ones[:], "43aba862"},
		{"incrementing", up[:], "4e79dd46"},
		{"decrementing", down[:], "5cdb3f11"},
		{"read command", read, "563a96d9"},
	} {
		var got [4]byte
		binary.LittleEndian.PutUint32(got[:], crc32c(tt.data))
		should.Be(t, hex.EncodeToString(got[:]), tt.want, "%s: got %x", tt.name, got)
	}
}

func TestFrameChecksumIsCRC32C(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		frame := alignedBytes(HeaderSize+rapid.IntRange(0, 300).Draw(t, "payload"), 0)
		copy(frame, rapid.SliceOfN(rapid.Byte(), len(frame), len(frame)).Draw(t, "frame"))
		got := FrameChecksumOf(frame)

		HeaderAt(frame).Checksum = 0
		must.Be(t, got, crc32c(frame), "checksum")
		// The field itself does not count, every other bit does.
		HeaderAt(frame).Checksum = got
		must.Be(t, FrameChecksumOf(frame), got, "checksum changed to once it was filled")
		bit := rapid.IntRange(0, 8*len(frame)-1).Draw(t, "bit")
		if bit/32 == (HeaderSize-4)/4 {
			return
		}
		frame[bit/8] ^= 1 << (bit % 8)
		if FrameChecksumOf(frame) == got {
			t.Fatalf("flipping bit %d goes unnoticed", bit)
		}
	})
}
