package flat_test

import (
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// BenchmarkDecode decodes an image of 64 KiB, all of it instructions.
func BenchmarkDecode(b *testing.B) {
	img := &flat.Image{ABI: abi.Version, Name: "full", Version: "1"}
	for h := range 2 {
		for range abi.MaxInstructions {
			img.Programs[h] = append(img.Programs[h], asm.Mov.Imm(asm.R0, 1))
		}
	}
	encoded := encode(b, img)
	b.SetBytes(int64(len(encoded)))
	b.ReportAllocs()
	for b.Loop() {
		must.Get(flat.Decode(encoded))(b)
	}
}
