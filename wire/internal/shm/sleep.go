package shm

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

// armAfter is the number of looks in vain, in a row, until a port whose
// owner can be woken asks for it: fewer than an engine's thread makes before it
// sleeps.
const armAfter = 64

// Commands of membarrier(2), as in linux/membarrier.h.
const (
	barrierQuery           = 0
	barrierGlobalExpedited = 1 << 1
	barrierRegister        = 1 << 2
)

// hasBarrier reports whether this process can have all processors execute a
// barrier, and does so itself when another process asks.
var hasBarrier = sync.OnceValue(func() bool {
	const need = barrierGlobalExpedited | barrierRegister
	commands, ok := membarrier(barrierQuery)
	if !ok || commands&need != need {
		return false
	}
	_, ok = membarrier(barrierRegister)
	return ok
})

func membarrier(command uintptr) (result uintptr, ok bool) {
	result, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, command, 0, 0)
	return result, errno == 0
}

// setAsleep says whether the receiver wants to be woken. A sender has then either
// seen it, or its frame is there to be seen: light says that this takes a
// barrier on its processor, and else it makes one itself.
func (r *receiver) setAsleep(on, light bool) {
	if !on {
		atomic.StoreUint32(r.asleep, 0)
		return
	}
	if was := atomic.LoadUint32(r.asleep); was != 0 && was != asleepMark {
		return
	}
	r.slept.Add(1) // first: the peer may be quick
	atomic.StoreUint32(r.asleep, 1)
	if light {
		membarrier(barrierGlobalExpedited)
	}
}

// nothing is called by Receive when there is no frame.
func (p *Port) nothing() {
	if p.rx.fault != nil {
		p.drop(p.rx.fault)
		return
	}
	if p.wake.IsSet() {
		if p.rx.asked != p.rx.number {
			p.rx.asked, p.rx.idle = p.rx.number, 0
		}
		if p.rx.idle++; p.rx.idle%armAfter == 0 {
			p.rx.setAsleep(true, p.tx.light)
		}
	}
}

// notify wakes the peer if it sleeps. It comes after the word of a frame.
func (p *Port) notify() {
	if p.tx.light && atomic.LoadUint32(p.tx.asleep) == 0 {
		return
	}
	p.wakePeer()
}

func (p *Port) wakePeer() {
	s := p.session
	if s == nil {
		return
	}
	if !p.tx.light {
		s.fence.Store(0) // the store before and the load behind stay in order
	}
	if atomic.LoadUint32(p.tx.asleep) == 0 {
		return
	}
	switch atomic.SwapUint32(p.tx.asleep, 0) {
	case 0:
	case asleepMark:
		s.markSelf()
	default:
		s.markSelf()
		s.wake()
		p.counts.wakes.Add(1)
	}
}
