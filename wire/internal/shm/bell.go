package shm

import (
	"context"
	"fmt"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
)

// A bell wakes a sleeper: a timerfd that its owner waits for, and that the
// other process sets to expire at once. Whatever that process does to the
// descriptor's flags or to the timer, setting it does not block, as writing to an
// eventfd would; and its owner never reads it, so that nothing blocks here either.
// It costs half of what a message does, and does not wake the sender's poller when
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

// peerBell is the one that the peer waits for. It is no os.File, whose descriptor
// the runtime would poll: each ring would wake the sender too.
type peerBell struct {
	mu sync.Mutex
	fd int // -1: there is none
}

// set takes a descriptor, which belongs to the bell from then on. It reports
// whether it is one that can be rung.
func (b *peerBell) set(fd int) bool {
	var now unix.ItimerSpec
	if unix.TimerfdGettime(fd, &now) != nil {
		_ = passedfd.Close(fd)
		return false
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.fd = fd
	return true
}

func (b *peerBell) isSet() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.fd >= 0
}

// ring reports whether there is a bell.
func (b *peerBell) ring() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.fd < 0 {
		return false
	}
	// A timer of a kind that may not be set wakes no sleeper: the peer chose it.
	_ = unix.TimerfdSettime(b.fd, 0, &atOnce, nil)
	return true
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

// offerBell gives the peer a bell to wake this side with, unless it has one. Without one, as there may
// be no descriptors left, the peer sends messages. quit ends the use of this bell until the next call.
func (p *Port) offerBell(s *session) (quit func()) {
	b, offered := s.own, s.own != nil
	if !offered {
		var err error
		if b, err = newBell(); err != nil {
			return func() {}
		}
		s.own = b
	} else if b.file.SetReadDeadline(time.Time{}) != nil {
		return func() {} // it worked before
	}
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
	if offered {
		p.Wake.Call() // it may have rung before
	} else if err := b.give(func(fd int) error { return s.conn.send(message{kind: kindBell}, fd) }); err != nil {
		s.end(err)
	}
	return func() {
		b.quit()
		listening.Wait()
	}
}

// takeBell takes the bell with which to wake the peer.
func (s *session) takeBell(m message, fd int) error {
	switch {
	case fd < 0:
		return broken("descriptors of a bell", 0, "1")
	case s.bell.isSet():
		_ = passedfd.Close(fd)
		return broken("kind of a message", uint64(m.kind), "one bell")
	case !s.bell.set(fd):
		return broken("timers in the descriptor of a bell", 0, "1")
	}
	return nil
}

// wokenOnce counts a wake-up. There can be no more of them than this side has
// asked for: a peer that goes on would keep it busy.
func (s *session) wokenOnce() error {
	if n, most := s.woken.Add(1), s.Slept.Load(); n > most {
		return broken("number of wake-ups", n, fmt.Sprintf("at most %d: how often this side has slept", most))
	}
	return nil
}
