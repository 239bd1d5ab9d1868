package firmware_test

import (
	"testing"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
)

// BenchmarkParse parses what clang makes of a program at every hook, debug
// information included.
func BenchmarkParse(b *testing.B) {
	image := object(b)
	b.SetBytes(int64(len(image)))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := firmware.Parse(image); err != nil {
			b.Fatal(err)
		}
	}
}
