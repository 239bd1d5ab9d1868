package hotlock_test

import (
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/hotlock"
)

// TestExclusion: what many goroutines do under the lock is done one after the other.
func TestExclusion(t *testing.T) {
	const goroutines, rounds = 8, 20_000
	var m hotlock.Mutex
	n := 0
	var all sync.WaitGroup
	for g := range goroutines {
		all.Go(func() {
			for i := range rounds {
				if i%3 == g%3 {
					for !m.TryLock() {
						runtime.Gosched()
					}
				} else {
					m.Lock()
				}
				n++
				m.Unlock()
			}
		})
	}
	all.Wait()
	should.Be(t, n, goroutines*rounds, "sections")
}

// TestTryLock: it succeeds if nobody holds the lock.
func TestTryLock(t *testing.T) {
	var m hotlock.Mutex
	if !m.TryLock() {
		t.Error("an unlocked mutex")
	}
	if m.TryLock() {
		t.Error("a locked mutex")
	}
	m.Unlock()
	if !m.TryLock() {
		t.Error("an unlocked mutex again")
	}
}

// TestLongHold: those who wait for somebody slow get the lock in the end.
func TestLongHold(t *testing.T) {
	var m hotlock.Mutex
	m.Lock()
	var all sync.WaitGroup
	got := 0
	for range 4 {
		all.Go(func() {
			m.Lock()
			got++
			m.Unlock()
		})
	}
	time.Sleep(5 * time.Millisecond) // long enough for naps; if not, the test is only weaker
	m.Unlock()
	if all.Wait(); got != 4 {
		t.Errorf("%d got it", got)
	}
}

// TestLetsOthersIn: a loop that takes the lock again and again, in either way, lets
// others have it.
func TestLetsOthersIn(t *testing.T) {
	for name, lock := range map[string]func(m *hotlock.Mutex) bool{
		"lock": func(m *hotlock.Mutex) bool { m.Lock(); return true },
		"try":  func(m *hotlock.Mutex) bool { return m.TryLock() },
	} {
		t.Run(name, func(t *testing.T) {
			var m hotlock.Mutex
			var stop atomic.Bool
			var loop sync.WaitGroup
			n := 0
			loop.Go(func() {
				for !stop.Load() {
					if lock(&m) {
						for range 1000 {
							n++
						}
						m.Unlock()
					}
				}
			})
			for range 100 {
				m.Lock()
				n++
				m.Unlock()
			}
			stop.Store(true)
			loop.Wait()
		})
	}
}
