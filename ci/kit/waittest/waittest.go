// Package waittest has tests wait for what happens on other goroutines and in other processes.
package waittest

import (
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
)

// Longest limits the wait of Until. Nothing is meant to take so long, but CI machines are busy.
const Longest = time.Minute

const (
	pause = 200 * time.Microsecond
	// A machine that stood still for longer than this between two looks is charged this much only.
	still = 100 * time.Millisecond
)

// Until waits until holds returns true. It fails the test with what was waited for after Longest.
func Until(t testing.TB, what string, holds func() bool) {
	t.Helper()
	looked, spent := time.Now(), time.Duration(0)
	for ; !holds(); time.Sleep(pause) {
		spent += min(time.Since(looked), still)
		must.Hold(t, spent <= Longest, "not within %v: %s", Longest, what)
		looked = time.Now()
	}
}

// Together runs tests at the same time, all of them: they wait for timeouts, and use little of the processor.
func Together(t *testing.T, tests map[string]func(*testing.T)) {
	t.Helper()
	var running sync.WaitGroup
	for name, f := range tests {
		running.Go(func() { t.Run(name, f) })
	}
	running.Wait()
}

// Bell returns a function that never waits, for a sleeper to be woken by, and the channel that then has something.
func Bell() (ring func(), rung <-chan struct{}) {
	c := make(chan struct{}, 1)
	return func() {
		select {
		case c <- struct{}{}:
		default:
		}
	}, c
}

// Rung waits for a bell, and fails the test if it does not ring within Longest.
func Rung(t testing.TB, rung <-chan struct{}) {
	t.Helper()
	select {
	case <-rung:
	case <-time.After(Longest):
		t.Fatal("no sleeper was woken")
	}
}
