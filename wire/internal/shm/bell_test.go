package shm_test

import (
	"encoding/binary"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// timer makes a timerfd, which blocks: its flags are the peer's to choose.
func timer(t *testing.T) int {
	t.Helper()
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

func ring(t *testing.T, fd int) {
	t.Helper()
	if err := unix.TimerfdSettime(fd, 0, &unix.ItimerSpec{Value: unix.Timespec{Nsec: 1}}, nil); err != nil {
		t.Error(err)
	}
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

// joinBells is a peer that wakes with bells: its own, and the one that it was
// given.
func joinBells(t *testing.T, path string) (r *raw, mine, theirs int) {
	t.Helper()
	r = joinRaw(t, path, flagBarrier)
	_, _, _, _, theirs = r.readUntil(msgBell)
	t.Cleanup(func() { unix.Close(theirs) })
	mine = timer(t)
	r.send(msgBell, 0, 0, 0, 0, mine)
	// What is answered after it shows that it was taken.
	r.send(msgLink, 7, 1, 0, 0)
	if kind, id, _, _, _, _ := r.read(); kind != msgLinkSeen || id != 7 {
		t.Fatalf("message of kind %d", kind)
	}
	return r, mine, theirs
}

// TestBells: with bells nobody is sent a wake message, whatever the peer does to
// the flags that the descriptors have for both.
func TestBells(t *testing.T) {
	checkLeaks(t)
	path := socket(t)
	p := open(t, shm.Options{Path: path, Role: shm.RoleListen})
	r, mine, theirs := joinBells(t, path)
	up(t, p)
	if err := unix.SetNonblock(theirs, false); err != nil {
		t.Fatal(err)
	}
	woken := make(chan struct{}, 1)
	for i := range 20 {
		r.poke(asleepOffset, 1)
		sendTo(t, p, []byte("wake up"))
		rang(t, mine)
		atomic.StoreUint32(r.freed(), atomic.LoadUint32(r.freed())+64)

		p.SetWake(func() { woken <- struct{}{} })
		if r.ours[asleepOffset] == 0 {
			t.Fatal("this side does not say that it sleeps")
		}
		copy(r.frames()[64*i:], "you too")
		r.put(i, 7, 7, 1)
		r.ours[asleepOffset] = 0
		ring(t, theirs)
		select {
		case <-woken:
		case <-time.After(timeout):
			t.Fatal("not woken")
		}
		if got := receiveFrom(t, p); string(got) != "you too" {
			t.Errorf("received %q", got)
		}
	}
	if s := p.Stats(); s.Wakes != 20 || s.Woken != 20 {
		t.Errorf("%+v", s)
	}
	p.SetLink(false)
	if kind, _, _, _, _, _ := r.read(); kind != msgLink {
		t.Errorf("message of kind %d", kind)
	}
	closePort(t, p)
	ring(t, theirs) // nobody is there any more
}

// TestBadBells: a peer that rings all the time, or gives something else to ring, is
// disconnected, and another is welcome.
func TestBadBells(t *testing.T) {
	for name, tt := range map[string]struct {
		do   func(t *testing.T, r *raw, theirs int, p *shm.Port)
		says string
	}{
		"rings all the time": {func(t *testing.T, _ *raw, theirs int, p *shm.Port) {
			p.SetWake(func() {})
			for end := time.Now().Add(timeout); p.Stats().Violations == 0 && time.Now().Before(end); {
				ring(t, theirs)
			}
		}, "wake-ups"},
		"a second bell": {func(t *testing.T, r *raw, _ int, _ *shm.Port) {
			r.send(msgBell, 0, 0, 0, 0, timer(t))
		}, "kind"},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			path := socket(t)
			p := open(t, shm.Options{Path: path, Role: shm.RoleListen})
			r, _, theirs := joinBells(t, path)
			up(t, p)
			tt.do(t, r, theirs, p)
			waittest.Until(t, "disconnected", func() bool { return p.Stats().Violations == 1 })
			var e *shm.PeerError
			if err := p.Err(); !errors.As(err, &e) || !strings.Contains(e.Error(), tt.says) {
				t.Errorf("error %v, want one about %q", err, tt.says)
			}
			p.SetWake(nil)
			r.close()
			p.Receive()
			joinBells(t, path)
			up(t, p)
		})
	}
}

// TestBellThatIsNone: only a timer is set.
func TestBellThatIsNone(t *testing.T) {
	checkLeaks(t)
	path := socket(t)
	p := open(t, shm.Options{Path: path, Role: shm.RoleListen})
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	r := joinRaw(t, path, 0)
	r.send(msgBell, 0, 0, 0, 0, fd)
	waittest.Until(t, "disconnected", func() bool { return p.Stats().Violations == 1 })
	// Its own bell is still on the way to it.
	if kind, _, _, _, _, theirs := r.read(); kind == msgBell {
		unix.Close(theirs)
	}
}
