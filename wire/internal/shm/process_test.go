package shm_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// TestTwoProcesses has frames of all sizes go to another process and back, whole
// and in parts, in both roles.
func TestTwoProcesses(t *testing.T) {
	for _, tt := range []struct {
		ours, theirs shm.Role
		piece        int
	}{
		{shm.RoleListen, shm.RoleConnect, 0}, {shm.RoleConnect, shm.RoleListen, 500}, {shm.RoleAuto, shm.RoleAuto, 3000},
	} {
		t.Run(fmt.Sprint("role ", tt.ours), func(t *testing.T) {
			checkLeaks(t)
			path := socket(t)
			p := open(t, shm.Options{Path: path, Role: tt.ours, MTU: datasheet.MaxMTU})
			c := spawn(t, task{Do: "echo", Path: path, Role: tt.theirs, MTU: datasheet.MaxMTU, Piece: tt.piece})
			c.line()
			up(t, p)
			const frames = 500
			sent, received := 0, 0
			size := func(i int) int { return 8 * (1 + i*i%(p.MTU()/8)) }
			for end := time.Now().Add(timeout); received < frames; {
				if time.Now().After(end) {
					t.Fatalf("%d frames sent, %d received", sent, received)
				}
				if sent < frames && sent-received < 100 {
					if b := p.Reserve(size(sent)); b != nil {
						mark(b, uint64(sent))
						p.Commit()
						p.Flush()
						sent++
					}
				}
				f := p.Receive()
				if f == nil {
					time.Sleep(time.Microsecond)
					continue
				}
				n, aborted := p.Arrived()
				for n < len(f) && !aborted && time.Now().Before(end) {
					n, aborted = p.Arrived()
				}
				if i, ok := marked(f[:n]); len(f) != size(received) || i != uint64(received) || !ok {
					t.Fatalf("frame %d of %d bytes comes as number %d with %d, whole %v, aborted %v", received, size(received), i, n, ok, aborted)
				}
				p.Release()
				received++
			}
			c.finish()
			waittest.Until(t, "link down", func() bool { return !p.LinkUp() })
		})
	}
}

// TestKilledPeer has processes die at any moment of a stream of frames in parts.
// What came before is whole, and the next process is welcome.
func TestKilledPeer(t *testing.T) {
	checkLeaks(t)
	path := socket(t)
	p := open(t, shm.Options{Path: path, Role: shm.RoleListen})
	const peers = 6
	for i := range peers {
		c := spawn(t, task{Do: "stream", Path: path, Role: shm.RoleConnect, Size: 8000, Piece: 1000})
		c.line()
		up(t, p)
		enough, killed := 1+rand.IntN(1500), false
		for next := uint64(0); ; {
			if int(next) == enough && !killed {
				killed = true
				c.kill()
			}
			f := p.Receive()
			if f == nil {
				if !p.LinkUp() {
					break
				}
				continue
			}
			n, aborted := p.Arrived()
			for n < len(f) && !aborted {
				n, aborted = p.Arrived()
			}
			if !aborted {
				if number, ok := marked(f); !ok || number != next {
					t.Fatalf("frame %d comes as number %d, whole %v", next, number, ok)
				}
				next++
			}
			p.Release()
		}
		should.Fail(t, p.Err(), wire.ErrGone, "the link went down because")
		should.Be(t, p.Stats().Sessions, uint64(i)+1, "sessions")
		should.Be(t, p.Stats().Violations, 0, "violations")
	}
}

// TestKilledListener: who connects finds the next listener at the socket that
// the dead one has left.
func TestKilledListener(t *testing.T) {
	checkLeaks(t)
	path := socket(t)
	p := open(t, shm.Options{Path: path, Role: shm.RoleConnect})
	for range 3 {
		c := spawn(t, task{Do: "echo", Path: path, Role: shm.RoleListen})
		c.line()
		up(t, p)
		sendTo(t, p, []byte("are you there?"))
		should.Be(t, string(receiveFrom(t, p)), "are you there?", "received")
		c.kill()
		waittest.Until(t, "link down", func() bool { return !p.LinkUp() })
	}
}

// TestWakeFromAnotherProcess sleeps until a frame comes, over and over, at both
// ends.
func TestWakeFromAnotherProcess(t *testing.T) {
	checkLeaks(t)
	path := socket(t)
	p := open(t, shm.Options{Path: path, Role: shm.RoleListen})
	c := spawn(t, task{Do: "sleep", Path: path, Role: shm.RoleConnect})
	c.line()
	up(t, p)
	wake, woken := waittest.Bell()
	for range 500 {
		sendTo(t, p, []byte("wake me"))
		// What came before SetWake wakes nobody, and a call is good for once.
		for p.SetWake(wake); p.Receive() == nil; p.SetWake(wake) {
			waittest.Rung(t, woken)
		}
		p.Release()
		p.SetWake(nil)
	}
	if s := p.Stats(); s.Wakes == 0 || s.Woken == 0 {
		t.Errorf("%+v", s)
	}
	c.finish()
}
