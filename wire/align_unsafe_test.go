package wire_test

import (
	"testing"
	"unsafe"

	"github.com/trapeze-nic/trapeze/wire"
)

func TestFramesAreAligned(t *testing.T) {
	ends(t, func(t *testing.T, a, b wire.Port) {
		for n := 64; n < 400; n += 7 {
			p := a.Reserve(n)
			copy(p, frameOf(stationMAC(2), stationMAC(1), n-64))
			if at := uintptr(unsafe.Pointer(&p[0])); at%64 != 0 {
				t.Fatalf("Reserve(%d) gave address %#x", n, at)
			}
			a.Commit()
			a.Flush()
			f := b.Receive()
			for f == nil {
				f = b.Receive()
			}
			if at := uintptr(unsafe.Pointer(&f[0])); at%64 != 0 {
				t.Fatalf("frame of %d bytes at %#x", n, at)
			}
			b.Release()
		}
	})
}
