package bench

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"time"
)

// Memory is what one object takes, or the whole process.
type Memory struct {
	Heap   Figure `json:"heap_bytes" help:"Go heap of the driver and of the emulated NIC"`
	Shared Figure `json:"shared_bytes" help:"outside the Go heap: DMA memory and pages of doorbells"`
	Total  Figure `json:"total_bytes" help:"the sum of these"`
	Files  Figure `json:"files" help:"file descriptors"`
}

// watched measures the time and the memory of each object that f creates.
func (p *part) watched(side *Side, f func() error) error {
	count := 2*p.Unused + p.CQs + 2*p.Regions // at two NICs, or at one
	if count == 0 {
		return f()
	}
	before, err := look()
	if err != nil {
		return err
	}
	start := time.Now()
	if err := f(); err != nil {
		return err
	}
	side.Made = time.Since(start) / time.Duration(count)
	after, err := look()
	each := func(before, after Figure) Figure { return (after - before) / Figure(count) }
	side.Used = Memory{each(before.Heap, after.Heap), each(before.Shared, after.Shared), each(before.Total, after.Total),
		each(before.Files, after.Files)}
	return err
}

// look returns what this process uses now.
func look() (m Memory, err error) {
	runtime.GC()
	runtime.GC() // of what finalizers have let go
	var heap runtime.MemStats
	runtime.ReadMemStats(&heap)
	files, err := os.ReadDir("/proc/self/fd")
	shared, err2 := resident()
	m = Memory{Figure(heap.HeapAlloc), shared, Figure(heap.HeapAlloc) + shared, Figure(len(files))}
	return m, errors.Join(err, err2)
}

// resident reads RssShmem (proc(5), status), which is in KiB, from Linux 4.5 on.
func resident() (bytes Figure, err error) {
	text, err := os.ReadFile("/proc/self/status")
	_, shared, found := strings.Cut(string(text), "RssShmem:")
	if err == nil && !found {
		return 0, errors.New("/proc/self/status does not tell RssShmem")
	}
	_, err2 := fmt.Sscan(shared, &bytes)
	return 1024 * bytes, errors.Join(err, err2)
}
