package shm_test

import (
	"bytes"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// TestBrokenRules: a peer that writes what cannot be is disconnected, counted,
// and may try again.
func TestBrokenRules(t *testing.T) {
	hold := func(p *shm.Port) {
		for end := time.Now().Add(timeout); p.Receive() == nil && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	}
	for _, tt := range []struct {
		name string
		do   func(r *raw, p *shm.Port)
		says string // part of the error
	}{
		{"length beyond the MTU", func(r *raw, _ *shm.Port) { r.put(0, shm.DefaultMTU+1, 0, 0) }, "length"},
		{"more has arrived than there is", func(r *raw, _ *shm.Port) { r.put(0, 100, 101, 0) }, "arrived"},
		{"ended before its end", func(r *raw, _ *shm.Port) { r.put(0, 100, 99, 1) }, "ended"},
		{"unknown flags", func(r *raw, _ *shm.Port) { r.put(0, 100, 100, 33) }, "flags"},
		{"aborted, but not ended", func(r *raw, _ *shm.Port) { r.put(0, 100, 100, 2) }, "flags"},
		{"a number that jumps", func(r *raw, _ *shm.Port) { r.putWord(0, 7<<40) }, "number"},
		{"zeros", func(r *raw, _ *shm.Port) { r.putWord(0, 0) }, "number"},
		{"ones", func(r *raw, _ *shm.Port) { r.putWord(0, 1<<64-1) }, "number"},
		{"a frame that shrinks", func(r *raw, p *shm.Port) {
			r.put(0, 1000, 100, 0)
			hold(p)
			r.put(0, 900, 200, 0)
		}, "word"},
		{"a frame that becomes another", func(r *raw, p *shm.Port) {
			r.put(0, 1000, 100, 0)
			hold(p)
			r.putWord(0, 1000|200<<16|9<<40)
		}, "word"},
		{"a frame of which less has arrived", func(r *raw, p *shm.Port) {
			r.put(0, 1000, 500, 0)
			hold(p)
			p.Arrived()
			r.put(0, 1000, 400, 0)
		}, "arrived"},
		{"an unknown message", func(r *raw, _ *shm.Port) { r.send(99, 0, 0, 0, 0) }, "kind"},
		{"a greeting", func(r *raw, _ *shm.Port) { r.send(msgHello, magic, version, 1500, 0) }, "kind"},
		{"half a message", func(r *raw, _ *shm.Port) { r.write(make([]byte, 16)) }, "size"},
		{"a plug that is neither in nor out", func(r *raw, _ *shm.Port) { r.send(msgLink, 1, 2, 0, 0) }, "plug"},
		{"a file with a wake message", func(r *raw, _ *shm.Port) { r.send(msgWake, 0, 0, 0, 0, 0) }, "descriptor"},
		{"more wake messages than it was asked for", func(r *raw, p *shm.Port) {
			p.SetWake(func() {})
			r.send(msgWake, 0, 0, 0, 0)
			r.send(msgWake, 0, 0, 0, 0)
		}, "wake-ups"},
		{"a bell that is none", func(r *raw, _ *shm.Port) { r.send(msgBell, 0, 0, 0, 0) }, "bell"},
		{"an export nobody asked for", func(r *raw, _ *shm.Port) { r.send(msgExport, 1, 0, 4096, 0, 0) }, "shared"},
		{"an export that ends", func(r *raw, _ *shm.Port) { r.send(msgUnexport, 1, 0, 0, 0) }, "shared"},
		{"an export that was accepted", func(r *raw, _ *shm.Port) { r.send(msgExported, 1, 0, 0, 0) }, "shared"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkLeaks(t)
			path := socket(t)
			p := open(t, shm.Options{Path: path, Role: shm.RoleListen})
			r := joinRaw(t, path, 0)
			up(t, p)
			tt.do(r, p)
			waittest.Until(t, "disconnected", func() bool {
				if f := p.Receive(); f != nil {
					if _, aborted := p.Arrived(); aborted {
						p.Release()
					}
				}
				return p.Stats().Violations == 1
			})
			var e *shm.PeerError
			if err := p.Err(); !errors.Is(err, shm.ErrPeer) || !errors.As(err, &e) || !strings.Contains(e.Error(), tt.says) {
				t.Errorf("error %v, want one about %q", err, tt.says)
			}
			if p.LinkUp() {
				t.Error("link is up")
			}
			p.Release()
			again := joinRaw(t, path, 0)
			up(t, p)
			copy(again.frames(), "a good frame")
			again.put(0, 12, 12, 1)
			if got := receiveFrom(t, p); string(got) != "a good frame" {
				t.Errorf("received %q", got)
			}
		})
	}
}

// TestFreedJumps: a peer that says it has read what was not sent, or less than
// it said before.
func TestFreedJumps(t *testing.T) {
	for name, by := range map[string]uint32{"a line": 64, "a lap": 1 << 15, "half of all": 1 << 31, "back": 1<<32 - 4096} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			path := socket(t)
			p := open(t, shm.Options{Path: path, Role: shm.RoleListen, MTU: 4096, Ring: 1})
			r := joinRaw(t, path, 0)
			up(t, p)
			sent := uint32(0)
			fill := func() {
				for p.Reserve(4096) != nil && p.LinkUp() {
					p.Commit()
					sent += 4096
				}
				p.Flush()
			}
			fill()
			atomic.StoreUint32(r.freed(), sent)
			fill()
			if s := p.Stats(); s.Violations != 0 || sent != 2*uint32(r.ring) {
				t.Fatalf("sent %d bytes through a ring of %d, %+v", sent, r.ring, s)
			}
			read := sent - uint32(r.ring)
			if by < 1<<31 {
				read = sent
			}
			atomic.StoreUint32(r.freed(), read+by)
			if p.Reserve(4096) != nil {
				t.Error("room for a frame")
			}
			waittest.Until(t, "disconnected", func() bool { return p.Stats().Violations == 1 })
			if p.Reserve(4096) == nil {
				t.Error("Reserve holds up while the link is down")
			}
		})
	}
}

// TestPeerChangesFrames: what Receive gives may change, and where it lies not.
func TestPeerChangesFrames(t *testing.T) {
	checkLeaks(t)
	path := socket(t)
	p := open(t, shm.Options{Path: path, Role: shm.RoleListen})
	r := joinRaw(t, path, 0)
	up(t, p)
	copy(r.frames(), bytes.Repeat([]byte{1}, 200))
	r.put(0, 200, 200, 1)
	var f []byte
	waittest.Until(t, "a frame", func() bool { f = p.Receive(); return f != nil })
	r.putWord(0, 1<<64-1) // after it was read
	r.frames()[199] = 9
	if g := p.Receive(); len(f) != 200 || len(g) != 200 || &f[0] != &g[0] || g[199] != 9 {
		t.Errorf("frames of %d and %d bytes", len(f), len(g))
	}
	if n, aborted := p.Arrived(); n != 200 || aborted {
		t.Errorf("%d bytes, aborted %v", n, aborted)
	}
	p.Release()
	copy(r.frames()[256:], "next")
	r.put(1, 4, 4, 1)
	if got := receiveFrom(t, p); string(got) != "next" {
		t.Errorf("received %q", got)
	}
}

// TestWritesAfterItsEnd: a peer that has left, but goes on writing, is listened to for
// as many frames as fit.
func TestWritesAfterItsEnd(t *testing.T) {
	checkLeaks(t)
	path := socket(t)
	p := open(t, shm.Options{Path: path, Role: shm.RoleListen})
	r := joinRaw(t, path, 0)
	up(t, p)
	const ended = 1
	r.put(0, 64, 64, ended)
	if p.Receive() == nil {
		t.Fatal("no frame")
	}
	p.Release()
	if err := r.c.Close(); err != nil {
		t.Fatal(err)
	}
	waittest.Until(t, "link down", func() bool { return !p.LinkUp() })
	n := 0
	for ; n <= r.ring; n++ {
		r.put(n+1, 64, 64, ended)
		if p.Receive() == nil {
			break
		}
		p.Release()
	}
	if n == 0 || n > r.ring/256 {
		t.Errorf("%d frames were taken after the end, there is room for %d", n, r.ring/256)
	}
	if s := p.Stats(); s.Violations != 0 || s.Sessions != 1 {
		t.Errorf("%+v", s)
	}
}

// TestFrameNumbersWrap: numbers have 24 bits. The peer is one lap ahead of them.
func TestFrameNumbersWrap(t *testing.T) {
	if !soak.Wanted() || raceDetector {
		t.Skip("sends 2^24 frames: run it with " + soak.Variable)
	}
	a, b := pair(t, shm.Options{MTU: 160, Ring: 1})
	frame := make([]byte, 64)
	for i := range 1<<24 + 1000 {
		s := a.Reserve(len(frame))
		if s == nil {
			t.Fatal("no room")
		}
		s[0] = byte(i)
		a.Commit()
		a.Flush()
		f := b.Receive()
		if len(f) != 64 || f[0] != byte(i) {
			t.Fatalf("frame %d: %d bytes", i, len(f))
		}
		b.Release()
	}
	if s := b.Stats(); s.Violations != 0 {
		t.Errorf("%+v", s)
	}
}

// TestPositionsWrap: positions in a ring have 32 bits, and a lap rarely ends where a
// frame does.
func TestPositionsWrap(t *testing.T) {
	if testing.Short() || raceDetector {
		t.Skip("sends 4 GiB")
	}
	a, b := pair(t, shm.Options{})
	sizes := []int{shm.DefaultMTU, shm.DefaultMTU - 63, 8192, 100}
	for i, sent := 0, uint64(0); sent < 1<<32+1<<20; i++ {
		n := sizes[i%len(sizes)]
		s := a.Reserve(n)
		if s == nil {
			t.Fatalf("no room after %d bytes", sent)
		}
		s[0], s[n-1] = byte(i), byte(i>>8)
		a.Commit()
		a.Flush()
		f := b.Receive()
		if len(f) != n || f[0] != byte(i) || f[n-1] != byte(i>>8) {
			t.Fatalf("frame %d, after %d bytes: %d bytes, want %d", i, sent, len(f), n)
		}
		b.Release()
		sent += uint64(n)
	}
	if s := b.Stats(); s.Violations != 0 {
		t.Errorf("%+v", s)
	}
}

// TestPeerWithoutBarrier: one that takes no part in membarrier is woken, and
// wakes, all the same.
func TestPeerWithoutBarrier(t *testing.T) {
	for name, flags := range map[string]uint64{"without": 0, "with": flagBarrier} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			path := socket(t)
			p := open(t, shm.Options{Path: path, Role: shm.RoleListen})
			r := joinRaw(t, path, flags)
			up(t, p)
			for range 3 {
				r.poke(asleepOffset, 1) // in the first part: it receives there
				sendTo(t, p, []byte("wake up"))
				r.readUntil(msgWake)
				if asleep := r.theirs[asleepOffset]; asleep != 0 {
					t.Errorf("it still seems to sleep: %d", asleep)
				}
			}
			woken := make(chan struct{})
			p.SetWake(func() { close(woken) })
			if r.ours[asleepOffset] == 0 {
				t.Error("this side does not say that it sleeps")
			}
			copy(r.frames(), "you too")
			r.put(0, 7, 7, 1)
			r.send(msgWake, 0, 0, 0, 0)
			<-woken
			if got := receiveFrom(t, p); string(got) != "you too" {
				t.Errorf("received %q", got)
			}
			p.SetWake(nil)
			if r.ours[asleepOffset] != 0 {
				t.Error("this side still says that it sleeps")
			}
		})
	}
}

// TestCreditWords: credit is where the package's documentation says.
func TestCreditWords(t *testing.T) {
	checkLeaks(t)
	path := socket(t)
	p := open(t, shm.Options{Path: path, Role: shm.RoleListen})
	r := joinRaw(t, path, 0)
	up(t, p)
	p.Receive() // it turns to the peer
	if _, asks, ok := p.GiveCredit(7, 5, 3); asks || !ok {
		t.Fatalf("asks %v, has words %v", asks, ok)
	}
	if w := atomic.LoadUint64(r.creditWord(true, 7, 0)); w != 5<<32|3 {
		t.Errorf("given: %#x", w)
	}
	atomic.StoreUint64(r.creditWord(true, 7, 1), 5<<32|3)
	if asked, asks, _ := p.GiveCredit(7, 5, 4); asked != 3 || !asks {
		t.Errorf("asked at %d, %v", asked, asks)
	}
	if got := p.TakeCredit(4095, 9, 2); got != 2 {
		t.Errorf("credit %d, and none was given", got)
	}
	if w := atomic.LoadUint64(r.creditWord(false, 4095, 1)); w != 9<<32|2 {
		t.Errorf("asked: %#x", w)
	}
	atomic.StoreUint64(r.creditWord(false, 4095, 0), 9<<32|12)
	if got := p.TakeCredit(4095, 9, 2); got != 12 {
		t.Errorf("credit %d, 12 was given", got)
	}
	if _, _, ok := p.GiveCredit(4096, 5, 3); ok {
		t.Error("endpoint 4096 has words")
	}
}

// hungPeer: a peer that answers nothing holds no other one up for ever.
func hungPeer(t *testing.T) {
	path := socket(t)
	p := open(t, shm.Options{Path: path, Role: shm.RoleListen})
	r := joinRaw(t, path, 0)
	up(t, p)
	p.SetLink(false)
	p.SetLink(true)
	// It wants to be woken for each frame, and reads no message.
	for range 5000 {
		r.poke(asleepOffset, 1)
		sendTo(t, p, make([]byte, 64))
		atomic.AddUint32(r.freed(), 64)
		atomic.AddUint32(r.freedFrames(), 1)
	}
	if n := p.Stats().Wakes; n < 100 {
		t.Errorf("%d wake messages", n)
	}
}
