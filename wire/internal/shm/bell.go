package shm

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// A bell wakes a sleeper: a timerfd that its owner waits for, and that the
// other process sets to expire at once. Whatever that process does to the
// descriptor's flags or to the timer, setting it does not block, as writing to an
// eventfd would; and its owner never reads it, so that nothing blocks here either.
// It costs half of what a message would, and does not wake the sender's poller when
// it is taken.

// bell is the one that this side waits for.
type bell struct {
	file *os.File
	raw  syscall.RawConn
}

func newBell() (*bell, error) {
	fd, err := unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC|unix.TFD_NONBLOCK)
	if err != nil {
		return nil, os.NewSyscallError("timerfd_create", err)
	}
	return bellOf(fd)
}

// bellOf makes one of a timerfd, which it owns.
func bellOf(fd int) (b *bell, err error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		unix.Close(fd)
		return nil, os.NewSyscallError("fcntl", err)
	}
	b = &bell{file: os.NewFile(uintptr(fd), "timerfd")}
	// Fails if the runtime cannot poll the descriptor.
	if err = b.file.SetReadDeadline(time.Time{}); err == nil {
		b.raw, err = b.file.SyscallConn()
	}
	if err != nil {
		_ = b.file.Close()
		return nil, err
	}
	return b, nil
}

// quit ends listen.
func (b *bell) quit() { _ = b.file.SetReadDeadline(time.Unix(1, 0)) }

// listen calls rung each time that the bell rings, until quit. It
// calls ready as soon as no ring goes unheard.
func (b *bell) listen(ready, rung func()) {
	heard := ready
	// One call that never finds what it wants: between two, a ring would be lost.
	_ = b.raw.Read(func(uintptr) bool {
		heard()
		heard = rung
		return false
	})
}

// give calls f with the descriptor, for the peer.
func (b *bell) give(f func(fd int) error) error {
	var err error
	if cerr := b.raw.Control(func(fd uintptr) { err = f(int(fd)) }); cerr != nil {
		return cerr
	}
	return err
}

func (b *bell) close() { _ = b.file.Close() }

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
	b := s.own
	_ = b.file.SetReadDeadline(time.Time{}) // it worked before
	ready, listens := context.WithCancel(context.Background())
	var listening sync.WaitGroup
	listening.Go(func() {
		defer listens()
		b.listen(listens, func() {
			if err := s.wokenOnce(); err != nil {
				s.end(err)
				return
			}
			p.counts.woken.Add(1)
			p.Wake.Call()
		})
	})
	<-ready.Done()
	p.Wake.Call() // it may have rung before
	return func() {
		b.quit()
		listening.Wait()
	}
}

// wokenOnce counts a wake-up. There can be no more of them than this side has
// asked for: a peer that goes on would keep it busy.
func (s *session) wokenOnce() error {
	if n, most := s.woken.Add(1), s.Slept.Load(); n > most {
		return broken("number of wake-ups", n, fmt.Sprintf("at most %d: how often this side has slept", most))
	}
	return nil
}
