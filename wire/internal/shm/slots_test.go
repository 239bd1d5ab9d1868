package shm_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// shortHeader is one of which every field differs.
const shortHeader = 0xdef09abc56781234

const shortTag datasheet.ShortBeside = 0x1357

// TestShortFrames: a short frame stands where the package's documentation says, up to 112 bytes in its
// slot, or 104 beside immediate data, more in the ring.
func TestShortFrames(t *testing.T) {
	checkLeaks(t)
	path := socket(t)
	p := open(t, shm.Options{Path: path, Role: shm.RoleListen})
	r := joinRaw(t, path, 0)
	up(t, p)
	p.Receive() // it turns to the peer
	const immediate = 0x89abcdef
	type frame struct {
		n      int
		beside datasheet.ShortBeside
		flags  uint64 // of the word
		room   int    // in the slot
	}
	data := shortTag.WithImmediate(immediate)
	frames := []frame{{16, shortTag | datasheet.ShortLent, 13, 112}, {96, data | datasheet.ShortLent, 29, 104}}
	for _, n := range []int{1, 64, 112, 113, 1000} {
		frames = append(frames, frame{n, shortTag, 5, 112})
	}
	for _, n := range []int{1, 40, 41, 64, 104, 105, 112, 1000} {
		frames = append(frames, frame{n, data, 21, 104})
	}
	frames = append(frames, frame{48, shortTag, 5, 112})
	ring := 0
	for i, f := range frames {
		n, want := f.n, bytes.Repeat([]byte{byte(f.n)}, f.n)
		if mark, ok := p.Put(shortHeader, f.beside, want, i%2 == 0); !ok || mark != uint32(i+1) || mark != p.Mark() {
			t.Fatalf("%d bytes: %v, position %d", n, ok, mark)
		}
		p.Flush()
		if w := atomic.LoadUint64(r.word(r.theirs, i)); w != uint64(n)|0x1357<<16|f.flags<<32|uint64(i+1)<<40 {
			t.Errorf("frame %d: word %#x", i, w)
		}
		s := r.slot(r.theirs, i)
		at := s[8+112-f.room:]
		if f.room != 112 && binary.LittleEndian.Uint32(s[8:]) != immediate {
			t.Errorf("frame %d: immediate data % x", i, s[8:12])
		}
		if n > f.room {
			at, ring = r.theirs[r.framesAt()+ring:], ring+(n+63)/64*64
		}
		if h := binary.LittleEndian.Uint64(s); h != shortHeader || !bytes.Equal(at[:n], want) {
			t.Errorf("frame %d: header %#x, % x", i, h, at[:n])
		}
	}
	ring = 0
	for i, f := range frames {
		n, want := f.n, bytes.Repeat([]byte{byte(f.n)}, f.n)
		copy(r.frames()[ring:], want)
		stands := binary.LittleEndian.AppendUint64(nil, immediate)[:112-f.room]
		r.putShort(i, shortHeader, append(stands, want[:min(n, f.room)]...), uint64(n), 0x1357, f.flags)
		if i%3 == 0 && p.Receive() != nil { // which may look first
			t.Errorf("frame %d is received", i)
		}
		for range 2 {
			if got, h, beside, found := p.Next(); found != engine.FoundShort || h != shortHeader || beside != f.beside || !bytes.Equal(got, want) {
				t.Errorf("frame %d: %#x, %#x, found %v, % x", i, h, beside, found, got)
			}
			if p.Receive() != nil {
				t.Errorf("frame %d is received", i)
			}
		}
		p.Pass(i%2 == 0)
		p.Pass(true) // there is none
		if n > f.room {
			ring += (n + 63) / 64 * 64
		}
	}
	if _, _, _, found := p.Next(); found != engine.FoundNone || atomic.LoadUint32(r.freedWord(0)) != uint32(ring) || atomic.LoadUint32(r.freedWord(1)) != uint32(len(frames)) {
		t.Errorf("given back: %d bytes, %d frames", *r.freedWord(0), *r.freedWord(1))
	}
}

// TestTwoRooms: slots and bytes of the ring run out apart, and are free again once the peer says so.
func TestTwoRooms(t *testing.T) {
	checkLeaks(t)
	path := socket(t)
	p := open(t, shm.Options{Path: path, Role: shm.RoleListen, MTU: 4096, Ring: 1})
	r := joinRaw(t, path, 0)
	up(t, p)
	p.Receive()
	slots := r.ring / 256
	short := func() bool {
		_, sent := p.Put(shortHeader, shortTag, make([]byte, 112), false)
		p.Flush()
		return sent
	}
	for i := range slots {
		if !short() {
			t.Fatalf("no room for frame %d of %d", i, slots)
		}
	}
	if short() || p.Reserve(64) != nil || p.Mark() != uint32(slots) {
		t.Fatalf("more frames than slots; mark %d", p.Mark())
	}
	atomic.StoreUint32(r.freedFrames(), uint32(slots))
	whole := 0
	for ; p.Reserve(4096) != nil; whole++ {
		p.Commit()
	}
	if whole != r.ring/4096 {
		t.Errorf("%d frames of 4096 bytes in %d", whole, r.ring)
	}
	if _, sent := p.Put(shortHeader, shortTag, make([]byte, 113), true); sent || !short() {
		t.Error("a ring without room has room, or its slots have none")
	}
	atomic.StoreUint32(r.freed(), 4096)
	if p.Reserve(4096) == nil {
		t.Error("what was given back is not free")
	}
	if s := p.Stats(); s.Violations != 0 {
		t.Errorf("%+v", s)
	}
}

// TestBrokenSlots: a peer that writes what cannot be into a slot is disconnected, and may try again.
func TestBrokenSlots(t *testing.T) {
	for _, tt := range []struct {
		name string
		do   func(r *raw)
		says string // part of the error
	}{
		{"longer than the MTU", func(r *raw) { r.putShort(0, 0, nil, shm.DefaultMTU-63, 0, 5) }, "length"},
		{"longer than can be", func(r *raw) { r.putShort(0, 0, nil, 0xffff, 0, 5) }, "length"},
		{"more references than fit", func(r *raw) { r.putShort(0, 0, nil, 113, 0, 13) }, "length"},
		{"short, and not ended", func(r *raw) { r.putShort(0, 0, nil, 10, 0, 4) }, "flags"},
		{"an unknown flag", func(r *raw) { r.putShort(0, 0, nil, 10, 0, 5|64) }, "flags"},
		{"more references than fit beside immediate data", func(r *raw) { r.putShort(0, 0, nil, 105, 0, 29) }, "length"},
		{"lent, and not short", func(r *raw) { r.put(0, 10, 10, 9) }, "flags"},
		{"a number that jumps", func(r *raw) { r.putWord(0, 10|5<<32|3<<40) }, "number"},
		{"frames freed that were not sent", func(r *raw) { atomic.StoreUint32(r.freedFrames(), 1) }, "freed frames"},
		{"half of all freed", func(r *raw) { atomic.StoreUint32(r.freedFrames(), 1<<31) }, "freed frames"},
		{"bytes freed that were not sent", func(r *raw) { atomic.StoreUint32(r.freed(), 64) }, "freed bytes"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkLeaks(t)
			path := socket(t)
			p := open(t, shm.Options{Path: path, Role: shm.RoleListen})
			r := joinRaw(t, path, 0)
			up(t, p)
			tt.do(r)
			waittest.Until(t, "disconnected", func() bool {
				p.Room()
				_, _, _, found := p.Next()
				return found == engine.FoundNone && p.Stats().Violations == 1
			})
			var e *shm.PeerError
			if err := p.Err(); !errors.As(err, &e) || !strings.Contains(e.Error(), tt.says) {
				t.Errorf("error %v, want one about %q", err, tt.says)
			}
			again := joinRaw(t, path, 0)
			up(t, p)
			again.putShort(0, 1, []byte("a good frame"), 12, 0, 5)
			var got []byte
			waittest.Until(t, "a frame", func() bool {
				f, _, _, found := p.Next()
				got = f
				return found == engine.FoundShort
			})
			if string(got) != "a good frame" {
				t.Errorf("received %q", got)
			}
		})
	}
}

// checkShort fails unless a short frame is one that can be.
func checkShort(t *testing.T, payload []byte, beside datasheet.ShortBeside) {
	t.Helper()
	lent, immediate := beside&datasheet.ShortLent != 0, beside&datasheet.ShortImmediate != 0
	if len(payload) > shm.DefaultMTU-64 || lent && len(payload) > 112 || lent && immediate && len(payload) > 104 || beside>>18&(1<<14-1) != 0 || !immediate && beside>>32 != 0 {
		t.Fatalf("a short frame of %d bytes, beside its header %#x", len(payload), beside)
	}
}

// TestChangingSlots: a slot that another processor changes all the time is looked at once: each frame is one of those that
// were written, with a length, a tag and flags that belong together.
func TestChangingSlots(t *testing.T) {
	checkLeaks(t)
	path := socket(t)
	p := open(t, shm.Options{Path: path, Role: shm.RoleListen})
	r := joinRaw(t, path, 0)
	up(t, p)
	p.Receive() // it turns to the peer
	rounds := 2000
	if soak.Wanted() {
		rounds = 1_000_000
	}
	var at atomic.Int64 // number of the frame that is changed; negative: the end
	var changing sync.WaitGroup
	changing.Go(func() {
		for v := uint64(1); ; v++ {
			i := int(at.Load())
			if i < 0 {
				return
			}
			// The tag says how long it is, and whether there are immediate data: the header as well.
			n, flags := v*11%105, uint64(5)
			if v&1 != 0 {
				flags = 21
			}
			tag := n<<8 | flags
			atomic.StoreUint64(r.header(i), tag|tag<<16|tag<<32|tag<<48)
			r.put(i, n, tag, flags)
		}
	})
	seen := map[uint64]bool{}
	for i := range rounds {
		f, h, beside, found := p.Next()
		for found != engine.FoundShort {
			if found == engine.FoundOther || !p.LinkUp() {
				t.Fatalf("frame %d: found %v, %v", i, found, p.Err())
			}
			runtime.Gosched()
			f, h, beside, found = p.Next()
		}
		tag := uint64(beside.Tag())
		if len(f) != int(tag>>8) || beside&datasheet.ShortImmediate != 0 != (tag&16 != 0) || h&0xffff*0x1000100010001 != h {
			t.Fatalf("frame %d: %d bytes, header %#x, beside it %#x", i, len(f), h, beside)
		}
		seen[tag] = true
		at.Store(int64(i + 1))
		p.Pass(false)
	}
	at.Store(-1)
	changing.Wait()
	if len(seen) < 50 {
		t.Errorf("%d kinds of frames", len(seen))
	}
}

// TestShortFramesOfOneThatLeft: short frames that a peer has sent before it left arrive. One that has been looked at stays
// until Pass though another peer has come, which does not notice.
func TestShortFramesOfOneThatLeft(t *testing.T) {
	checkLeaks(t)
	path := socket(t)
	p := open(t, shm.Options{Path: path, Role: shm.RoleListen})
	r := joinRaw(t, path, 0)
	up(t, p)
	p.Receive() // it turns to the peer
	next := func(want string) (payload []byte) {
		t.Helper()
		waittest.Until(t, "a frame", func() bool {
			f, _, _, found := p.Next()
			payload = f
			return found == engine.FoundShort
		})
		if string(payload) != want {
			t.Fatalf("received %q, want %q", payload, want)
		}
		return payload
	}
	for i, frame := range []string{"first", "second", "third"} {
		r.putShort(i, 0, []byte(frame), uint64(len(frame)), 0, 5)
	}
	next("first")
	r.close()
	waittest.Until(t, "link down", func() bool { return !p.LinkUp() })
	next("first")
	p.Pass(false)
	f := next("second")
	again := joinRaw(t, path, 0)
	up(t, p)
	if b := p.Reserve(64); b == nil {
		t.Error("Reserve holds up while the link is down")
	}
	p.Commit()
	p.Flush()
	if string(f) != "second" {
		t.Errorf("%q", f)
	}
	p.Pass(true)
	p.Pass(true)
	again.putShort(0, 0, []byte("good"), 4, 0, 5)
	next("good") // and the third is lost
	p.Pass(true)
	if s := p.Stats(); s.Violations != 0 || s.Sessions != 2 {
		t.Errorf("%+v", s)
	}
}

// TestScribbledSlots: whatever a peer writes in slots, at any time, what is given out lies in one piece where
// the peer's frames may be. Its length is what the word said.
func TestScribbledSlots(t *testing.T) {
	checkLeaks(t)
	path := socket(t)
	p := open(t, shm.Options{Path: path, Role: shm.RoleListen, MTU: 4096, Ring: 1})
	rnd := rand.New(rand.NewPCG(31, 2))
	rounds, taken, frames, sessions := 100_000, 0, 0, 0
	switch {
	case soak.Wanted():
		rounds = 1_000_000
	case raceDetector:
		rounds = 10_000
	}
	payload := make([]byte, 4032)
	for rounds > 0 {
		r := joinRaw(t, path, 0)
		up(t, p)
		sessions++
		next := 0
		for ; rounds > 0 && p.LinkUp(); rounds-- {
			switch kind := rnd.IntN(512); {
			case kind == 0:
				r.putWord(next, rnd.Uint64())
			case kind == 1:
				r.poke(rnd.IntN(len(r.mem)), rnd.Uint64())
			case kind == 2:
				r.putShort(next, rnd.Uint64(), nil, rnd.Uint64()&0xffff, rnd.Uint64()&0xffff, rnd.Uint64()&0xff)
			case kind < 400:
				n := []int{0, 1, 16, 111, 112, 113, 4000, shm.DefaultMTU - 64}[rnd.IntN(8)]
				flags := []uint64{5, 5, 7, 13, 21}[rnd.IntN(5)]
				if n > 112 {
					flags &^= 8
				}
				r.putShort(next, rnd.Uint64(), nil, uint64(n), rnd.Uint64()&0xffff, flags)
			default:
				p.Put(shortHeader, datasheet.ShortBeside(rnd.Uint64())&^datasheet.ShortLent, payload[:rnd.IntN(4032)], rnd.IntN(2) == 0)
				p.Flush()
			}
			f, _, beside, found := p.Next()
			if found == engine.FoundShort {
				checkShort(t, f, beside)
			} else if f = p.Receive(); len(f) > shm.DefaultMTU {
				t.Fatalf("a frame of %d bytes", len(f))
			}
			if f != nil {
				next++
				frames++
				if rnd.IntN(8) == 0 { // between the look and the copy
					r.putShort(next-1, rnd.Uint64(), nil, rnd.Uint64()&0xffff, rnd.Uint64()&0xffff, rnd.Uint64()&0xff)
				}
				for _, c := range f {
					taken += int(c & 1) // all of it can be read
				}
				if found == engine.FoundShort {
					p.Pass(rnd.IntN(2) == 0)
				} else {
					p.Release()
				}
			} else {
				next = int(atomic.LoadUint32(r.freedWord(1))) // some were skipped
			}
		}
		p.Release()
		r.close()
		waittest.Until(t, "the peer is gone", func() bool { p.Receive(); p.Release(); return !p.LinkUp() })
	}
	t.Logf("%d frames in %d sessions", frames, sessions)
	if sessions < 2 || frames < 1000 {
		t.Errorf("%d frames in %d sessions: nothing that was scribbled was noticed, or all of it", frames, sessions)
	}
}
