package shm

import (
	"errors"
	"fmt"
	"net"
	"os"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/passedfd"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
	"github.com/trapeze-nic/trapeze/wire/internal/line"
)

// A port that was made by Adopt with Options.Transferable can go to another process, and its peer
// does not notice. Pause stops it. State has what the other process makes a port of with
// Restore, paused as well. One of both calls Resume, and the other one Leave.

// State is where a paused port is in its memory. Positions count bytes, modulo 2^32, and are
// multiples of 64; numbers count frames.
type State struct {
	MTU      int  `json:"mtu"`      // largest frame of this side, in bytes.
	PeerMTU  int  `json:"peer_mtu"` // that of the peer.
	Ring     int  `json:"ring"`     // bytes of a ring: a power of two, MinRing to MaxRing.
	Barriers bool `json:"barriers"` // both sides take part in membarrier.
	Pulled   bool `json:"pulled"`   // the peer's plug is out.
	// Of the frames to the peer.
	Head uint32 `json:"head"` // position behind the last one.
	Sent uint32 `json:"sent"` // number of the next one.
	// Of the frames from the peer.
	Tail     uint32 `json:"tail"`     // position behind the last one that was taken, of which the peer knows.
	Received uint32 `json:"received"` // number of the next one.
	Wakes    uint64 `json:"wakes"`    // how often the peer may still wake this side.
}

// StateError says which field of a State cannot be.
type StateError struct {
	Field string
	Value any
	Want  string
}

// In returns the field.
func (e *StateError) In() string { return e.Field }

func (e *StateError) Error() string {
	return fmt.Sprintf("%s is %v, want %s", e.Field, e.Value, e.Want)
}

// Check fails with a *StateError if no port can be in this state. The first call in a process waits for
// all processors (membarrier(2)).
func (st State) Check() error {
	barriers := line.HasBarrier()
	mtu := fmt.Sprintf("%d to %d", datasheet.MinMTU, datasheet.MaxMTU)
	switch {
	case st.MTU < datasheet.MinMTU || st.MTU > datasheet.MaxMTU:
		return &StateError{"mtu", st.MTU, mtu}
	case st.PeerMTU < datasheet.MinMTU || st.PeerMTU > datasheet.MaxMTU:
		return &StateError{"peer_mtu", st.PeerMTU, mtu}
	case st.Ring > MaxRing || st.Ring < MinRing || st.Ring&(st.Ring-1) != 0 || st.Ring < ringFor(0, max(st.MTU, st.PeerMTU)):
		return &StateError{"ring", st.Ring, "a power of two that holds four of the largest frames"}
	case st.Barriers && !barriers:
		return &StateError{"barriers", true, "false, as this process cannot make any"}
	case st.Head%line.LineSize != 0:
		return &StateError{"head", st.Head, "a multiple of 64"}
	case st.Tail%line.LineSize != 0:
		return &StateError{"tail", st.Tail, "a multiple of 64"}
	}
	return nil
}

// Pause stops the port until Resume, Leave or Close. The caller's goroutine that sends and receives
// does not use it meanwhile. Pause fails with ends.ErrGone if there is no peer, and with
// ends.ErrOptions if the port is not transferable.
func (p *Port) Pause() error {
	if !p.options.Transferable || p.listener != nil {
		return fmt.Errorf("%w: the port is not transferable", ends.ErrOptions)
	}
	p.mu.Lock()
	s := p.live
	p.mu.Unlock()
	if s == nil {
		return ends.ErrGone
	}
	s.pausing.Store(true)
	s.conn.interrupt()
	p.running.Wait()
	if p.paused == nil {
		return ends.ErrGone
	}
	p.Abort()
	p.Flush()
	if p.state.Load()&stateFresh != 0 {
		p.turn()
	}
	p.Free()
	return nil
}

// pause keeps a session for Resume whose conversation was interrupted. It reports whether that
// was Pause, and the session goes on.
func (p *Port) pause(s *session) bool {
	select {
	case <-s.done:
		return false
	default:
	}
	if !s.pausing.Load() || p.ctx.Err() != nil {
		return false
	}
	p.paused = s
	return true
}

// Resume makes a paused port go on.
func (p *Port) Resume() {
	s := p.paused
	p.paused = nil
	s.pausing.Store(false)
	s.conn.Continue()
	p.running.Go(func() { p.serve(s) })
}

// Leave closes a paused port of which another process has the files: the peer does not notice.
func (p *Port) Leave() {
	s := p.paused
	p.paused = nil
	p.state.Or(stateClosed | stateLost)
	p.mu.Lock()
	p.live = nil
	p.mu.Unlock()
	s.memory.unmap()
	p.session, p.Pair, p.CreditEnd = nil, line.Pair{}, ends.CreditEnd{}
	s.end(vfio.ErrClosed)
	s.closeFiles()
	s.conn.Leave() // without a shutdown, which would be the other process's too
	_ = p.Close()
}

// State returns that of a paused port, and duplicates of its descriptors, which are the caller's. They
// are those of the connection, of the memory, and of both bells.
func (p *Port) State() (st State, fds []int, err error) {
	s := p.paused
	st = State{MTU: p.options.MTU, PeerMTU: p.Rx.Limit(), Ring: p.Tx.Ring(), Barriers: p.Light,
		Pulled: p.state.Load()&statePeerPulled != 0,
		Wakes:  s.Slept.Load() - min(s.Slept.Load(), s.woken.Load())}
	st.Head, st.Sent = p.Tx.Position()
	st.Tail, st.Received = p.Rx.Position()
	dup := func(fd int) error {
		fd, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err == nil {
			fds = append(fds, fd)
		}
		return os.NewSyscallError("dup", err)
	}
	err = errors.Join(passedfd.Control(s.conn, dup), dup(s.file), passedfd.Control(s.own, dup), dup(s.bell.fd))
	if err != nil {
		closeAll(fds)
		return st, nil, err
	}
	return st, fds, nil
}

// closeAll closes descriptors. passedfd would shut connections down, which another process has too.
func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}

// Restore makes a paused port of what another process has passed: a connection, and the descriptors
// behind it. It owns them. It fails with a *StateError, or an error that wraps ErrMemory.
func (st State) Restore(c *net.UnixConn, fds []int) (_ *Port, err error) {
	defer func() {
		if err != nil {
			_ = c.Close() // the process that has passed it goes on with it
			closeAll(fds)
		}
	}()
	if err := st.Check(); err != nil {
		return nil, err
	}
	if len(fds) != 3 || !isTimer(fds[1]) || !isTimer(fds[2]) {
		return nil, &StateError{"bell", len(fds), "3 descriptors, the last two of timers"}
	}
	p, err := newPort(Options{Path: "@adopted", Role: RoleListen, MTU: st.MTU, Ring: st.Ring, Transferable: true})
	if err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			p.cancel()
		}
	}()
	memory, err := mapRings(fds[0], fileSize(st.Ring))
	if err != nil {
		return nil, err
	}
	agreed := uint32(0)
	if st.Barriers {
		agreed = flagBarrier
	}
	own, err := bellOf(fds[1])
	if err != nil {
		memory.unmap()
		fds = []int{fds[0], fds[2]}
		return nil, err
	}
	s := newSession(newConn(c), memory, st.Ring, true, agreed, st.PeerMTU, own, fds[2])
	memory.number = *s.Tx.Number
	s.file = fds[0]
	s.Tx.Resume(st.Head, st.Sent)
	s.Rx.Resume(st.Tail, st.Received)
	// A bell that has rung before rings once more for a new listener.
	s.Slept.Store(st.Wakes + 1)
	s.pausing.Store(true)
	p.complete()
	p.enter(s)
	if st.Pulled {
		p.state.Or(statePeerPulled)
	}
	p.turn()
	p.paused = s
	return p, nil
}
