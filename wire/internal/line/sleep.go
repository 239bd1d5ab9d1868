package line

import (
	"sync"
	"sync/atomic"

	"golang.org/x/sys/unix"
)

const (
	// A receiver that wants to be woken writes Asleep, one that wants a mark AsleepMark.
	Asleep     = 1
	AsleepMark = 2
	// armAfter is the number of looks in vain, in a row, until a line whose
	// owner can be woken asks for it: fewer than an engine's thread makes before it
	// sleeps.
	armAfter = 64
)

// Commands of membarrier(2), as in linux/membarrier.h.
const (
	barrierQuery           = 0
	barrierGlobalExpedited = 1 << 1
	barrierRegister        = 1 << 2
)

// HasBarrier reports whether this process can have all processors execute a
// barrier, and does so itself when another process asks.
var HasBarrier = sync.OnceValue(func() bool {
	const need = barrierGlobalExpedited | barrierRegister
	commands, ok := membarrier(barrierQuery)
	if !ok || commands&need != need {
		return false
	}
	_, ok = membarrier(barrierRegister)
	return ok
})

// Barrier makes all processors execute a barrier that run a process with HasBarrier.
func Barrier() { membarrier(barrierGlobalExpedited) }

func membarrier(command uintptr) (result uintptr, ok bool) {
	result, _, errno := unix.Syscall(unix.SYS_MEMBARRIER, command, 0, 0)
	return result, errno == 0
}

// SetAsleep says whether the receiver wants to be woken. A sender has then either
// seen it, or its frame is there to be seen: Light says that this takes a
// barrier on its processor, and else it makes one itself. Any goroutine may call it.
func (p *Pair) SetAsleep(on bool) {
	if !on {
		atomic.StoreUint32(p.Rx.asleep, 0)
		return
	}
	if was := atomic.LoadUint32(p.Rx.asleep); was != 0 && was != AsleepMark {
		return
	}
	p.Slept.Add(1) // first: the peer may be quick
	atomic.StoreUint32(p.Rx.asleep, Asleep)
	if p.Light {
		Barrier()
	}
}

// AskMark says that the receiver wants a mark, unless it wants to be woken.
func (p *Pair) AskMark() { atomic.CompareAndSwapUint32(p.Rx.asleep, 0, AsleepMark) }

// TakeAsleep returns what the other end's receiver wants, and ends that.
func (p *Pair) TakeAsleep() uint32 { return atomic.SwapUint32(p.Tx.asleep, 0) }

// nothing is called when there is no frame.
func (l *Line) nothing() {
	if l.broke() || !l.Wake.IsSet() {
		return
	}
	if l.asked != l.Rx.number {
		l.asked, l.idle = l.Rx.number, 0
	}
	if l.idle++; l.idle%armAfter == 0 {
		l.SetAsleep(true)
	}
}

// Fence keeps the stores before it ahead of the loads behind it.
func Fence() {
	var w atomic.Uint32
	w.Store(0)
}

// notify wakes the peer if it sleeps. It comes after the word of a frame.
func (l *Line) notify() {
	if !l.Light {
		Fence()
	}
	if atomic.LoadUint32(l.Tx.asleep) != 0 {
		l.owner.WakePeer()
	}
}
