package flat_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// FuzzDecode: nothing makes Decode panic, and what it accepts encodes and decodes
// as itself. Inputs are looked at as they are and with the digest put right,
// without which hardly any would get far.
func FuzzDecode(f *testing.F) {
	f.Add(encode(f, sample()))
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = flat.Decode(b)
		if len(b) < 192 {
			return
		}
		img, err := flat.Decode(resealed(bytes.Clone(b)))
		if err != nil {
			return
		}
		again := must.Get(flat.Decode(encode(t, img)))(t)
		for h, c := range code(t, img) {
			// The hook table still has them in the input.
			if at := binary.LittleEndian.Uint32(b[binary.LittleEndian.Uint32(b[0x18:])+16*uint32(h):]); len(c) > 0 && !bytes.Equal(c, b[at:int(at)+len(c)]) {
				t.Errorf("program %d is % x, and % x encoded", h, b[at:int(at)+len(c)], c)
			}
		}
		should.Hold(t, cmp.Equal(code(t, img), code(t, again)) && cmp.Equal(img.Maps, again.Maps),
			"encoded and decoded, it is another image")
	})
}

// TestAnyImage encodes and decodes images of all shapes.
func TestAnyImage(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := rapid.StringMatching(`[a-zA-Z0-9._+-]{1,16}`)
		img := &flat.Image{ABI: abi.Version, Device: rapid.Uint32().Draw(t, "device"), Name: text.Draw(t, "name"), Version: text.Draw(t, "version")}
		for h := range abi.Hooks {
			// The last is never empty, so that there is a program.
			for range rapid.IntRange(int(h)/int(abi.Hooks-1), 20).Draw(t, "instructions") {
				img.Programs[h] = append(img.Programs[h], asm.Mov.Imm(asm.R1, rapid.Int32().Draw(t, "constant")))
			}
		}
		names := rapid.SliceOfNDistinct(text, 0, abi.MaxMaps, rapid.ID).Draw(t, "maps")
		for _, n := range names {
			m := abi.Map{Name: n, Type: abi.MapArray, Key: 4, Value: rapid.Uint32Range(1, 100).Draw(t, "value"), Entries: rapid.Uint32Range(1, 100).Draw(t, "entries")}
			if rapid.Bool().Draw(t, "hash") {
				m.Type, m.Key = abi.MapHash, rapid.Uint32Range(1, abi.MaxKey).Draw(t, "key")
			} else if rapid.Bool().Draw(t, "contents") {
				m.Contents = rapid.SliceOfN(rapid.Byte(), 1, int(m.Value*m.Entries)).Draw(t, "bytes")
			}
			img.Maps = append(img.Maps, m)
		}
		b := must.Get(flat.Encode(img))(t)
		got := must.Get(flat.Decode(b))(t)
		should.Be(t, cmp.Diff(img.Maps, got.Maps), "", "maps (-want +got)")
		for h := range abi.Hooks {
			want, err1 := flat.EncodeInstructions(img.Programs[h])
			have, err2 := flat.EncodeInstructions(got.Programs[h])
			should.Hold(t, err1 == nil && err2 == nil && bytes.Equal(want, have), "%v: %x (%v), want %x (%v)", h, have, err2, want, err1)
		}
		end := got.Size
		for i, m := range got.Maps {
			n, err := flat.StorageSize(m)
			should.Hold(t, err == nil && got.Storage[i] >= end && uint64(got.Storage[i])+n <= uint64(got.SRAM),
				"map %d: %d bytes at %d, behind %d and before %d (%v)", i, n, got.Storage[i], end, got.SRAM, err)
			end = got.Storage[i] + uint32(n)
		}
	})
}
