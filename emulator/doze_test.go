package emulator_test

import "testing"

func ended(over <-chan struct{}) bool {
	select {
	case <-over:
		return true
	default:
		return false
	}
}

// TestStir: who posts to either device of a pair ends the sleep of all who step
// both.
func TestStir(t *testing.T) {
	x, y := newPair(t)
	for range 3 {
		overX, overY := x.Doze(), y.Doze()
		if overX == nil || overY == nil {
			t.Fatal("a pair with nothing to do lets nobody sleep")
		}
		x.Poll()
		if ended(overX) || ended(overY) {
			t.Fatal("woken by nothing")
		}
		y.Stir()
		if !ended(overX) || !ended(overY) {
			t.Fatal("asleep although something was posted")
		}
		x.Stir() // nobody sleeps
	}
	closeDevice(t, x)
	overY := y.Doze()
	y.Stir()
	if !ended(overY) {
		t.Error("asleep although something was posted, the other end being gone")
	}
}
