package netmem_test

import (
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/netmem"
)

// word is what stands at a place: the place, and how often it was written.
func word(at, generation int) uint64 {
	return uint64(at)<<32 | uint64(generation)
}

// TestPagerKilled: whenever the pager is killed, no thread ever reads a wrong byte: it reads
// what it wrote, or is told that the mapping has ended. And the source has no word that was
// never written.
func TestPagerKilled(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	for range soak.Count(6, 100) {
		killed(t, time.Duration(r.IntN(60_000))*time.Microsecond)
	}
}

// killed kills the pager some time after threads have begun to use it.
func killed(t *testing.T, after time.Duration) {
	const page, pages, threads = 4 << 10, 100, 4
	content := make([]byte, page*pages)
	for at := 0; at < len(content); at += 8 {
		binary.LittleEndian.PutUint64(content[at:], word(at, 0))
	}
	s := newSource(t, page, content)
	s.Pause = 20 * time.Microsecond
	m := open(t, s, netmem.MapOptions{Local: 16 * page})
	generations := make([]int, len(content)/8)
	var accesses atomic.Int64
	var group sync.WaitGroup
	for i := range threads {
		group.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), uint64(after)))
			memory := m.Bytes()
			for {
				w := r.IntN(len(generations)/threads)*threads + i
				write := r.IntN(2) == 0
				var got [8]byte
				err := m.Do(func() {
					if write {
						// Either may be what the source is left with.
						binary.LittleEndian.PutUint64(got[:], word(w*8, generations[w]+1))
						copy(memory[w*8:w*8+8], got[:])
					} else {
						copy(got[:], memory[w*8:])
					}
				})
				if write {
					generations[w]++
				}
				if err != nil {
					should.Fail(t, err, netmem.ErrPagerDied, "the mapping ended")
					return
				}
				accesses.Add(1)
				if v := binary.LittleEndian.Uint64(got[:]); v != word(w*8, generations[w]) {
					t.Errorf("at %#x: %#x, want %#x", w*8, v, word(w*8, generations[w]))
					return
				}
			}
		})
	}
	for time.Sleep(after); accesses.Load() == 0; time.Sleep(time.Millisecond) {
	}
	must.OK(t, syscall.Kill(m.PagerID(), syscall.SIGKILL))
	group.Wait()
	<-m.Done()
	var e *netmem.Error
	if err := m.Err(); !errors.As(err, &e) || !errors.Is(err, netmem.ErrPagerDied) {
		t.Errorf("the mapping ended with %v", err)
	}
	should.Fail(t, m.Close(), netmem.ErrPagerDied, "closing")
	left := must.Get(os.ReadFile(s.Path))(t)
	for w, n := range generations {
		if v := binary.LittleEndian.Uint64(left[w*8:]); v>>32 != uint64(w*8) || v&0xffffffff > uint64(n) {
			t.Fatalf("the source has %#x at %#x, which was written %d times", v, w*8, n)
		}
	}
}

// TestPagerStops: a pager that is there and does nothing ends the mapping by a deadline.
func TestPagerStops(t *testing.T) {
	s := newSource(t, 4<<10, random(400<<10, 3))
	m := open(t, s, netmem.MapOptions{Local: 64 << 10, Deadline: 500 * time.Millisecond})
	must.OK(t, syscall.Kill(m.PagerID(), syscall.SIGSTOP))
	// A thread of it may still have been running.
	var err error
	for at := 0; err == nil; at = (at + 4<<10) % len(m.Bytes()) {
		err = m.Do(func() { _ = copy(make([]byte, 8), m.Bytes()[at:]) })
	}
	should.Fail(t, err, netmem.ErrPagerHung)
	should.OK(t, syscall.Kill(m.PagerID(), syscall.SIGCONT))
	should.Fail(t, m.Close(), netmem.ErrPagerHung, "closing")
}

// TestSignals: a pager that is asked to end, as all processes of a service are, stays until the
// application has closed the mapping.
func TestSignals(t *testing.T) {
	content := random(400<<10, 3)
	s := newSource(t, 4<<10, content)
	m := open(t, s, netmem.MapOptions{Local: 64 << 10})
	for _, signal := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP} {
		must.OK(t, syscall.Kill(m.PagerID(), signal))
	}
	for at := 0; at < len(content); at += 4 << 10 {
		content[at]++
		m.Bytes()[at]++
	}
	must.OK(t, m.Close())
	s.want(t, content)
}

// TestSourceTrouble: a source that does not answer, or refuses, ends the mapping, with its
// reason.
func TestSourceTrouble(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*fileSource)
		want   error
		// deadline is short where it is what ends the mapping.
		deadline time.Duration
		local    int64 // pages: from 128 on, what is read ahead is read by runs
		ahead    int64
	}{
		"reads hang":    {func(s *fileSource) { s.HangReads = 30 }, netmem.ErrPagerDeadline, 400 * time.Millisecond, 16, -1},
		"writes hang":   {func(s *fileSource) { s.HangWrites = 5 }, netmem.ErrPagerDeadline, 400 * time.Millisecond, 16, -1},
		"reads refused": {func(s *fileSource) { s.FailReads = 30 }, errSource, 0, 16, -1},
		"write refused": {func(s *fileSource) { s.FailWrites = 5 }, errSource, 0, 16, -1},
		"runs hang":     {func(s *fileSource) { s.HangReads = 300 }, netmem.ErrPagerDeadline, 400 * time.Millisecond, 256, 0},
		"runs refused":  {func(s *fileSource) { s.FailReads = 300 }, errSource, 0, 256, 0},
	} {
		t.Run(name, func(t *testing.T) {
			const page = 4 << 10
			content := random(int(max(100, 3*c.local))*page, 5)
			s := newSource(t, page, content)
			c.change(s)
			m := open(t, s, netmem.MapOptions{Local: c.local * page, Ahead: c.ahead, Deadline: c.deadline})
			var wrong bool
			for at := 0; ; at = (at + page) % len(content) {
				var got byte
				err := m.Do(func() {
					got = m.Bytes()[at]
					m.Bytes()[at] = got
				})
				if err != nil {
					if !errors.Is(err, c.want) || !errors.Is(m.Err(), c.want) {
						t.Errorf("%v, want %v", err, c.want)
					}
					break
				}
				wrong = wrong || got != content[at]
			}
			if wrong {
				t.Error("wrong bytes were read")
			}
			should.Fail(t, m.Sync(t.Context()), c.want, "Sync")
		})
	}
}
