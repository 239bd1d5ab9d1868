package bench

import (
	"sync/atomic"
	"time"
)

// litterPiece is how many bytes one allocation has: what a small request of a
// server takes.
const litterPiece = 1024

// litterKept holds the last pieces, so that the compiler cannot leave them out.
var litterKept atomic.Pointer[[]byte]

// litter allocates and drops rate bytes a second on a goroutine of its own, until
// the function that it returns is called.
func litter(rate int64) (stop func()) {
	if rate == 0 {
		return func() {}
	}
	ending, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		const tick = time.Millisecond
		t := time.NewTicker(tick)
		defer t.Stop()
		for last := time.Now(); ; {
			select {
			case <-ending:
				return
			case now := <-t.C:
				for due := rate * int64(now.Sub(last)) / int64(time.Second); due > 0; due -= litterPiece {
					b := make([]byte, litterPiece)
					litterKept.Store(&b)
				}
				last = now
			}
		}
	}()
	return func() {
		close(ending)
		<-ended
	}
}
