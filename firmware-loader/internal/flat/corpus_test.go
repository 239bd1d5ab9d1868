package flat_test

import (
	"encoding/binary"
	"errors"
	"math/bits"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/seed"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// TestBadInput: what a NIC may find in a slot is refused with the name of the field, by
// class of what is wrong; and is a seed of FuzzDecode.
func TestBadInput(t *testing.T) {
	le := binary.LittleEndian
	hooks := func(b []byte) []byte { return b[le.Uint32(b[0x18:]):] }
	maps := func(b []byte) []byte { return b[le.Uint32(b[0x1c:]):] }
	spoiled := func(change func(b []byte)) []byte {
		b := encode(t, sample())
		change(b)
		return b
	}
	for _, c := range []struct {
		name   string
		image  []byte
		reason error
		field  string
	}{
		{"truncated", encode(t, sample())[:0x100], flat.ErrMalformed, "header size"},
		{"truncated-header", encode(t, sample())[:0xa0], flat.ErrMalformed, "header"},
		{"corrupted", spoiled(func(b []byte) { copy(b[len(b)-16:], "\xff\xff\xff\xff") }), flat.ErrDigest, "header digest"},
		{"bit-flipped", spoiled(func(b []byte) { b[0x20] ^= 0x20 }), flat.ErrDigest, "header digest"},
		{"bit-flipped-magic", spoiled(func(b []byte) { b[0] ^= 1 }), flat.ErrMalformed, "header magic"},
		{"wrong-endian", spoiled(func(b []byte) {
			for at := range 12 {
				le.PutUint32(b[4*at:], bits.ReverseBytes32(le.Uint32(b[4*at:])))
			}
		}), flat.ErrMalformed, "header magic"},
		{"wrong-endian-abi", resealed(spoiled(func(b []byte) { le.PutUint32(b[4:], bits.ReverseBytes32(le.Uint32(b[4:]))) })), flat.ErrABI, "header abi"},
		{"other-abi", resealed(spoiled(func(b []byte) { le.PutUint32(b[4:], 2<<16) })), flat.ErrABI, "header abi"},
		{"huge-size", spoiled(func(b []byte) { le.PutUint32(b[8:], 0xfffffff8) }), flat.ErrMalformed, "header size"},
		{"many-maps", resealed(spoiled(func(b []byte) { le.PutUint16(b[0x16:], 0xffff) })), flat.ErrMalformed, "header map_count"},
		{"programs-overlap", resealed(spoiled(func(b []byte) { copy(hooks(b)[64:68], hooks(b)[:4]) })), flat.ErrMalformed, "program filter/rx"},
		{"program-in-header", resealed(spoiled(func(b []byte) { le.PutUint32(hooks(b), 8) })), flat.ErrMalformed, "program pulse/tx"},
		{"contents-out-of-range", resealed(spoiled(func(b []byte) { le.PutUint32(maps(b)[52:], 0xfffffff8) })), flat.ErrMalformed, "map 0 contents"},
		{"storage-wraps", resealed(spoiled(func(b []byte) { le.PutUint32(maps(b)[60:], 0xffffffc0) })), flat.ErrMalformed, "map 0 storage"},
		{"huge-map", resealed(spoiled(func(b []byte) { le.PutUint32(maps(b)[128+44:], 1<<31) })), flat.ErrMalformed, "map 2 entries"},
		{"other-device", resealed(spoiled(func(b []byte) { le.PutUint32(b[0x10:], 0x15b31017) })), flat.ErrDevice, "header device"},
		{"too-large", resealed(spoiled(func(b []byte) { le.PutUint32(b[0xc:], 1<<31) })), flat.ErrSRAM, "header sram"},
	} {
		t.Run(c.name, func(t *testing.T) {
			seed.Check(t, "FuzzDecode", c.name, c.image)
			img, err := flat.Decode(c.image)
			if err == nil {
				err = img.Suits(abi.Version, 0x12347250, 256<<10)
			}
			var e *flat.Error
			should.Hold(t, errors.As(err, &e) && errors.Is(err, c.reason) && e.Field == c.field,
				"%v; want %v of %s", err, c.reason, c.field)
		})
	}
	seed.Check(t, "FuzzDecode", "sample", encode(t, sample()))
}
