package datasheet_test

import (
	"hash/crc32"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	. "github.com/trapeze-nic/trapeze/internal/datasheet"
)

func TestFrameChecksumIsCRC32C(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		frame := alignedBytes(HeaderSize+rapid.IntRange(0, 300).Draw(t, "payload"), 0)
		copy(frame, rapid.SliceOfN(rapid.Byte(), len(frame), len(frame)).Draw(t, "frame"))
		got := FrameChecksumOf(frame)

		HeaderAt(frame).Checksum = 0
		must.Be(t, got, crc32.Checksum(frame, crc32.MakeTable(crc32.Castagnoli)), "checksum")
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
