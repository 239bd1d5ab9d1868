package emulator_test

import (
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// BenchmarkDirect is the time of an RDMA read and write from the post to the completion, between
// two NICs that one goroutine drives: in frames, and carried out by the initiator (SPEC.md 8.15).
func BenchmarkDirect(b *testing.B) {
	for _, size := range []int{64, 4096} {
		for _, read := range []bool{true, false} {
			for _, share := range []bool{false, true} {
				name := map[bool]string{true: "get", false: "put"}[read]
				b.Run(fmt.Sprintf("%s/%d/share=%v", name, size, share), func(b *testing.B) {
					x, y := newWriters(b, wire.SHMOptions{Share: share, ShareWrite: share}, wire.SHMOptions{Share: share, ShareWrite: share})
					r := newRemote(b, x, y, size)
					if share {
						r.waitDirect(b, !read)
					}
					d := r.operation(b, 0, 0, size, !read)
					b.ReportAllocs()
					for b.Loop() {
						d.Rearm()
						if err := r.from.VI.PostSend(d); err != nil {
							b.Fatal(err)
						}
						for {
							got, err := r.from.VI.SendDone()
							if got != nil {
								break
							}
							if err != nil && err != via.ErrNotDone {
								b.Fatal(err)
							}
							if !share {
								y.nic.Poll()
							}
						}
					}
				})
			}
		}
	}
}
