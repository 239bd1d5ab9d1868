package ring_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/ring"
)

// pair is a ring in each direction, and both ends of both.
type pair struct {
	layout ring.Layout
	memory []byte
	// clientSends and serverReceives are the ends of one ring, and so on.
	clientSends    *ring.Sender
	serverReceives *ring.Receiver
	serverSends    *ring.Sender
	clientReceives *ring.Receiver
}

func newPair(t testing.TB, l ring.Layout, direct bool) *pair {
	t.Helper()
	must.OK(t, l.Check())
	p := &pair{layout: l, memory: alignedMemory(int(l.Size()))}
	l.Format(p.memory)
	p.open(t, [][]byte{p.memory}, direct, &[4][]byte{ring.Scratch(), ring.Scratch(), ring.Scratch(), ring.Scratch()})
	return p
}

// open opens all ends of formatted rings, the server's first.
func (p *pair) open(t testing.TB, regions [][]byte, direct bool, scratch *[4][]byte) {
	t.Helper()
	place := func(c2s bool) ring.Place { return ring.Place{Offset: p.layout.Offset(c2s, 0), Log2: p.layout.Log2} }
	p.serverReceives = must.Get(ring.OpenReceiver(regions, scratch[0], place(true), direct))(t)
	p.serverSends = must.Get(ring.OpenSender(regions, scratch[1], place(false), direct))(t)
	p.clientSends = p.layout.Sender(p.memory, scratch[2], 0)
	p.clientReceives = p.layout.Receiver(p.memory, scratch[3], 0)
}

// directions runs a test with the client and with the server sending, and with
// a server that copies.
func directions(t *testing.T, l ring.Layout, each func(t *testing.T, p *pair, s *ring.Sender, r *ring.Receiver)) {
	l.C2S, l.S2C = 1, 1
	for server, direct := range map[string]bool{"server": true, "careful server": false} {
		t.Run("client to "+server, func(t *testing.T) {
			p := newPair(t, l, direct)
			each(t, p, p.clientSends, p.serverReceives)
		})
		t.Run(server+" to client", func(t *testing.T) {
			p := newPair(t, l, direct)
			each(t, p, p.serverSends, p.clientReceives)
		})
	}
}

func put(s *ring.Sender, frame []byte) bool {
	b := s.Reserve(len(frame))
	if b == nil {
		return false
	}
	copy(b, frame)
	s.Commit()
	return true
}

func pattern(number, n int) []byte {
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(number*31 + i*7)
	}
	return b
}

func TestLayouts(t *testing.T) {
	for _, l := range []ring.Layout{
		{C2S: 0, S2C: 1, Log2: 4, Capacity: 64},
		{C2S: 1, S2C: 0, Log2: 4, Capacity: 64},
		{C2S: 1, S2C: 1 << 17, Log2: 4, Capacity: 64},
		{C2S: 1, S2C: 1, Log2: ring.MaxLog2 + 1, Capacity: 64},
		{C2S: 1, S2C: 1, Log2: 4, Capacity: 0},
		{C2S: 1, S2C: 1, Log2: 4, Capacity: 100},
		{C2S: 1, S2C: 1, Log2: 4, Capacity: ring.MaxFrame + 64},
		{C2S: 16, S2C: 16, Log2: ring.MaxLog2, Capacity: ring.MaxFrame},
	} {
		should.Fail(t, l.Check(), ring.ErrRing, "%+v: error", l)
	}
	l := ring.Layout{C2S: 2, S2C: 3, Log2: 3, Capacity: 128}
	seen := map[uint32]bool{}
	for _, c2s := range []bool{true, false} {
		for i := range 2 {
			at := l.Offset(c2s, i)
			should.Hold(t, at%128 == 0 && !seen[at], "a ring at %#x", at)
			seen[at] = true
		}
	}
}

// TestFormat checks the bytes in memory against memif.h.
func TestFormat(t *testing.T) {
	l := ring.Layout{C2S: 1, S2C: 1, Log2: 1, Capacity: 2048}
	p := newPair(t, l, true)
	word := func(at int) uint32 { return binary.LittleEndian.Uint32(p.memory[at:]) }
	// The server has asked for no interrupts, the client as well, and has
	// handed out two buffers.
	const cookie, size = 0x3E31F20, 128 + 2*16
	s2c := int(l.Offset(false, 0))
	if s2c < size || word(0) != cookie || word(4) != 1 || word(64) != 0 || word(s2c) != cookie || word(s2c+4) != 2<<16|1 {
		t.Errorf("rings % x and % x", p.memory[:128], p.memory[s2c:s2c+128])
	}
	copy(p.clientSends.Reserve(100), bytes.Repeat([]byte{7}, 100))
	p.clientSends.Commit()
	should.Be(t, word(4)>>16, 0, "head has moved before Flush")
	p.clientSends.Flush()
	at := int(word(128 + 8))
	if word(4)>>16 != 1 || word(128) != 0 || word(128+4) != 100 || p.memory[at+99] != 7 || p.memory[at+100] != 0 {
		t.Errorf("head %d, descriptor % x", word(4)>>16, p.memory[128:144])
	}
	should.Be(t, len(p.serverReceives.Receive()), 100, "it does not arrive")
	p.serverReceives.Release()
	should.Be(t, word(64), 1, "tail")
	p.serverSends.Reserve(2049)
	p.serverSends.Commit()
	p.serverSends.Flush()
	if word(s2c+64) != 2 || word(s2c+128) != 1 || word(s2c+128+4) != 2048 || word(s2c+144) != 0 || word(s2c+144+4) != 1 {
		t.Errorf("tail %d, descriptors % x", word(s2c+64), p.memory[s2c+128:s2c+160])
	}
	should.Be(t, len(p.clientReceives.Receive()), 2049, "it does not arrive")
	p.clientReceives.Release()
	if word(s2c+4)>>16 != 4 || word(s2c+128) != 0 || word(s2c+128+4) != 2048 {
		t.Errorf("head %d, descriptor % x", word(s2c+4)>>16, p.memory[s2c+128:s2c+144])
	}
}

// TestIsAQueue compares a ring with a list of frames, over many rounds of the
// 16-bit indexes.
func TestIsAQueue(t *testing.T) {
	for name, l := range map[string]ring.Layout{
		"one buffer a frame": {Log2: 3, Capacity: 1024, Apart: true},
		"two descriptors":    {Log2: 1, Capacity: 1024},
		"chains":             {Log2: 4, Capacity: 64},
		"chains apart":       {Log2: 5, Capacity: 64, Apart: true},
	} {
		most := l.Capacity << l.Log2 / 2
		t.Run(name, func(t *testing.T) {
			directions(t, l, func(t *testing.T, p *pair, s *ring.Sender, r *ring.Receiver) {
				rapid.Check(t, func(t *rapid.T) { checkQueue(t, s, r, most) })
			})
		})
	}
}

// checkQueue leaves an empty ring behind.
func checkQueue(t *rapid.T, s *ring.Sender, r *ring.Receiver, most int) {
	var committed, visible [][]byte
	number := 0
	receive := func(t *rapid.T) {
		f := r.Receive()
		if len(visible) == 0 {
			must.Be(t, f != nil, false, "a frame of %d bytes that was not flushed", len(f))
			return
		}
		must.Hold(t, bytes.Equal(f, visible[0]) && bytes.Equal(r.Receive(), f) && r.Holding(), "received %d bytes, want %d", len(f), len(visible[0]))
		r.Release()
		r.Release()
		visible = visible[1:]
	}
	flush := func(*rapid.T) {
		s.Flush()
		visible, committed = append(visible, committed...), nil
	}
	t.Repeat(map[string]func(*rapid.T){
		"commit": func(t *rapid.T) {
			number++
			f := pattern(number, rapid.IntRange(0, most).Draw(t, "size"))
			if !put(s, f) {
				if len(committed)+len(visible) == 0 && !r.Holding() && r.Receive() == nil && s.Reserve(len(f)) == nil {
					t.Fatalf("an empty ring has no room for %d bytes", len(f))
				}
				return
			}
			committed = append(committed, f)
		},
		"abandon": func(t *rapid.T) { s.Reserve(rapid.IntRange(0, most).Draw(t, "size")) },
		"cancel": func(*rapid.T) {
			s.Reserve(1)
			s.Cancel()
			s.Commit()
		},
		"flush":   flush,
		"receive": receive,
	})
	flush(t)
	for len(visible) > 0 {
		receive(t)
	}
	must.Hold(t, r.Receive() == nil && !r.Pending() && s.Drained() && s.Violation() == nil && r.Violation() == nil, "the ring is not empty")
}

// TestIndexesWrap has more frames go through than 16-bit indexes count.
func TestIndexesWrap(t *testing.T) {
	directions(t, ring.Layout{Log2: 2, Capacity: 64}, func(t *testing.T, p *pair, s *ring.Sender, r *ring.Receiver) {
		for i := range 70000 {
			must.Be(t, put(s, []byte{byte(i), byte(i >> 8)}), true, "no room for frame %d", i)
			s.Flush()
			if f := r.Receive(); len(f) != 2 || f[0] != byte(i) || f[1] != byte(i>>8) {
				t.Fatalf("frame %d: % x", i, f)
			}
			r.Release()
		}
		frames, bytes, _ := s.Counts()
		got, gotBytes, _ := r.Counts()
		if frames != 70000 || bytes != 140000 || got != frames || gotBytes != bytes {
			t.Errorf("%d frames with %d bytes, received %d, %d", frames, bytes, got, gotBytes)
		}
	})
}

func TestTooLong(t *testing.T) {
	directions(t, ring.Layout{Log2: 2, Capacity: 64}, func(t *testing.T, p *pair, s *ring.Sender, r *ring.Receiver) {
		for _, n := range []int{-1, ring.MaxFrame + 1} {
			should.Be(t, s.Reserve(n) != nil, false, "Reserve(%d) gave bytes", n)
			s.Commit()
		}
		// It would fit no ring of 256 bytes, ever: it is dropped.
		must.Be(t, put(s, make([]byte, 257)) && put(s, pattern(1, 256)), true, "no room")
		s.Flush()
		should.Same(t, r.Receive(), pattern(1, 256), "received bytes")
		if frames, _, tooLong := s.Counts(); frames != 1 || tooLong != 1 {
			t.Errorf("%d frames and %d too long", frames, tooLong)
		}
	})
}
