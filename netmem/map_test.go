package netmem_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/netmem/internal/userfault"
)

// random makes bytes that no page shares with another.
func random(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.New(rand.NewPCG(seed, 1))
	for i := 0; i+8 <= n; i += 8 {
		binary.LittleEndian.PutUint64(b[i:], r.Uint64())
	}
	return b
}

// TestMap: random reads and writes by several threads, with less local memory than they use,
// find what a model says; and what they wrote is in the source after Close.
func TestMap(t *testing.T) {
	for name, c := range map[string]struct {
		page, pages, local, threads, accesses int
		ahead                                 int64
	}{
		"4 KiB":             {4 << 10, 200, 16, 4, 3000, -1},
		"4 KiB, read ahead": {4 << 10, 200, 32, 4, 3000, 0},
		"4 KiB, by runs":    {4 << 10, 1500, 512, 3, 3000, 0},
		"64 KiB":            {64 << 10, 64, 16, 3, 1500, 0},
		"all of it":         {16 << 10, 32, 64, 2, 1000, 0},
	} {
		t.Run(name, func(t *testing.T) {
			model := random(c.page*c.pages, 7)
			s := newSource(t, c.page, model)
			m := open(t, s, netmem.MapOptions{Local: int64(c.page * c.local), Ahead: c.ahead})
			if len(m.Bytes()) != len(model) || m.PageSize() != c.page {
				t.Fatalf("%d bytes, pages of %d", len(m.Bytes()), m.PageSize())
			}
			var group sync.WaitGroup
			for i := range c.threads {
				group.Go(func() { access(t, m, model, i, c.threads, soak.Count(c.accesses/6, c.accesses)) })
			}
			group.Go(func() {
				for range 5 {
					runtime.GC() // waits for threads that wait for pages
				}
			})
			group.Wait()
			stats := must.Get(m.Stats(t.Context()))(t)
			if stats.Mapped+stats.Pooled > stats.Limit || stats.Limit > uint64(c.local) {
				t.Errorf("more is local than allowed: %+v", stats)
			}
			if c.local < c.pages && (stats.Evicted == 0 || stats.Back == 0) {
				t.Errorf("nothing was evicted or written back: %+v", stats)
			}
			must.OK(t, m.Close())
			s.want(t, model)
		})
	}
}

// access is one of several threads. Each writes words of its own, which share pages with those
// of others, and runs of words in sequence now and then.
func access(t *testing.T, m *netmem.Mapping, model []byte, thread, threads, n int) {
	memory := m.Bytes()
	words := len(model) / 8 / threads
	r := rand.New(rand.NewPCG(uint64(thread), 2))
	buffer := make([]byte, 8)
	for range n {
		first, run := r.IntN(words), 1
		if r.IntN(50) == 0 {
			run = min(words-first, 2000)
		}
		write := r.IntN(2) == 0
		for w := first; w < first+run; w++ {
			at := (w*threads + thread) * 8
			if write {
				binary.LittleEndian.PutUint64(model[at:], r.Uint64())
				copy(memory[at:at+8], model[at:])
				continue
			}
			if copy(buffer, memory[at:]); !bytes.Equal(buffer, model[at:at+8]) {
				t.Errorf("at %#x: %x, want %x", at, buffer, model[at:at+8])
				return
			}
		}
	}
}

// TestOpenSlowly: a source may take longer to open than its mapper, the pager and its guard wait
// for each other.
func TestOpenSlowly(t *testing.T) {
	if !soak.Wanted() {
		t.Skip("takes 11 s; set TRAPEZE_SOAK=1")
	}
	content := make([]byte, 1<<20)
	content[5] = 7
	s := newSource(t, 4<<10, content)
	s.OpenTakes = 11 * time.Second
	if m := open(t, s, netmem.MapOptions{Local: 1 << 20}); m.Bytes()[5] != 7 {
		t.Error("another byte than the source has")
	}
}

// BenchmarkMapSequential is one thread that reads all of a memory that is larger than its local
// part, in sequence, with and without reading ahead. With it, of-floor is the time that the
// kernel takes at least (kernelFloor, after each round) as a part of the round's: 1 were a pager
// and a source that cost nothing.
func BenchmarkMapSequential(b *testing.B) {
	for _, page := range []int{4 << 10, 16 << 10, 64 << 10} {
		for name, ahead := range map[string]int64{"ahead": 0, "alone": -1} {
			b.Run(fmt.Sprintf("%dK/%s", page>>10, name), func(b *testing.B) {
				const size, local = 128 << 20, 32 << 20
				s := newSource(b, page, make([]byte, size))
				m := open(b, s, netmem.MapOptions{Local: local, Ahead: ahead})
				var floor *kernelFloor
				var least time.Duration
				if ahead == 0 {
					floor = newKernelFloor(b, size, local)
				}
				b.SetBytes(size)
				var sum uint64
				for b.Loop() {
					sum += sumOf(m.Bytes())
					if floor != nil {
						b.StopTimer()
						least += floor.pass(b)
						b.StartTimer()
					}
				}
				should.Be(b, sum, 0, "wrong bytes")
				if floor != nil {
					b.ReportMetric(least.Seconds()/b.Elapsed().Seconds(), "of-floor")
				}
			})
		}
	}
}

// sumOf reads a word of each cache line.
func sumOf(memory []byte) (sum uint64) {
	for at := 0; at < len(memory); at += 64 {
		sum += binary.LittleEndian.Uint64(memory[at:])
	}
	return sum
}

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
	object := must.Get(userfault.Open())(b)
	b.Cleanup(func() { object.Close() })
	file := must.Get(unix.MemfdCreate("trapeze-floor", unix.MFD_CLOEXEC))(b)
	b.Cleanup(func() { unix.Close(file) })
	must.OK(b, unix.Ftruncate(file, int64(size)))
	memory := must.Get(unix.Mmap(file, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED))(b)
	b.Cleanup(func() { _ = unix.Munmap(memory) })
	must.OK(b, object.Register(memory))
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
				should.Be(b, sumOf(f.memory[first+at:][:floorRun]), 0, "wrong bytes")
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
