package bench

import (
	"sync"
	"sync/atomic"
	"time"
)

// garbagePiece is the number of bytes that one allocation has: what a small request of a server
// takes.
const garbagePiece = 1024

// garbageKept holds the last pieces, so that the compiler cannot leave them out.
var garbageKept atomic.Pointer[[garbagePiece]byte]

// makeGarbage allocates and drops rate bytes a second on a goroutine of its own, until
// the function that it returns is called.
func makeGarbage(rate int64) (stop func()) {
	var ended atomic.Bool
	var made sync.WaitGroup
	if rate > 0 {
		made.Go(func() {
			for last := time.Now(); !ended.Load(); {
				time.Sleep(time.Millisecond)
				now := time.Now()
				for due := rate * int64(now.Sub(last)) / int64(time.Second); due > 0; due -= garbagePiece {
					garbageKept.Store(new([garbagePiece]byte))
				}
				last = now
			}
		})
	}
	return func() {
		ended.Store(true)
		made.Wait()
	}
}
