package shm_test

import (
	"bytes"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/ci/kit/wiretest"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
	"golang.org/x/sys/unix"
)

// TestBrokenRules: a peer that writes or says what cannot be is disconnected, counted, and may try again.
func TestBrokenRules(t *testing.T) {
	hold := func(p *shm.Port) {
		for end := time.Now().Add(timeout); p.Receive() == nil && time.Now().Before(end); {
			time.Sleep(time.Millisecond)
		}
	}
	word := func(length, arrived, flags uint64) func(*testing.T, *raw, *shm.Port) {
		return func(_ *testing.T, r *raw, _ *shm.Port) { r.put(0, length, arrived, flags) }
	}
	// From one word of a frame on its way to another.
	becomes := func(before, after uint64) func(*testing.T, *raw, *shm.Port) {
		return func(_ *testing.T, r *raw, p *shm.Port) {
			r.putWord(0, before)
			hold(p)
			p.Arrived()
			r.putWord(0, after)
		}
	}
	says := func(kind, id uint32, a, b, c uint64, files ...int64) func(*testing.T, *raw, *shm.Port) {
		return func(t *testing.T, r *raw, _ *shm.Port) {
			var fds []int
			for _, size := range files {
				fds = append(fds, sealedFile(t, size, unix.F_SEAL_SHRINK))
			}
			r.send(kind, id, a, b, c, fds...)
		}
	}
	const first, size, shares = 1 << 40, datasheet.DirectTableSize, flagShare
	for _, tt := range []struct {
		name  string
		flags uint64 // of the greeting
		do    func(t *testing.T, r *raw, p *shm.Port)
		says  string // part of the error
	}{
		{"length beyond the MTU", 0, word(shm.DefaultMTU+1, 0, 0), "length"},
		{"more has arrived than there is", 0, word(100, 101, 0), "arrived"},
		{"ended before its end", 0, word(100, 99, 1), "ended"},
		{"unknown flags", 0, word(100, 100, 33), "flags"},
		{"aborted, but not ended", 0, word(100, 100, 2), "flags"},
		{"a number that jumps", 0, func(_ *testing.T, r *raw, _ *shm.Port) { r.putWord(0, 7<<40) }, "number"},
		{"zeros", 0, func(_ *testing.T, r *raw, _ *shm.Port) { r.putWord(0, 0) }, "number"},
		{"ones", 0, func(_ *testing.T, r *raw, _ *shm.Port) { r.putWord(0, 1<<64-1) }, "number"},
		{"a frame that shrinks", 0, becomes(first|1000|100<<16, first|900|200<<16), "word"},
		{"a frame that becomes another", 0, becomes(first|1000|100<<16, 9<<40|1000|200<<16), "word"},
		{"a frame of which less has arrived", 0, becomes(first|1000|500<<16, first|1000|400<<16), "arrived"},

		{"short, and longer than the MTU", 0, word(shm.DefaultMTU-63, 0, 5), "length"},
		{"short, and longer than can be", 0, word(0xffff, 0, 5), "length"},
		{"more references than fit", 0, word(113, 0, 13), "length"},
		{"more references than fit beside immediate data", 0, word(105, 0, 29), "length"},
		{"short, and not ended", 0, word(10, 0, 4), "flags"},
		{"an unknown flag of a short one", 0, word(10, 0, 5|64), "flags"},
		{"lent, and not short", 0, word(10, 10, 9), "flags"},
		{"a number of a short one that jumps", 0, func(_ *testing.T, r *raw, _ *shm.Port) { r.putWord(0, 10|5<<32|3<<40) }, "number"},
		{"frames freed that were not sent", 0, func(_ *testing.T, r *raw, _ *shm.Port) { atomic.StoreUint32(r.freedFrames(), 1) }, "freed frames"},
		{"half of all freed", 0, func(_ *testing.T, r *raw, _ *shm.Port) { atomic.StoreUint32(r.freedFrames(), 1<<31) }, "freed frames"},
		{"bytes freed that were not sent", 0, func(_ *testing.T, r *raw, _ *shm.Port) { atomic.StoreUint32(r.freed(), 64) }, "freed bytes"},

		{"an unknown message", 0, says(99, 0, 0, 0, 0), "kind"},
		{"a greeting", 0, says(msgHello, magic, version, 1500, 0), "kind"},
		{"half a message", 0, func(_ *testing.T, r *raw, _ *shm.Port) { r.write(make([]byte, 16)) }, "size"},
		{"a plug that is neither in nor out", 0, says(msgLink, 1, 2, 0, 0), "plug"},
		{"a file with a plug", 0, says(msgLink, 1, 1, 0, 0, page), "descriptor"},
		{"a bell that rings all the time", 0, func(t *testing.T, r *raw, p *shm.Port) {
			p.SetWake(func() {})
			for end := time.Now().Add(timeout); p.Stats().Violations == 0 && time.Now().Before(end); {
				ring(t, r.bells[1])
			}
		}, "wake-ups"},

		{"an export nobody asked for", 0, says(msgExport, 1, 0, page, 0, page), "shared"},
		{"an export that ends", 0, says(msgUnexport, 1, 0, 0, 0), "shared"},
		{"an export that was accepted", 0, says(msgExported, 1, 0, 0, 0), "shared"},
		{"an export for writing that was not agreed on", shares, says(msgExport, 1, 0, page, 1, page), "flags"},
		{"unknown flags of an export", shares | flagWrite, says(msgExport, 1, 0, page, 2, page), "flags"},
		{"a table nobody asked for", 0, says(msgTable, 0, size, 0, 0, size), "kind"},
		{"a table without a descriptor", shares, says(msgTable, 0, size, 0, 0), "descriptors"},
		{"a table of another size", shares, says(msgTable, 0, size+page, 0, 0, size+page), "size"},
		{"a table in a file that is shorter", shares, says(msgTable, 0, size, 0, 0, size-page), "pages"},
		{"a table that can be truncated", shares, func(t *testing.T, r *raw, _ *shm.Port) {
			r.send(msgTable, 0, size, 0, 0, sealedFile(t, size, unix.F_SEAL_GROW))
		}, "pages"},
		{"two tables", shares, func(t *testing.T, r *raw, p *shm.Port) {
			says(msgTable, 0, size, 0, 0, size)(t, r, p)
			says(msgTable, 0, size, 0, 0, size)(t, r, p)
		}, "kind"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkLeaks(t)
			p, r := withRaw(t, shm.Options{Share: true, ShareWrite: true}, tt.flags)
			tt.do(t, r, p)
			waittest.Until(t, "disconnected", func() bool {
				p.Room()
				if p.Next(); p.Receive() != nil {
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
			should.Be(t, p.LinkUp(), false, "link is up")
			p.SetWake(nil)
			p.Release()
			again := joinRaw(t, r.path, 0)
			up(t, p)
			copy(again.frames(), "a good frame")
			again.put(0, 12, 12, 1)
			should.Be(t, string(receiveFrom(t, p)), "a good frame", "received")
		})
	}
}

// TestFreedJumps: a peer that says it has read what was not sent, or less than
// it said before.
func TestFreedJumps(t *testing.T) {
	for name, by := range map[string]uint32{"a line": 64, "a lap": 1 << 15, "half of all": 1 << 31, "back": 1<<32 - 4096} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			p, r := withRaw(t, shm.Options{MTU: 4096, Ring: 1}, 0)
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
			should.Be(t, p.Reserve(4096) != nil, false, "room for a frame")
			waittest.Until(t, "disconnected", func() bool { return p.Stats().Violations == 1 })
			should.Be(t, p.Reserve(4096) == nil, false, "Reserve holds up while the link is down")
		})
	}
}

// TestPeerChangesFrames: what Receive gives may change, and where it lies not.
func TestPeerChangesFrames(t *testing.T) {
	checkLeaks(t)
	p, r := withRaw(t, shm.Options{}, 0)
	copy(r.frames(), bytes.Repeat([]byte{1}, 200))
	r.put(0, 200, 200, 1)
	f := wiretest.Await(t, p)
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
	should.Be(t, string(receiveFrom(t, p)), "next", "received")
}

// TestWritesAfterItsEnd: a peer that has left, but goes on writing, is listened to for
// as many frames as fit.
func TestWritesAfterItsEnd(t *testing.T) {
	checkLeaks(t)
	p, r := withRaw(t, shm.Options{}, 0)
	const ended = 1
	r.put(0, 64, 64, ended)
	must.Be(t, p.Receive() == nil, false, "no frame")
	p.Release()
	must.OK(t, r.c.Close())
	waittest.Until(t, "link down", func() bool { return !p.LinkUp() })
	n := 0
	for ; n <= r.ring; n++ {
		r.put(n+1, 64, 64, ended)
		if p.Receive() == nil {
			break
		}
		p.Release()
	}
	should.Hold(t, n != 0 && n <= r.ring/256, "%d frames were taken after the end, there is room for %d", n, r.ring/256)
	should.Be(t, p.Stats().Violations, 0, "violations")
	should.Be(t, p.Stats().Sessions, 1, "sessions")
}

// TestFrameNumbersWrap: numbers have 24 bits. The peer is one lap ahead of them.
func TestFrameNumbersWrap(t *testing.T) {
	if !soak.Wanted() || raceDetector {
		t.Skip("sends 2^24 frames: run it with " + soak.Variable)
	}
	goRound(t, shm.Options{MTU: 160, Ring: 1}, 64*(1<<24+1000), 64)
}

// TestPositionsWrap: positions in a ring have 32 bits, and a lap rarely ends where a
// frame does.
func TestPositionsWrap(t *testing.T) {
	if testing.Short() || raceDetector {
		t.Skip("sends 4 GiB")
	}
	goRound(t, shm.Options{}, 1<<32+1<<20, shm.DefaultMTU, shm.DefaultMTU-63, 8192, 100)
}

// goRound sends so many bytes in frames of some sizes, one after the other.
func goRound(t *testing.T, o shm.Options, bytes uint64, sizes ...int) {
	a, b := pair(t, o)
	for i, sent := 0, uint64(0); sent < bytes; i++ {
		n := sizes[i%len(sizes)]
		s := a.Reserve(n)
		must.Be(t, s == nil, false, "no room")
		s[0], s[n-1] = byte(i), byte(i>>8)
		a.Commit()
		a.Flush()
		f := b.Receive()
		must.Hold(t, len(f) == n && f[0] == byte(i) && f[n-1] == byte(i>>8), "frame %d, after %d bytes: %d bytes, want %d", i, sent, len(f), n)
		b.Release()
		sent += uint64(n)
	}
	should.Be(t, b.Stats().Violations, 0, "violations")
}

// TestCreditWords: credit is where the package's documentation says.
func TestCreditWords(t *testing.T) {
	checkLeaks(t)
	p, r := withRaw(t, shm.Options{}, 0)
	p.Receive() // it turns to the peer
	if _, asks, ok := p.GiveCredit(7, 5, 3); asks || !ok {
		t.Fatalf("asks %v, has words %v", asks, ok)
	}
	should.Be(t, atomic.LoadUint64(r.creditWord(true, 7, 0)), 5<<32|3, "given")
	atomic.StoreUint64(r.creditWord(true, 7, 1), 5<<32|3)
	if asked, asks, _ := p.GiveCredit(7, 5, 4); asked != 3 || !asks {
		t.Errorf("asked at %d, %v", asked, asks)
	}
	should.Be(t, p.TakeCredit(4095, 9, 2), 2, "credit, and none was given")
	should.Be(t, atomic.LoadUint64(r.creditWord(false, 4095, 1)), 9<<32|2, "asked")
	atomic.StoreUint64(r.creditWord(false, 4095, 0), 9<<32|12)
	should.Be(t, p.TakeCredit(4095, 9, 2), 12, "credit, 12 was given")
	if _, _, ok := p.GiveCredit(4096, 5, 3); ok {
		t.Error("endpoint 4096 has words")
	}
}

// hungPeer: a peer that answers nothing holds no other one up for ever.
func hungPeer(t *testing.T) {
	p, r := withRaw(t, shm.Options{}, 0)
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
