package inetsum_test

import (
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/inetsum"
)

// TestOf has the example of RFC 1071, 3, and a header with its checksum.
func TestOf(t *testing.T) {
	for _, tt := range []struct {
		b    []byte
		want uint16
	}{
		{nil, 0},
		{[]byte{0x12}, 0x1200},
		{[]byte{0, 1, 0xf2, 3, 0xf4, 0xf5, 0xf6, 0xf7}, 0xddf2},
		{[]byte{0x45, 0, 0, 0x73, 0, 0, 0x40, 0, 0x40, 0x11, 0xb8, 0x61, 0xc0, 0xa8, 0, 1, 0xc0, 0xa8, 0, 0xc7}, 0xffff},
	} {
		should.Be(t, inetsum.Of(tt.b), tt.want, "% x sums", tt.b)
	}
}

// TestAdd: pieces of whole words add up, and so do bytes one by one.
func TestAdd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := rapid.SliceOfN(rapid.Byte(), 0, 100).Draw(t, "bytes")
		at := rapid.IntRange(0, len(b)/2).Draw(t, "words before") * 2
		want := uint32(0)
		for i, v := range b {
			want += uint32(v) << (8 * (1 - i%2))
			want = want&0xffff + want>>16
		}
		should.Be(t, inetsum.Fold(inetsum.Add(inetsum.Add(0, b[:at]), b[at:])), uint16(want), "% x sums to, want %#x", b, want)
	})
}
