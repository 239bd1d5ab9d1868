package emulator_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
)

func ended(over <-chan struct{}) bool {
	select {
	case <-over:
		return true
	default:
		return false
	}
}

// TestWake: who posts to either device of a pair ends the sleep of all who step
// both.
func TestWake(t *testing.T) {
	// Ticks are far apart, so that each post wakes.
	var now atomic.Int64
	x, y := newPair(t, emulator.PairOptions{Clock: func() time.Duration { return time.Duration(now.Add(int64(time.Second))) }})
	for range 3 {
		overX, overY := x.Idle(), y.Idle()
		if overX == nil || overY == nil {
			t.Fatal("a pair with nothing to do lets nobody sleep")
		}
		x.Poll()
		if ended(overX) || ended(overY) {
			t.Fatal("woken by nothing")
		}
		y.Wake()
		if !ended(overX) || !ended(overY) {
			t.Fatal("asleep although something was posted")
		}
		x.Wake() // nobody sleeps
	}
	closeDevice(t, x)
	overY := y.Idle()
	y.Wake()
	should.Be(t, ended(overY), true, "asleep although something was posted, the other end being gone")
}

// TestWakeInterval: posts that follow each other closely wake a sleeper once.
func TestWakeInterval(t *testing.T) {
	var now atomic.Int64
	now.Store(1)
	x, y := newPair(t, emulator.PairOptions{Clock: func() time.Duration { return time.Duration(now.Load()) }})
	over := x.Idle()
	x.Wake()
	must.Be(t, ended(over), true, "asleep although something was posted")
	over = x.Idle()
	y.Wake()
	should.Be(t, ended(over), false, "woken again at once")
	closeDevice(t, x)
	should.Be(t, ended(over), true, "asleep although the device is closed")
}
