// Package hotlock has a mutex for the data path: for sections of some ten
// nanoseconds that are entered millions of times a second and seldom met by two.
//
// A sync.Mutex executes two locked instructions, as Unlock has to learn whether
// somebody sleeps. A hotlock.Mutex executes one: nobody sleeps until woken, those who
// wait look again and again, at growing intervals.
package hotlock

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Mutex is a mutual exclusion lock; its zero value is unlocked. It must not be
// copied. It is not fair, and must not be held across anything that blocks, but for
// the work of one step of an engine.
type Mutex struct{ word uint32 }

// How Lock waits: some looks, some in which others run, then naps that double.
const (
	looks    = 32
	yields   = 64
	firstNap = 5 * time.Microsecond
	lastNap  = 200 * time.Microsecond
)

// TryLock locks m unless it is locked, and reports whether it has.
func (m *Mutex) TryLock() bool { return atomic.CompareAndSwapUint32(&m.word, 0, 1) }

// Lock locks m.
func (m *Mutex) Lock() {
	if !m.TryLock() {
		m.wait()
	}
}

func (m *Mutex) wait() {
	nap := firstNap
	for i := 0; ; i++ {
		switch {
		case i < looks:
		case i < looks+yields:
			runtime.Gosched()
		default:
			time.Sleep(nap)
			nap = min(2*nap, lastNap)
		}
		// Looked at first: to try is to take the cache line away from its holder.
		if atomic.LoadUint32(&m.word) == 0 && m.TryLock() {
			return
		}
	}
}
