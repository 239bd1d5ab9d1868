package firmware_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
)

// BenchmarkParse parses what clang makes of a program at every hook, debug
// information included.
func BenchmarkParse(b *testing.B) {
	image := object(b, "everything")
	b.SetBytes(int64(len(image)))
	b.ReportAllocs()
	for b.Loop() {
		must.Get(firmware.Parse(image))(b)
	}
}
