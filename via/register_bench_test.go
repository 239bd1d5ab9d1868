package via_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/via"
)

// BenchmarkRegister reports what it takes to register memory of the program's own and to
// give it back: medians, as one in many is late on a busy machine.
func BenchmarkRegister(b *testing.B) {
	for _, size := range []int{4096, 49152, 1 << 20} {
		b.Run(sizeName(size), func(b *testing.B) {
			n, _ := conform.OnMemory(b, "", via.Options{})
			memory, err := unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_POPULATE)
			if err != nil {
				b.Fatal(err)
			}
			defer func() { _ = unix.Munmap(memory) }()
			var register, deregister []time.Duration
			for b.Loop() {
				start := time.Now()
				m, err := n.Register(b.Context(), memory, via.MemoryAttributes{})
				if err != nil {
					b.Fatal(err)
				}
				registered := time.Now()
				if err := m.Close(b.Context()); err != nil {
					b.Fatal(err)
				}
				register, deregister = append(register, registered.Sub(start)), append(deregister, time.Since(registered))
			}
			for name, times := range map[string][]time.Duration{"register": register, "deregister": deregister} {
				slices.Sort(times)
				b.ReportMetric(float64(times[len(times)/2].Nanoseconds()), fmt.Sprintf("p50-ns/%s", name))
			}
		})
	}
}
