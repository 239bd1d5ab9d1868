package bench

import (
	"sync/atomic"
	"time"
)

// garbagePiece is the number of bytes that one allocation has: what a small request of a server
// takes.
const garbagePiece = 1024

// garbageKept holds the last pieces, so that the compiler cannot leave them out.
var garbageKept atomic.Pointer[[]byte]

// makeGarbage allocates and drops rate bytes a second on a goroutine of its own, until
// the function that it returns is called.
func makeGarbage(rate int64) (stop func()) {
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
				for due := rate * int64(now.Sub(last)) / int64(time.Second); due > 0; due -= garbagePiece {
					b := make([]byte, garbagePiece)
					garbageKept.Store(&b)
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
