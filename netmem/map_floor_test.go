package netmem_test

import (
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/netmem/internal/userfault"
)

// floorRun is how many bytes are put in place by one call, as the pager does it.
const floorRun = 256 << 10

// floorThreads is how many threads share the work: the benchmark's machine has two processors.
const floorThreads = 2

// kernelFloor is what the kernel does for mapped memory that is read in sequence, and no more:
// bytes that lie ready are put in place, read, and punched out when as many are local as may be.
// There are no faults, no other process, no source.
type kernelFloor struct {
	object *userfault.Object
	file   int
	memory []byte
	ready  []byte
	local  int
}

func newKernelFloor(b *testing.B, size, local int) *kernelFloor {
	object, err := userfault.Open()
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { object.Close() })
	file, err := unix.MemfdCreate("trapeze-floor", unix.MFD_CLOEXEC)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { unix.Close(file) })
	if err := unix.Ftruncate(file, int64(size)); err != nil {
		b.Fatal(err)
	}
	memory, err := unix.Mmap(file, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = unix.Munmap(memory) })
	if err := object.Register(memory); err != nil {
		b.Fatal(err)
	}
	return &kernelFloor{object, file, memory, make([]byte, floorThreads*floorRun), local}
}

// pass goes through the memory once, and returns how long that took. Each thread has a part of
// its own, and reads only what it has put there: a missing page would have this process wait for
// itself.
func (f *kernelFloor) pass(b *testing.B) time.Duration {
	start := time.Now()
	part, local := len(f.memory)/floorThreads, f.local/floorThreads
	var threads sync.WaitGroup
	for i := range floorThreads {
		threads.Go(func() {
			first, ready := i*part, f.ready[i*floorRun:][:floorRun]
			for at := 0; at < part; at += floorRun {
				if err := f.object.Copy(userfault.Address(f.memory)+uint64(first+at), ready, true); err != nil {
					b.Error(err)
					return
				}
				if sumOf(f.memory[first+at:][:floorRun]) != 0 {
					b.Error("wrong bytes")
				}
				gone := first + (at+part-local)%part
				if err := unix.Fallocate(f.file, unix.FALLOC_FL_PUNCH_HOLE|unix.FALLOC_FL_KEEP_SIZE, int64(gone), floorRun); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	threads.Wait()
	return time.Since(start)
}
