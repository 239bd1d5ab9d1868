package ring_test

import (
	"encoding/binary"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/ring"
)

// canary surrounds shared memory in the fuzz test.
const canary = 0xa5

// fuzzScratch is made once: making it takes longer than a run.
var fuzzScratch = [4][]byte{ring.Scratch(), ring.Scratch(), ring.Scratch(), ring.Scratch()}

// guardedPair is a pair whose memory stands between canaries.
func guardedPair(t testing.TB, l ring.Layout, direct bool) (p *pair, intact func() bool) {
	t.Helper()
	const apart = 4096
	all := alignedMemory(int(l.Size()) + 2*apart)
	for i := range all {
		all[i] = canary
	}
	p = &pair{layout: l, memory: all[apart : len(all)-apart : len(all)-apart]}
	l.Format(p.memory)
	regions := [][]byte{p.memory, p.memory[128:512:512]}
	p.open(t, regions, direct, &fuzzScratch)
	return p, func() bool {
		for i := range apart {
			if all[i] != canary || all[len(all)-1-i] != canary {
				return false
			}
		}
		return true
	}
}

// FuzzRings has a program of pokes at shared memory and of calls run on all
// four ends: nothing may touch other memory, end the program, or go on after a
// violation.
func FuzzRings(f *testing.F) {
	f.Add([]byte{0, 0, 0, 0}, false)
	// Reserve, commit, flush; receive at the other end, release.
	f.Add([]byte{1, 60, 2, 0, 3, 0, 7, 0, 8, 0, 4, 200, 5, 0, 6, 0, 9, 0, 10, 0}, true)
	// Head and tail far away, and a descriptor that points behind the end.
	f.Add([]byte{0, 6, 255, 127, 7, 0, 0, 64, 9, 0, 1, 9, 0, 135, 255, 255, 0, 6, 1, 0, 7, 0, 8, 0}, true)
	// Chains.
	f.Add([]byte{0, 128, 1, 0, 0, 144, 1, 0, 0, 160, 0, 0, 0, 6, 3, 0, 7, 0, 8, 0}, false)
	f.Fuzz(func(t *testing.T, program []byte, direct bool) {
		l := ring.Layout{C2S: 1, S2C: 1, Log2: 3, Capacity: 64}
		p, intact := guardedPair(t, l, direct)
		receivers := []*ring.Receiver{p.serverReceives, p.clientReceives}
		senders := []*ring.Sender{p.clientSends, p.serverSends}
		for len(program) >= 2 {
			op, arg := program[0], program[1]
			program = program[2:]
			switch op % 11 {
			case 0:
				if len(program) < 2 {
					return
				}
				// A poke at the rings: the first 512 bytes.
				at := int(arg) + int(op/11)*256%512
				binary.LittleEndian.PutUint16(p.memory[at&^1:], binary.LittleEndian.Uint16(program))
				program = program[2:]
			case 1, 4:
				s := senders[op%11/4]
				n := int(arg) * 3
				broken := s.Violation() != nil
				if b := s.Reserve(n); b != nil {
					must.Hold(t, len(b) == n && cap(b) == n && !broken, "Reserve(%d) gave %d bytes, violated before: %v", n, len(b), broken)
					for i := range b {
						b[i] = arg
					}
				}
			case 2, 5:
				senders[op%11/5].Commit()
			case 3, 6:
				senders[op%11/6].Flush()
				senders[op%11/6].Drained()
			case 7, 9:
				r := receivers[op%11/9]
				broken, holding := r.Violation() != nil, r.Holding()
				frame := r.Receive()
				if len(frame) > ring.MaxFrame || frame != nil && broken && !holding {
					t.Fatalf("received %d bytes, violated before: %v", len(frame), broken)
				}
				sum := byte(0)
				for _, b := range frame {
					sum += b
				}
				_ = sum
			case 8, 10:
				r := receivers[op%11/10]
				r.Release()
				r.SetInterrupts(arg&1 != 0)
				r.Pending()
			}
		}
		must.Be(t, intact(), true, "memory around the region was written")
	})
}

// FuzzOpen opens rings wherever a client may say that they are.
func FuzzOpen(f *testing.F) {
	f.Add(uint16(0), uint32(0), uint8(3), uint16(1), uint16(0))
	f.Add(uint16(0), uint32(256), uint8(3), uint16(0xffff), uint16(8))
	f.Add(uint16(1), uint32(0xfffffff8), uint8(14), uint16(0), uint16(0))
	f.Fuzz(func(t *testing.T, region uint16, offset uint32, log2 uint8, head, tail uint16) {
		l := ring.Layout{C2S: 1, S2C: 1, Log2: 3, Capacity: 64}
		p, intact := guardedPair(t, l, true)
		regions := [][]byte{p.memory, p.memory[128:512:512]}
		poke16(p, true, offsetHead, head)
		poke16(p, true, offsetTail, tail)
		poke16(p, false, offsetHead, head)
		poke16(p, false, offsetTail, tail)
		at := ring.Place{Region: region, Offset: offset, Log2: log2}
		if s, err := ring.OpenSender(regions, fuzzScratch[0], at, true); err == nil {
			for range 20 {
				for _, n := range []int{1, 100} {
					put(s, make([]byte, n))
				}
				s.Flush()
			}
		}
		if r, err := ring.OpenReceiver(regions, fuzzScratch[1], at, true); err == nil {
			for range 20 {
				r.Receive()
				r.Release()
			}
		}
		must.Be(t, intact(), true, "memory around the region was written")
	})
}
