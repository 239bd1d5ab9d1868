// Package hotlock has a mutex for the data path: for sections of some ten
// nanoseconds that are entered millions of times a second and seldom met by two.
//
// A sync.Mutex executes two locked instructions, as Unlock has to learn whether
// there is a sleeper. A hotlock.Mutex executes one: no goroutine sleeps until woken, those who
// wait look again and again, at growing intervals.
package hotlock

import (
	"runtime"
	"sync/atomic"
	"time"
)

// Mutex is a mutual exclusion lock; its zero value is unlocked. It must not be
// copied. It must not be held across anything that blocks.
//
// A caller that comes while others wait lets them go first, so that a loop that locks it
// again and again keeps no other out. Among those who wait there is no order.
type Mutex struct {
	_       [0]uint64
	word    uint32
	waiters atomic.Int32
}

// How Lock waits: some looks, some in which others run, then naps that double.
const (
	looks    = 32
	yields   = 64
	firstNap = 5 * time.Microsecond
	lastNap  = 50 * time.Microsecond
)

// TryLock locks m unless it is locked or has a waiter, and reports whether
// it has.
func (m *Mutex) TryLock() bool {
	return atomic.CompareAndSwapUint64(m.both(), 0, 1)
}

// Lock locks m.
func (m *Mutex) Lock() {
	if !atomic.CompareAndSwapUint64(m.both(), 0, 1) {
		m.wait()
	}
}

func (m *Mutex) wait() {
	m.waiters.Add(1)
	defer m.waiters.Add(-1)
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
		if atomic.LoadUint32(&m.word) == 0 && atomic.CompareAndSwapUint32(&m.word, 0, 1) {
			return
		}
	}
}
