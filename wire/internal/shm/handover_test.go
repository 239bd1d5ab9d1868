package shm_test

import (
	"encoding/binary"
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ci/kit/wiretest"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// adopted makes both ends of a wire of a connection that exists. The first is transferable.
func adopted(t testing.TB) (ours, theirs *shm.Port) {
	t.Helper()
	fds, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	must.OK(t, err)
	made := make(chan error, 1)
	go func() {
		var err error
		theirs, err = shm.Adopt(t.Context(), connection(t, fds[1]), shm.Options{Role: shm.RoleConnect})
		made <- err
	}()
	ours, err = shm.Adopt(t.Context(), connection(t, fds[0]), shm.Options{Role: shm.RoleListen, Transferable: true})
	must.OK(t, errors.Join(err, <-made))
	t.Cleanup(func() { closePort(t, theirs) })
	return ours, theirs
}

// connection makes one of a descriptor, which it owns.
func connection(t testing.TB, fd int) *net.UnixConn {
	t.Helper()
	file := os.NewFile(uintptr(fd), "wire")
	c, err := net.FileConn(file)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Error(err)
		return nil
	}
	return c.(*net.UnixConn)
}

// transfer makes another port take the place of one, as another process would.
func transfer(t testing.TB, p *shm.Port) *shm.Port {
	t.Helper()
	must.OK(t, p.Pause())
	st, fds := must.Two(p.State())(t)
	next := must.Get(st.Restore(connection(t, fds[0]), fds[1:]))(t)
	p.Leave()
	next.Resume()
	return next
}

// TestTransfer: frames that wait in either direction arrive once and in order while the port goes
// from one process to the next, also one that is held.
func TestTransfer(t *testing.T) {
	checkLeaks(t)
	ours, theirs := adopted(t)
	sent, got := uint32(0), [2]uint32{}
	receive := func(side int, p *shm.Port, release bool) {
		t.Helper()
		f := wiretest.Await(t, p)
		must.Be(t, binary.LittleEndian.Uint32(f), got[side], "side %d: frame", side)
		if release {
			p.Release()
			got[side]++
		}
	}
	for round := range 200 {
		for range round%7 + 1 {
			for _, p := range []*shm.Port{ours, theirs} {
				b := p.Reserve(3000)
				must.Be(t, b == nil, false, "no room")
				binary.LittleEndian.PutUint32(b, sent)
				p.Commit()
				p.Flush()
			}
			sent++
		}
		receive(0, ours, round%2 == 0)
		if round%3 == 0 {
			ours.Reserve(100) // it is never sent
		}
		ours = transfer(t, ours)
		for got[0] < sent {
			receive(0, ours, true)
		}
		for got[1] < sent {
			receive(1, theirs, true)
		}
	}
	if s := theirs.Stats(); s.Sessions != 1 || s.Violations != 0 || !theirs.LinkUp() {
		t.Errorf("the peer has noticed: %+v", s)
	}
	closePort(t, ours)
	waittest.Until(t, "the peer sees the end", func() bool { return !theirs.LinkUp() })
}

// awaitAsleep waits for a frame as an owner does that sleeps.
func awaitAsleep(t *testing.T, p *shm.Port) {
	t.Helper()
	wake, woken := waittest.Bell()
	for p.Receive() == nil {
		p.SetWake(wake)
		if p.Receive() != nil {
			break
		}
		waittest.Rung(t, woken)
	}
	p.Release()
}

// TestTransferWakes: the port that has taken the other's place wakes a peer that sleeps, and is
// woken by it, also while it changes hands.
func TestTransferWakes(t *testing.T) {
	checkLeaks(t)
	ours, theirs := adopted(t)
	for i := range 100 {
		var sent sync.WaitGroup
		sent.Go(func() {
			if i%2 == 0 {
				time.Sleep(time.Duration(i) * 10 * time.Microsecond) // either is right
			}
			sendTo(t, theirs, []byte("to who sleeps"))
		})
		ours.SetWake(func() {}) // asleep
		ours = transfer(t, ours)
		awaitAsleep(t, ours)
		sent.Wait()
		sent.Go(func() { awaitAsleep(t, theirs) })
		sendTo(t, ours, []byte("to the peer that sleeps"))
		sent.Wait()
		theirs.SetWake(nil)
		ours.SetWake(nil)
	}
	should.Be(t, theirs.Stats().Violations, 0, "violations")
	should.Be(t, theirs.Stats().Sessions, 1, "sessions")
	closePort(t, ours)
}

// TestPauseResume: a transfer that comes to nothing leaves the port as it was, also if another has
// been made of it meanwhile.
func TestPauseResume(t *testing.T) {
	checkLeaks(t)
	ours, theirs := adopted(t)
	for i := range 20 {
		must.OK(t, ours.Pause())
		st, fds := must.Two(ours.State())(t)
		sendTo(t, theirs, []byte{byte(i)})
		if i%2 == 0 {
			for _, fd := range fds {
				unix.Close(fd)
			}
		} else if next, err := st.Restore(connection(t, fds[0]), fds[1:]); err != nil {
			t.Error(err)
		} else {
			next.Leave()
		}
		ours.Resume()
		var got []byte
		waittest.Until(t, "the frame of meanwhile", func() bool { got = ours.Receive(); return got != nil })
		must.Same(t, got, []byte{byte(i)}, "%d", i)
		ours.Release()
		bounce(t, ours, theirs, 1000+i)
	}
	must.OK(t, ours.Pause())
	closePort(t, ours) // of a paused port
	waittest.Until(t, "the peer sees the end", func() bool { return !theirs.LinkUp() })
	should.Fail(t, ours.Pause(), ends.ErrGone, "a closed port")
}

// TestPauseOfAnEnd: a peer that leaves meanwhile is gone afterwards.
func TestPauseOfAnEnd(t *testing.T) {
	checkLeaks(t)
	ours, theirs := adopted(t)
	must.OK(t, ours.Pause())
	closePort(t, theirs)
	ours.Resume()
	waittest.Until(t, "the end", func() bool { return !ours.LinkUp() })
	closePort(t, ours)
	should.Refuse(shm.New(t.Context(), shm.Options{Path: socket(t), Transferable: true}))(t, ends.ErrOptions, "a port that may connect")
	a, _ := pair(t, shm.Options{})
	should.Fail(t, a.Pause(), ends.ErrOptions, "not transferable")
}

// TestRestoreRefuses: what another process passes is checked, and what is left of it closed.
func TestRestoreRefuses(t *testing.T) {
	checkLeaks(t)
	ours, _ := adopted(t)
	must.OK(t, ours.Pause())
	for field, change := range map[string]func(s *shm.State){
		"mtu":      func(s *shm.State) { s.MTU = 1 << 20 },
		"peer_mtu": func(s *shm.State) { s.PeerMTU = 0 },
		"ring":     func(s *shm.State) { s.Ring += 4096 },
		"head":     func(s *shm.State) { s.Head++ },
		"tail":     func(s *shm.State) { s.Tail += 32 },
	} {
		st, fds := must.Two(ours.State())(t)
		change(&st)
		var bad *shm.StateError
		if _, err := st.Restore(connection(t, fds[0]), fds[1:]); !errors.As(err, &bad) || bad.Field != field {
			t.Errorf("%s: %v", field, err)
		}
	}
	for what, change := range map[string]func(fds []int){
		"memory that shrinks": func(fds []int) {
			unix.Close(fds[1])
			fds[1], _ = unix.Dup(sealedFile(t, 1<<20, unix.F_SEAL_GROW))
		},
		"short memory": func(fds []int) {
			unix.Close(fds[1])
			fds[1], _ = unix.Dup(sealedFile(t, page, unix.F_SEAL_GROW|unix.F_SEAL_SHRINK))
		},
		"a bell that is none": func(fds []int) { unix.Close(fds[2]); fds[2], _ = unix.Dup(fds[1]) },
		"the peer's":          func(fds []int) { unix.Close(fds[3]); fds[3], _ = unix.Dup(fds[1]) },
	} {
		st, fds := must.Two(ours.State())(t)
		change(fds)
		if _, err := st.Restore(connection(t, fds[0]), fds[1:]); err == nil {
			t.Errorf("%s is taken", what)
		}
	}
	ours.Resume()
	closePort(t, ours)
}
