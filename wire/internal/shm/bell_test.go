package shm_test

import (
	"encoding/binary"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// newTimer makes a timerfd, which blocks: its flags are the peer's to choose.
func newTimer(t testing.TB) int {
	t.Helper()
	return must.Get(unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC))(t)
}

func ring(t *testing.T, fd int) {
	t.Helper()
	should.OK(t, unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Value: unix.Timespec{Nsec: 1}}, nil))
}

// rang waits until a timer that this side made has expired, and takes that.
func rang(t *testing.T, fd int) {
	t.Helper()
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	waittest.Until(t, "the bell rings", func() bool {
		n, err := unix.Poll(p, 1000)
		return n == 1 && err == nil
	})
	var b [8]byte
	if _, err := unix.Read(fd, b[:]); err != nil || binary.NativeEndian.Uint64(b[:]) == 0 {
		t.Errorf("read the timer: %v", err)
	}
}

// TestBells: sleepers are woken, whatever the peer does to the flags that the descriptors have for both, and whether
// both take part in membarrier.
func TestBells(t *testing.T) {
	for name, flags := range map[string]uint64{"without barriers": 0, "with barriers": flagBarrier} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			p, r := withRaw(t, shm.Options{}, flags)
			mine, theirs := r.bells[0], r.bells[1]
			must.OK(t, unix.SetNonblock(theirs, false))
			woken := make(chan struct{}, 1)
			for i := range 20 {
				r.poke(asleepOffset, 1)
				sendTo(t, p, []byte("wake up"))
				rang(t, mine)
				should.Be(t, r.theirs[asleepOffset], 0, "it still seems to sleep")
				atomic.StoreUint32(r.freed(), atomic.LoadUint32(r.freed())+64)

				p.SetWake(func() { woken <- struct{}{} })
				must.Be(t, r.ours[asleepOffset] == 0, false, "this side does not say that it sleeps")
				copy(r.frames()[64*i:], "you too")
				r.put(i, 7, 7, 1)
				r.ours[asleepOffset] = 0
				ring(t, theirs)
				waittest.Rung(t, woken)
				should.Be(t, string(receiveFrom(t, p)), "you too", "received")
			}
			// A ring that comes before a port listens wakes it, and is not counted; nor is one of two that come at a time, as
			// where the function is called since the port begins to listen.
			if s := p.Stats(); s.Wakes != 20 || s.Woken < 19 || s.Woken > 20 {
				t.Errorf("%+v", s)
			}
			if p.SetWake(nil); r.ours[asleepOffset] != 0 {
				t.Error("this side still says that it sleeps")
			}
			closePort(t, p)
			ring(t, theirs) // nobody is there any more
		})
	}
}
