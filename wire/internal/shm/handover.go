package shm

import (
	"fmt"
	"net"
	"os"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
)

// A port that was made by Adopt with Options.Transferable can go to another process, and its peer
// does not notice. Pause stops it. State and Files have what the other process makes a port of
// with Restore, paused as well. One of both calls Resume, and the other one Leave.

// State is where a paused port is in its memory. Positions count bytes, modulo 2^32, and are
// multiples of 64; numbers count frames.
type State struct {
	MTU     int    `json:"mtu"`      // largest frame of this side, in bytes
	PeerMTU int    `json:"peer_mtu"` // that of the peer
	Ring    int    `json:"ring"`     // bytes of a ring: a power of two, MinRing to MaxRing
	Flags   uint32 `json:"flags"`    // that both sides have set in their greetings
	Pulled  bool   `json:"pulled"`   // the peer's plug is out
	// Of the frames to the peer.
	Head  uint32 `json:"head"`  // position behind the last one
	Freed uint32 `json:"freed"` // position up to which the peer is known to have taken them
	Sent  uint32 `json:"sent"`  // number of the next one
	// Of the frames from the peer.
	Tail     uint32 `json:"tail"`     // position behind the last one that was taken
	Given    uint32 `json:"given"`    // position up to which the peer knows of that
	Received uint32 `json:"received"` // number of the next one
	Wakes    uint64 `json:"wakes"`    // how often the peer may still wake this side
	// Bell and PeerBell say that there are descriptors of them.
	Bell     bool `json:"bell"`
	PeerBell bool `json:"peer_bell"`
}

// knownFlags are those that a port which was handed over may have.
const knownFlags = flagBarrier | flagBell | flagSingle | flagCredits

// StateError says which field of a State cannot be.
type StateError struct {
	Field string
	Value any
	Want  string
}

func (e *StateError) Error() string {
	return fmt.Sprintf("%s is %v, want %s", e.Field, e.Value, e.Want)
}

// Check fails with a *StateError if no port can be in this state.
func (s *State) Check() error {
	mtu := fmt.Sprintf("%d to %d", descriptors.MinMTU, descriptors.MaxMTU)
	ring := uint32(s.Ring)
	switch {
	case s.MTU < descriptors.MinMTU || s.MTU > descriptors.MaxMTU:
		return &StateError{"mtu", s.MTU, mtu}
	case s.PeerMTU < descriptors.MinMTU || s.PeerMTU > descriptors.MaxMTU:
		return &StateError{"peer_mtu", s.PeerMTU, mtu}
	case s.Ring > MaxRing || s.Ring < MinRing || s.Ring&(s.Ring-1) != 0 || s.Ring < ringFor(0, max(s.MTU, s.PeerMTU)):
		return &StateError{"ring", s.Ring, "a power of two that holds four of the largest frames"}
	case s.Flags&^knownFlags != 0:
		return &StateError{"flags", s.Flags, fmt.Sprintf("some of %#x", knownFlags)}
	case s.Flags&flagBarrier != 0 && !hasBarrier():
		return &StateError{"flags", s.Flags, "no barriers, which this process cannot make"}
	case s.Head%lineSize != 0:
		return &StateError{"head", s.Head, "a multiple of 64"}
	case s.Freed%lineSize != 0 || s.Head-s.Freed > ring:
		return &StateError{"freed", s.Freed, "a multiple of 64, at most a ring before head"}
	case s.Tail%lineSize != 0:
		return &StateError{"tail", s.Tail, "a multiple of 64"}
	case s.Given%lineSize != 0 || s.Tail-s.Given > ring:
		return &StateError{"given", s.Given, "a multiple of 64, at most a ring before tail"}
	case (s.Bell || s.PeerBell) && s.Flags&flagBell == 0:
		return &StateError{"bell", true, "none without the flag 4"}
	}
	return nil
}

// Files are the descriptors of a port. Bell and PeerBell are -1 if there are none.
type Files struct{ Wire, Memory, Bell, PeerBell int }

// Close closes the descriptors. passedfd would shut the connection down, which another process has too.
func (f Files) Close() {
	for _, fd := range []int{f.Wire, f.Memory, f.Bell, f.PeerBell} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
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
	_ = s.conn.c.SetReadDeadline(time.Unix(1, 0))
	p.running.Wait()
	if p.paused == nil {
		return ends.ErrGone
	}
	p.Abort()
	p.Flush()
	if p.state.Load()&stateFresh != 0 {
		p.turn()
	}
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

// Resume has a paused port go on.
func (p *Port) Resume() {
	s := p.paused
	p.paused = nil
	s.pausing.Store(false)
	_ = s.conn.c.SetReadDeadline(time.Time{})
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
	p.session, p.tx, p.rx, p.CreditEnd = nil, sender{}, receiver{}, ends.CreditEnd{}
	s.end(vfio.ErrClosed)
	s.closeFiles()
	_ = s.conn.c.Close() // without a shutdown, which would be the other process's too
	_ = p.Close()
}

// State returns that of a paused port, and duplicates of its descriptors, which are the caller's.
func (p *Port) State() (st State, f Files, err error) {
	s := p.paused
	tx, rx := &p.tx, &p.rx
	if p.session != s { // the data path has not come to it
		tx, rx = &s.tx, &s.rx
	}
	st = State{MTU: p.mtu, PeerMTU: int(rx.limit), Ring: len(tx.frames), Flags: s.agreed,
		Pulled: p.state.Load()&statePeerPulled != 0,
		Head:   tx.head, Freed: tx.freedSeen, Sent: tx.number, Tail: rx.tail, Given: rx.freedLast, Received: rx.number,
		Wakes: s.slept.Load() - min(s.slept.Load(), s.woken.Load())}
	f = Files{-1, -1, -1, -1}
	dup := func(to *int, from int) {
		if err == nil && from >= 0 {
			*to, err = unix.FcntlInt(uintptr(from), unix.F_DUPFD_CLOEXEC, 0)
		}
	}
	if cerr := s.conn.raw.Control(func(fd uintptr) { dup(&f.Wire, int(fd)) }); cerr != nil {
		err = cerr
	}
	dup(&f.Memory, s.file)
	if s.own != nil {
		_ = s.own.give(func(fd int) error { dup(&f.Bell, fd); return nil })
	}
	dup(&f.PeerBell, s.bell.fd)
	if err != nil {
		f.Close()
		return st, f, os.NewSyscallError("dup", err)
	}
	st.Bell, st.PeerBell = f.Bell >= 0, f.PeerBell >= 0
	return st, f, nil
}

// Restore makes a paused port of what another process has passed. It owns the connection and the
// descriptors, of which Files.Wire is not used. It fails with a *StateError, or an error that wraps
// ErrMemory.
func Restore(c *net.UnixConn, st State, f Files) (_ *Port, err error) {
	defer func() {
		if err != nil {
			_ = c.Close() // the process that has passed it goes on with it
			f.Close()
		}
	}()
	f.Wire = -1
	if err := st.Check(); err != nil {
		return nil, err
	}
	if st.Bell != (f.Bell >= 0) || st.PeerBell != (f.PeerBell >= 0) || f.Memory < 0 {
		return nil, &StateError{"bell", st.Bell, "as many descriptors as the state says"}
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
	conn, err := newConn(c)
	if err != nil {
		return nil, err
	}
	memory, err := p.maps.mapRings(f.Memory, fileSize(st.Ring, st.Flags&flagCredits != 0))
	if err != nil {
		return nil, err
	}
	memory.number = *numberIn(memory.mem)
	s := newSession(conn, memory, st.Ring, true, greeting{flags: st.Flags}, greeting{flags: st.Flags, mtu: st.PeerMTU})
	defer func() {
		if err != nil {
			memory.unmap()
		}
	}()
	var timer unix.ItimerSpec
	if st.PeerBell && unix.TimerfdGettime(f.PeerBell, &timer) != nil {
		return nil, &StateError{"peer_bell", f.PeerBell, "a descriptor of a timer"}
	}
	if st.Bell {
		if unix.TimerfdGettime(f.Bell, &timer) != nil {
			return nil, &StateError{"bell", f.Bell, "a descriptor of a timer"}
		}
		own, err := bellOf(f.Bell)
		f.Bell = -1
		if err != nil {
			return nil, err
		}
		s.own = own
	}
	s.bell.fd, s.file = f.PeerBell, f.Memory
	s.tx.head, s.tx.freedSeen, s.tx.number = st.Head, st.Freed, st.Sent
	s.rx.tail, s.rx.freedLast, s.rx.number = st.Tail, st.Given, st.Received
	// A bell that has rung before rings once more for a new listener.
	s.slept.Store(st.Wakes + 1)
	s.pausing.Store(true)
	p.makeScratch()
	p.enter(s)
	if st.Pulled {
		p.state.Or(statePeerPulled)
	}
	p.turn()
	p.paused = s
	return p, nil
}
