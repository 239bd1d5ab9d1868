package memif

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/protocol"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/ring"
)

const (
	// maxVisitors bounds the clients that have connected and not yet said what
	// they want. The one that has waited longest makes place for another.
	maxVisitors = 16
	// pause is the time without new clients after one that made no sense: a
	// flood of them costs little.
	pause = time.Millisecond
)

// visitor is a client that has connected.
type visitor struct {
	conn *protocol.Conn
	// until when it may say what it wants
	until time.Time
}

// run lets clients in until there is no port any more.
func (v *server) run() {
	defer close(v.stopped)
	var waiting []visitor
	defer func() {
		for _, w := range waiting {
			w.conn.Close()
		}
	}()
	var closedTo time.Time // no client is accepted until then
	for {
		now := time.Now()
		waiting = slices.DeleteFunc(waiting, func(w visitor) bool {
			late := now.After(w.until)
			if late {
				v.turnAway(w, fmt.Errorf("%w: it has not said what it wants", ErrTimeout))
			}
			return late
		})
		ready := v.poll(waiting, now, closedTo)
		if len(v.all()) == 0 {
			return
		}
		ok := true
		for i := range slices.Backward(waiting) {
			if ready[waiting[i].conn.FD()] {
				done, good := v.hear(waiting[i])
				if ok = ok && good; done {
					waiting = slices.Delete(waiting, i, i+1)
				}
			}
		}
		if ready[v.listener.FD()] {
			w, err := v.accept()
			switch {
			case err == nil && len(waiting) == maxVisitors:
				v.turnAway(waiting[0], fmt.Errorf("%w: others are waiting too", ErrTimeout))
				waiting = append(slices.Delete(waiting, 0, 1), w)
			case err == nil:
				waiting = append(waiting, w)
			case !errors.Is(err, protocol.ErrAgain):
				ok = false
			}
		}
		if !ok {
			closedTo = time.Now().Add(pause)
		}
	}
}

// poll waits until there is something to do, and says which descriptors are
// ready.
func (v *server) poll(waiting []visitor, now, closedTo time.Time) map[int]bool {
	fds := []unix.PollFd{{Fd: int32(v.bell.fd), Events: unix.POLLIN}}
	var deadline time.Time
	if now.Before(closedTo) {
		deadline = closedTo
	} else {
		fds = append(fds, unix.PollFd{Fd: int32(v.listener.FD()), Events: unix.POLLIN})
	}
	for _, w := range waiting {
		fds = append(fds, unix.PollFd{Fd: int32(w.conn.FD()), Events: unix.POLLIN})
		if deadline.IsZero() || w.until.Before(deadline) {
			deadline = w.until.Add(time.Nanosecond)
		}
	}
	// It can only fail for want of memory: then nothing is ready.
	_ = await(fds, deadline)
	ready := map[int]bool{}
	for _, f := range fds {
		ready[int(f.Fd)] = f.Revents != 0
	}
	return ready
}

// accept greets the next client.
func (v *server) accept() (visitor, error) {
	if passedfd.Full() {
		return visitor{}, passedfd.ErrFull
	}
	conn, err := v.listener.Accept()
	if err != nil {
		return visitor{}, err
	}
	hello := protocol.Hello{MinVersion: protocol.Version, MaxVersion: protocol.Version, MaxRegion: maxRegions - 1,
		MaxS2C: MaxQueues - 1, MaxLog2: ring.MaxLog2}
	var timeout time.Duration
	for i, p := range v.all() {
		// What all ports have: the client has not said which one it wants.
		o := &p.options
		hello.MaxS2C = min(hello.MaxS2C, uint16(o.Queues-1))
		hello.MaxLog2 = min(hello.MaxLog2, log2(o.Ring))
		if i == 0 {
			hello.Name, timeout = o.Name, o.Timeout
		}
		timeout = min(timeout, o.Timeout)
	}
	hello.MaxC2S = hello.MaxS2C
	if err := conn.Send(hello, -1); err != nil {
		conn.Close()
		return visitor{}, err
	}
	return visitor{conn: conn, until: time.Now().Add(timeout)}, nil
}

// hear takes a visitor's first message. It reports whether that was it, and
// whether it may have been.
func (v *server) hear(w visitor) (done, good bool) {
	body, fd, err := w.conn.Receive()
	if errors.Is(err, protocol.ErrAgain) {
		return false, true
	}
	if body, fd, err = judge(body, fd, err); err != nil {
		v.turnAway(w, err)
		return true, false
	}
	init, ok := body.(protocol.Init)
	if !ok {
		v.turnAway(w, unexpected(body, fd, "INIT"))
		return true, false
	}
	v.mu.Lock()
	p := v.ports[init.ID]
	v.mu.Unlock()
	why := ""
	switch {
	case init.Version != protocol.Version:
		why = "unsupported version"
	case p == nil:
		why = "no such interface id"
	default:
		if why = p.letIn(p.newTalk(w.conn, init.Name), init); why == "" {
			return true, true
		}
	}
	err = fmt.Errorf("%w: %s (version %#x, id %d, mode %d)", ErrNotWelcome, why, init.Version, init.ID, init.Mode)
	if p != nil {
		p.note(p.fail("accept", init.Name, err, ""))
	} else {
		v.noteAll(err)
	}
	_ = w.conn.Send(protocol.Disconnect{Reason: why}, -1)
	w.conn.Close()
	return true, false
}

// turnAway closes a visitor's connection and counts why.
func (v *server) turnAway(w visitor, err error) {
	(&talk{conn: w.conn}).disconnect(err)
	if !errors.Is(err, ends.ErrGone) && !errors.Is(err, ErrRefused) {
		v.noteAll(err)
	}
}

// noteAll counts for all ports what a client did that wanted none of them yet.
func (v *server) noteAll(err error) {
	for _, p := range v.all() {
		p.note(p.fail("accept", "", err, ""))
	}
}
