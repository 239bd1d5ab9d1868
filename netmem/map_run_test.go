package netmem_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/netmem"
)

// TestMapInSequence: two readers in sequence, one of whom writes, of more memory than may be
// local, find what they should, most of it read ahead, and what was written is in the source.
func TestMapInSequence(t *testing.T) {
	for _, c := range []struct {
		page, pages, local int
	}{{4 << 10, 3000, 512}, {16 << 10, 600, 160}, {64 << 10, 160, 128}} {
		t.Run(fmt.Sprintf("%dK", c.page>>10), func(t *testing.T) {
			model := random(c.page*c.pages, 11)
			s := newSource(t, c.page, model)
			m := open(t, s, netmem.MapOptions{Local: int64(c.page * c.local)})
			memory, half := m.Bytes(), c.page*c.pages/2
			for round := range 2 {
				for at := 0; at < half; at += c.page {
					for _, at := range []int{at, half + at} {
						must.Same(t, memory[at:at+c.page], model[at:at+c.page], "round %d, page %d is not what it should be", round, at/c.page)
					}
					if at/c.page%7 == 0 {
						model[at]++
						memory[at]++
					}
				}
			}
			stats := must.Get(m.Stats(t.Context()))(t)
			if stats.Mapped+stats.Pooled > stats.Limit || stats.Limit > uint64(c.local) {
				t.Errorf("more is local than may be: %+v", stats)
			}
			if stats.Missed > uint64(c.pages) || stats.Ahead < uint64(c.pages) {
				t.Errorf("of two rounds of %d pages %d were missed, %d read ahead", c.pages, stats.Missed, stats.Ahead)
			}
			must.OK(t, m.Close())
			s.want(t, model)
		})
	}
}

// TestMapLeaving: behind a reader in sequence another thread reads and writes just those pages
// that are leaving to make room for him. Neither finds anything but what it should.
func TestMapLeaving(t *testing.T) {
	const page, pages, local, rounds = 4 << 10, 3000, 512, 8
	// A quarter of what may be local is the pool, and runs make up an eighth of that.
	const behind, jitter = local * 3 / 4, 4 * local / 4 / 8
	model := random(page*pages, 13)
	s := newSource(t, page, model)
	m := open(t, s, netmem.MapOptions{Local: page * local})
	memory := m.Bytes()
	var head atomic.Int64 // the page that the reader has come to, in all rounds
	var trailing sync.WaitGroup
	trailing.Go(func() {
		r := rand.New(rand.NewPCG(13, 1))
		for last := int64(0); last < rounds*pages; {
			at := head.Load()
			if at == last {
				runtime.Gosched()
				continue
			}
			last = at
			word := int(at-behind+r.Int64N(2*jitter)+pages) % pages * page
			if !bytes.Equal(memory[word:word+8], model[word:word+8]) {
				t.Errorf("page %d behind %d: %x, want %x", word/page, at%pages, memory[word:word+8], model[word:word+8])
				return
			}
			if r.IntN(2) == 0 {
				binary.LittleEndian.PutUint64(model[word:], r.Uint64())
				copy(memory[word:word+8], model[word:])
			}
		}
	})
	for range rounds {
		for at := 0; at < len(memory); at += page {
			// The first word of each page is the other thread's.
			should.Same(t, memory[at+8:at+page], model[at+8:at+page], "page %d is not what it should be", at/page)
			head.Add(1)
		}
	}
	trailing.Wait()
	must.OK(t, m.Close())
	s.want(t, model)
}
