package shm

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A bell wakes a sleeper: a timerfd that its owner waits for, and that the
// other process sets to expire at once. Whatever that process does to the
// descriptor's flags or to the timer, setting it does not block, as writing to an
// eventfd would; and its owner never reads it, so that nothing blocks here either.
// It costs half of what a message would, and does not wake the sender's poller when
// it is taken.

// newBell makes the one that this side waits for.
func newBell() (*os.File, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return bellOf(fd)
}

// bellOf makes one of a timerfd, which it owns.
func bellOf(fd int) (*os.File, error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	b := os.NewFile(uintptr(fd), "timerfd")
	// Fails if the runtime cannot poll the descriptor.
	if err := b.SetReadDeadline(time.Time{}); err != nil {
		return nil, errors.Join(err, b.Close())
	}
	return b, nil
}

// listen calls rung each time that a bell rings, until its deadline for reading has passed. It
// calls ready as soon as no ring goes unheard.
func listen(b *os.File, ready, rung func()) {
	heard := ready
	raw, err := b.SyscallConn()
	if err != nil {
		return
	}
	// One call that never finds what it wants: between two, a ring would be lost.
	_ = raw.Read(func(uintptr) bool {
		heard()
		heard = rung
		return false
	})
}

// isTimer reports whether a descriptor can be rung.
func isTimer(fd int) bool {
	var now unix.ItimerSpec
	return unix.TimerfdGettime(fd, &now) == nil
}

// peerBell is the one that the peer waits for. It is no os.File, whose descriptor
// the runtime would poll: each ring would wake the sender too.
type peerBell struct {
	mu sync.Mutex
	fd int // -1: it is closed
}

func (b *peerBell) ring() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fd >= 0 {
		// A timer of a kind that may not be set wakes no sleeper: the peer chose it.
		_ = unix.TimerfdSettime(b.fd, 0, &atOnce, nil)
	}
}

func (b *peerBell) close() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fd >= 0 {
		unix.Close(b.fd)
		b.fd = -1
	}
}

// atOnce is the shortest time that does not stop a timer.
var atOnce = unix.ItimerSpec{Value: unix.Timespec{Nsec: 1}}

// hear wakes this side when the peer rings its bell, until quit.
func (p *Port) hear(s *session) (quit func()) {
	_ = s.own.SetReadDeadline(time.Time{}) // it worked before
	ready, listens := context.WithCancel(context.Background())
	var listening sync.WaitGroup
	listening.Go(func() {
		defer listens()
		listen(s.own, listens, func() {
			// A peer that went on would keep this side busy.
			if n, most := s.woken.Add(1), s.Slept.Load(); n > most {
				s.end(broken("number of wake-ups", n, fmt.Sprintf("at most %d: how often this side has slept", most)))
				return
			}
			p.counts.woken.Add(1)
			p.Wake.Call()
		})
	})
	<-ready.Done()
	p.Wake.Call() // it may have rung before
	return func() {
		_ = s.own.SetReadDeadline(time.Unix(1, 0))
		listening.Wait()
	}
}
