package shm_test

import (
	"bytes"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ci/kit/wiretest"
	"github.com/trapeze-nic/trapeze/wire"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// TestFramesBeforeThePeer: without a peer frames are lost, and nothing waits.
func TestFramesBeforeThePeer(t *testing.T) {
	checkLeaks(t)
	for _, role := range []shm.Role{shm.RoleListen, shm.RoleConnect, shm.RoleAuto} {
		p := open(t, shm.Options{Path: socket(t), Role: role})
		should.Be(t, p.LinkUp(), false, "%v: link is up without a peer", role)
		for range 1000 { // more than a ring holds
			b := p.Reserve(p.MTU())
			must.Be(t, len(b), p.MTU(), "%v: Reserve gave bytes", role)
			b[0], b[len(b)-1] = 1, 1
			p.Publish(100)
			p.Commit()
			p.Flush()
			p.Abort()
		}
		if p.Receive() != nil || !errors.Is(p.Err(), wire.ErrNotListening) && role == shm.RoleConnect {
			t.Errorf("%v: a frame, or no reason why there is none: %v", role, p.Err())
		}
		p.Release()
	}
}

// TestPeerComesAndGoes makes one end stay while others come, in each role.
func TestPeerComesAndGoes(t *testing.T) {
	for _, role := range []shm.Role{shm.RoleListen, shm.RoleConnect, shm.RoleAuto} {
		t.Run(fmt.Sprint("role ", role), func(t *testing.T) {
			checkLeaks(t)
			other := map[shm.Role]shm.Role{shm.RoleListen: shm.RoleConnect, shm.RoleConnect: shm.RoleListen}[role]
			path := socket(t)
			stays := open(t, shm.Options{Path: path, Role: role})
			var mu sync.Mutex
			var seen []bool
			stays.OnLink(func() {
				mu.Lock()
				defer mu.Unlock()
				if up := stays.LinkUp(); len(seen) == 0 || seen[len(seen)-1] != up {
					seen = append(seen, up)
				}
			})
			const times = 8
			for i := range times {
				comes := open(t, shm.Options{Path: path, Role: other})
				up(t, stays, comes)
				bounce(t, stays, comes, 1000+i)
				bounce(t, comes, stays, 2000+i)
				sendTo(t, comes, []byte("on the wire when it ends"))
				stays.Reserve(100) // a frame that is never finished
				closePort(t, comes)
				waittest.Until(t, "link down", func() bool { return !stays.LinkUp() })
				// What it has sent arrives, once.
				if f := stays.Receive(); string(f) != "on the wire when it ends" {
					t.Errorf("a peer that has left said %q", f)
				}
				stays.Release()
				should.Be(t, stays.Receive() != nil, false, "a frame that nobody sent")
				should.Fail(t, stays.Err(), wire.ErrGone, "the link went down because")
			}
			waittest.Until(t, "all changes told", func() bool {
				mu.Lock()
				defer mu.Unlock()
				return len(seen) == 2*times
			})
			should.Be(t, stays.Stats().Sessions, times, "sessions")
			should.Be(t, stays.Stats().Violations, 0, "violations")
		})
	}
}

// TestHeldOverReconnect keeps a frame that was received, and space for one to
// send, while the peer is replaced.
func TestHeldOverReconnect(t *testing.T) {
	for name, shown := range map[string]int{"reserved": 0, "published": 100} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			path := socket(t)
			stays := open(t, shm.Options{Path: path, Role: shm.RoleListen})
			first := open(t, shm.Options{Path: path, Role: shm.RoleConnect})
			up(t, stays, first)
			sent := bytes.Repeat([]byte{7}, 4000)
			sendTo(t, first, sent)
			held := wiretest.Await(t, stays)
			space := stays.Reserve(3000)
			stays.Publish(shown)
			closePort(t, first)
			second := open(t, shm.Options{Path: path, Role: shm.RoleConnect})
			up(t, second)
			waittest.Until(t, "link up again", func() bool { return stays.LinkUp() && stays.Stats().Sessions == 2 })
			should.Same(t, held, sent, "a frame changed while it was held")
			if n, aborted := stays.Arrived(); n != len(sent) || aborted {
				t.Errorf("%d bytes have arrived, aborted %v", n, aborted)
			}
			stays.Release()
			stays.Receive() // turns to the second peer
			clear(space)
			stays.Publish(1000)
			clear(space)
			stays.Commit()
			stays.Flush()
			should.Be(t, second.Receive() != nil, false, "a frame that was begun for the first peer")
			bounce(t, stays, second, 500)
			bounce(t, second, stays, 500)
		})
	}
}

// TestPlugs pulls and puts back plugs before and while a peer is there.
func TestPlugs(t *testing.T) {
	checkLeaks(t)
	path := socket(t)
	a := open(t, shm.Options{Path: path, Role: shm.RoleListen})
	a.SetLink(false)
	b := open(t, shm.Options{Path: path, Role: shm.RoleConnect})
	waittest.Until(t, "a session", func() bool { return a.Stats().Sessions == 1 })
	waittest.Until(t, "the other end knows of the plug", func() bool { return !b.LinkUp() })
	should.Be(t, a.LinkUp(), false, "link is up with the plug out")
	a.SetLink(true)
	should.Be(t, a.LinkUp() && b.LinkUp(), true, "link is down with the plug in")
	bounce(t, a, b, 100)
	for range 50 {
		a.SetLink(false)
		b.SetLink(false)
		must.Be(t, a.LinkUp() || b.LinkUp(), false, "link is up")
		must.Be(t, a.Reserve(100) != nil, false, "room for a frame while the link is down")
		a.SetLink(true)
		must.Be(t, a.LinkUp(), false, "link is up though the other plug is out")
		b.SetLink(true)
		must.Be(t, b.Receive() != nil, false, "a frame that was sent while the link was down")
		bounce(t, b, a, 100)
	}
}

// TestPlugsAtTheSameTime: neither waits for the other.
func TestPlugsAtTheSameTime(t *testing.T) {
	checkLeaks(t)
	a, b := pair(t, shm.Options{})
	var both sync.WaitGroup
	for _, p := range []*shm.Port{a, b} {
		both.Go(func() {
			for range 200 {
				p.SetLink(false)
				p.SetLink(true)
			}
		})
	}
	both.Wait()
	should.Be(t, a.LinkUp() && b.LinkUp(), true, "link is down in the end")
	bounce(t, a, b, 100)
}

// TestCloseFromAnywhere closes ends while frames pass.
func TestCloseFromAnywhere(t *testing.T) {
	checkLeaks(t)
	for i := range 20 {
		a, b := pair(t, shm.Options{})
		var users sync.WaitGroup
		stop := make(chan struct{})
		use := func(p *shm.Port) {
			frame := make([]byte, 3000)
			for {
				select {
				case <-stop:
					p.Receive()
					return
				default:
				}
				if s := p.Reserve(len(frame)); s != nil {
					copy(s, frame)
					p.Publish(1000)
					p.Commit()
					p.Flush()
				}
				for f := p.Receive(); f != nil; f = p.Receive() {
					n, _ := p.Arrived()
					copy(frame, f[:n])
					p.Release()
				}
			}
		}
		users.Go(func() { use(a) })
		users.Go(func() { use(b) })
		users.Go(func() {
			a.SetWake(func() {})
			a.SetLink(false)
			a.SetLink(true)
			a.SetWake(nil)
		})
		time.Sleep(time.Duration(i) * 100 * time.Microsecond)
		var closers sync.WaitGroup
		for _, p := range []*shm.Port{a, b, a} {
			closers.Go(func() {
				should.OK(t, p.Close())
			})
		}
		closers.Wait()
		close(stop)
		users.Wait()
		should.Be(t, a.LinkUp() || b.LinkUp(), false, "a closed link is up")
	}
}
