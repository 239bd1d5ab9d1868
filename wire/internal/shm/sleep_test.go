package shm_test

import (
	"sync/atomic"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// TestNoWakeWhileAwake: whoever looks for frames himself costs nobody a message.
func TestNoWakeWhileAwake(t *testing.T) {
	checkLeaks(t)
	a, b := pair(t, shm.Options{})
	for range 1000 {
		bounce(t, a, b, 64)
	}
	var calls atomic.Int32
	b.SetWake(func() { calls.Add(1) })
	b.SetWake(nil)
	for range 1000 {
		bounce(t, a, b, 64)
	}
	if s := a.Stats(); s.Wakes != 0 || calls.Load() != 0 {
		t.Errorf("%+v, %d calls", s, calls.Load())
	}
}

// TestWakeOnce: a sleeper is woken by the first of many frames, once.
func TestWakeOnce(t *testing.T) {
	checkLeaks(t)
	a, b := pair(t, shm.Options{})
	woken := make(chan struct{}, 100)
	b.SetWake(func() { woken <- struct{}{} })
	for range 100 {
		sendTo(t, a, make([]byte, 64))
	}
	<-woken
	for range 100 {
		receiveFrom(t, b)
	}
	should.Be(t, a.Stats().Wakes, 1, "wake messages")
}

// TestThreadFallsAsleep: an owner that can be woken, as an engine's thread, need
// not say when it sleeps. It has looked in vain before.
func TestThreadFallsAsleep(t *testing.T) {
	checkLeaks(t)
	a, b := pair(t, shm.Options{})
	woken := make(chan struct{}, 1)
	b.SetWake(func() { woken <- struct{}{} })
	for range 200 {
		for range 256 { // what engine.Run does before it sleeps
			must.Be(t, b.Receive() != nil, false, "a frame that nobody sent")
		}
		sendTo(t, a, make([]byte, 64))
		waittest.Rung(t, woken)
		must.Be(t, b.Receive() == nil, false, "woken without a frame")
		b.Release()
	}
}

// TestSleepBeforeThePeer: whoever sleeps when a peer comes is woken by its first
// frame.
func TestSleepBeforeThePeer(t *testing.T) {
	checkLeaks(t)
	path := socket(t)
	wake, woken := waittest.Bell()
	b := open(t, shm.Options{Path: path, Role: shm.RoleListen})
	b.SetWake(wake)
	for range 3 {
		a := open(t, shm.Options{Path: path, Role: shm.RoleConnect})
		up(t, a, b)
		waittest.Until(t, "woken", func() bool {
			sendTo(t, a, make([]byte, 64))
			return len(woken) > 0
		})
		<-woken
		closePort(t, a)
		waittest.Until(t, "link down", func() bool { return !b.LinkUp() })
		b.Receive()
	}
}
