package netmem_test

import (
	"bytes"
	"encoding/binary"
	"math/rand/v2"
	"os"
	"runtime"
	"sync"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/netmem"
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
			leaktest.Check(t)
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
			stats, err := m.Stats(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if stats.Mapped+stats.Pooled > stats.Limit || stats.Limit > uint64(c.local) {
				t.Errorf("more is local than allowed: %+v", stats)
			}
			if c.local < c.pages && (stats.Evicted == 0 || stats.Back == 0) {
				t.Errorf("nothing was evicted or written back: %+v", stats)
			}
			if err := m.Close(); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(s.Path)
			if err != nil {
				t.Fatal(err)
			}
			if !bytes.Equal(got, model) {
				t.Error("the source has not what was written")
			}
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
