package memif

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/buserror"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/protocol"
)

const (
	// lookEvery is the time between two looks at the rings of a port with a sleeper to wake.
	// After askedLooks looks in a row that found interrupts asked for, the pace is
	// lookSlowly. It does not end: a peer without a barrier between its index and
	// its look at the flags may miss that these have changed.
	lookEvery  = time.Millisecond
	lookSlowly = 100 * time.Millisecond
	askedLooks = 2
	// stormLimit is the number of interrupts in a row that may be for nothing. Then they
	// are not looked at for lookEvery.
	stormLimit = 64
	// unblockEvery is the time that the peer can keep a signal waiting.
	unblockEvery = 100 * time.Millisecond
)

// watch looks after a connection.
type watch struct {
	port         *Port
	session      *session
	talk         *talk
	idleRounds   int
	emptyWakeups int
	maskedUntil  time.Time // no interrupts are looked at until then
}

func (w *watch) run() error {
	p, s := w.port, w.session
	fds := []unix.PollFd{{Fd: int32(p.bell.fd), Events: unix.POLLIN}, {Fd: int32(w.talk.conn.FD()), Events: unix.POLLIN}}
	const events = 2
	for _, e := range s.receiveEvents {
		fds = append(fds, unix.PollFd{Fd: int32(e.fd), Events: unix.POLLIN})
	}
	next := time.Now()
	for {
		if err := w.tick(&next); err != nil {
			return err
		}
		polled := fds[:events]
		if p.interrupts.Load() && !time.Now().Before(w.maskedUntil) {
			polled = fds
		}
		until := time.Now().Add(unblockEvery)
		if !next.IsZero() && next.Before(until) {
			until = next
		}
		if err := await(polled, until); err != nil {
			return err
		}
		for _, e := range s.sendEvents {
			if e.unblock() {
				return fmt.Errorf("%w: it keeps those who signal it waiting", ErrViolation)
			}
		}
		if polled[0].Revents != 0 {
			p.bell.drain()
			next = time.Now()
			w.idleRounds = 0
		}
		if f := s.failure.Load(); f != nil {
			return *f
		}
		if p.current.Load() != s { // the plug was pulled, maybe put back already
			return ErrUnplugged
		}
		if polled[1].Revents != 0 {
			if err := w.listen(); err != nil {
				return err
			}
		}
		for i := events; i < len(polled); i++ {
			if polled[i].Revents != 0 {
				s.receiveEvents[i-events].drain()
				if err := w.interrupted(); err != nil {
					return err
				}
			}
		}
	}
}

// listen takes a message of the peer. Once connected, there is only one that it
// may send.
func (w *watch) listen() error {
	body, fd, err := w.talk.conn.Receive()
	if errors.Is(err, protocol.ErrAgain) {
		return nil
	}
	body, fd, err = judge(body, fd, err)
	if err != nil {
		return err
	}
	return unexpected(body, fd, "DISCONNECT")
}

// interrupted passes an interrupt on.
func (w *watch) interrupted() error {
	p := w.port
	p.counters.interrupts.Add(1)
	pending, err := w.pending()
	if err != nil {
		return err
	}
	w.idleRounds = 0
	if pending {
		w.emptyWakeups = 0
		p.wake.Call()
		return nil
	}
	p.counters.spurious.Add(1)
	if w.emptyWakeups++; w.emptyWakeups >= stormLimit {
		w.emptyWakeups = 0
		w.maskedUntil = time.Now().Add(lookEvery)
	}
	return nil
}

// tick does what is to be done from time to time if a sleeper is to be woken,
// and sets when the next time is.
func (w *watch) tick(next *time.Time) error {
	p := w.port
	now := time.Now()
	if !next.IsZero() && now.Before(*next) {
		return nil
	}
	interrupts := p.interrupts.Load()
	switch {
	case interrupts == p.masked.Load():
		// Interrupts are off although they are wanted, because frames came some
		// time ago, or the other way around.
		if err := w.setInterrupts(interrupts); err != nil {
			return err
		}
		w.idleRounds = 0
	case interrupts:
		w.idleRounds = min(w.idleRounds+1, askedLooks)
	}
	if !p.wake.IsSet() {
		*next = time.Time{}
		return nil
	}
	*next = now.Add(lookEvery)
	if interrupts && w.idleRounds == askedLooks {
		*next = now.Add(lookSlowly)
	}
	pending, err := w.pending()
	if err == nil && pending {
		p.wake.Call()
	}
	return err
}

// setInterrupts asks for interrupts or for none.
func (w *watch) setInterrupts(on bool) error {
	w.port.masked.Store(!on)
	return w.careful(func() {
		for _, r := range w.session.receivers {
			r.SetInterrupts(on)
		}
	})
}

// pending reports whether there are frames to be received.
func (w *watch) pending() (any bool, err error) {
	err = w.careful(func() {
		for _, r := range w.session.receivers {
			any = any || r.Pending()
		}
	})
	return any, err
}

// careful runs f, which touches memory that may have vanished.
func (w *watch) careful(f func()) error {
	if !w.session.guarded {
		f()
		return nil
	}
	if err := buserror.Catch(f); err != nil {
		return fmt.Errorf("%w: %w", ErrMemory, err)
	}
	return nil
}
