package shm_test

import (
	"bytes"
	"encoding/binary"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
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
	p, r := withRaw(t, shm.Options{}, 0)
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
		should.Be(t, atomic.LoadUint64(r.word(r.theirs, i)), uint64(n)|0x1357<<16|f.flags<<32|uint64(i+1)<<40, "frame %d: word", i)
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
			should.Be(t, p.Receive() != nil, false, "frame %d is received", i)
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
	p, r := withRaw(t, shm.Options{MTU: 4096, Ring: 1}, 0)
	p.Receive()
	slots := r.ring / 256
	short := func() bool {
		_, sent := p.Put(shortHeader, shortTag, make([]byte, 112), false)
		p.Flush()
		return sent
	}
	for i := range slots {
		must.Be(t, short(), true, "no room for frame %d of %d", i, slots)
	}
	must.Hold(t, !short() && p.Reserve(64) == nil && p.Mark() == uint32(slots), "more frames than slots; mark %d", p.Mark())
	atomic.StoreUint32(r.freedFrames(), uint32(slots))
	whole := 0
	for ; p.Reserve(4096) != nil; whole++ {
		p.Commit()
	}
	should.Be(t, whole, r.ring/4096, "frames of 4096 bytes in %d", r.ring)
	if _, sent := p.Put(shortHeader, shortTag, make([]byte, 113), true); sent || !short() {
		t.Error("a ring without room has room, or its slots have none")
	}
	atomic.StoreUint32(r.freed(), 4096)
	should.Be(t, p.Reserve(4096) == nil, false, "what was given back is not free")
	should.Be(t, p.Stats().Violations, 0, "violations")
}

// checkShort fails unless a short frame is one that can be.
func checkShort(t *testing.T, payload []byte, beside datasheet.ShortBeside) {
	t.Helper()
	lent, immediate := beside&datasheet.ShortLent != 0, beside&datasheet.ShortImmediate != 0
	if len(payload) > shm.DefaultMTU-64 || lent && len(payload) > 112 || lent && immediate && len(payload) > 104 || beside>>19&(1<<13-1) != 0 || !immediate && beside>>32 != 0 {
		t.Fatalf("a short frame of %d bytes, beside its header %#x", len(payload), beside)
	}
}

// TestChangingSlots: a slot that another processor changes all the time is looked at once: each frame is one of those that
// were written, with a length, a tag and flags that belong together.
func TestChangingSlots(t *testing.T) {
	checkLeaks(t)
	p, r := withRaw(t, shm.Options{}, 0)
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
			must.Hold(t, found != engine.FoundOther && p.LinkUp(), "frame %d: found %v, %v", i, found, p.Err())
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
	should.Be(t, len(seen) < 50, false, "%d kinds of frames", len(seen))
}

// TestShortFramesOfOneThatLeft: short frames that a peer has sent before it left arrive. One that has been looked at stays
// until Pass though another peer has come, which does not notice.
func TestShortFramesOfOneThatLeft(t *testing.T) {
	checkLeaks(t)
	p, r := withRaw(t, shm.Options{}, 0)
	p.Receive() // it turns to the peer
	next := func(want string) (payload []byte) {
		t.Helper()
		waittest.Until(t, "a frame", func() bool {
			f, _, _, found := p.Next()
			payload = f
			return found == engine.FoundShort
		})
		must.Be(t, string(payload), want, "received %q", payload)
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
	again := joinRaw(t, r.path, 0)
	up(t, p)
	should.Be(t, p.Reserve(64) != nil, true, "Reserve holds up while the link is down")
	p.Commit()
	p.Flush()
	should.Be(t, string(f), "second", "%q", f)
	p.Pass(true)
	p.Pass(true)
	again.putShort(0, 0, []byte("good"), 4, 0, 5)
	next("good") // and the third is lost
	p.Pass(true)
	should.Be(t, p.Stats().Violations, 0, "violations")
	should.Be(t, p.Stats().Sessions, 2, "sessions")
}
