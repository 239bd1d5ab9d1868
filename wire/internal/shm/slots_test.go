package shm_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// shortHeader is one of which every field differs.
var shortHeader = datasheet.ShortHeader{Endpoint: 0x1234, PSN: 0x5678, Ack: 0x9abc, Credit: 0xdef0}

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
	const word, immediate = 0xdef09abc56781234, 0x89abcdef
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
		if !p.SendShort(shortHeader, f.beside, want, i%2 == 0) {
			t.Fatalf("no room for %d bytes", n)
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
		if h := binary.LittleEndian.Uint64(s); h != word || !bytes.Equal(at[:n], want) {
			t.Errorf("frame %d: header %#x, % x", i, h, at[:n])
		}
	}
	ring = 0
	for i, f := range frames {
		n, want := f.n, bytes.Repeat([]byte{byte(f.n)}, f.n)
		copy(r.frames()[ring:], want)
		stands := binary.LittleEndian.AppendUint64(nil, immediate)[:112-f.room]
		r.putShort(i, word, append(stands, want[:min(n, f.room)]...), uint64(n), 0x1357, f.flags)
		got := p.Receive()
		h, beside, ok := p.Short()
		if !ok || h != shortHeader || beside != f.beside || !bytes.Equal(got, want) {
			t.Errorf("frame %d: %+v, %#x, short %v, % x", i, h, beside, ok, got)
		}
		if again := p.Receive(); !bytes.Equal(again, want) {
			t.Errorf("frame %d: then % x", i, again)
		}
		p.Release()
		if n > f.room {
			ring += (n + 63) / 64 * 64
		}
	}
	if p.Receive() != nil || atomic.LoadUint32(r.freedWord(0)) != uint32(ring) || atomic.LoadUint32(r.freedWord(1)) != uint32(len(frames)) {
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
		sent := p.SendShort(shortHeader, shortTag, make([]byte, 112), false)
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
	if p.SendShort(shortHeader, shortTag, make([]byte, 113), true) || !short() {
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
		{"an unknown flag", func(r *raw) { r.putShort(0, 0, nil, 10, 0, 5|32) }, "flags"},
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
				p.Fill()
				return p.Receive() == nil && p.Stats().Violations == 1
			})
			var e *shm.PeerError
			if err := p.Err(); !errors.As(err, &e) || !strings.Contains(e.Error(), tt.says) {
				t.Errorf("error %v, want one about %q", err, tt.says)
			}
			again := joinRaw(t, path, 0)
			up(t, p)
			again.putShort(0, 1, []byte("a good frame"), 12, 0, 5)
			if got := receiveFrom(t, p); string(got) != "a good frame" {
				t.Errorf("received %q", got)
			}
		})
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
				p.SendShort(shortHeader, datasheet.ShortBeside(rnd.Uint64())&^datasheet.ShortLent, payload[:rnd.IntN(4032)], rnd.IntN(2) == 0)
				p.Flush()
			}
			if f := p.Receive(); f != nil {
				next++
				frames++
				_, beside, ok := p.Short()
				if len(f) > shm.DefaultMTU || ok && len(f) > shm.DefaultMTU-64 || beside&datasheet.ShortLent != 0 && len(f) > 112 {
					t.Fatalf("a frame of %d bytes, short %v, beside %#x", len(f), ok, beside)
				}
				for _, c := range f {
					taken += int(c & 1) // all of it can be read
				}
				p.Release()
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
