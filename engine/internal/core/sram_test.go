package core

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// What is given out is zeroed, aligned, inside the memory and never given out twice; and
// when all of it has been given back the memory is whole again.
func TestSRAM(t *testing.T) {
	const from, size = 4096 + 64, 64 << 10
	rapid.Check(t, func(t *rapid.T) {
		s := sram{Bytes: bytes.Repeat([]byte{0xee}, size), From: from}
		s.Clear()
		var live []Span
		owner := make([]bool, size)
		used := uint64(0)
		release := func(i int) {
			p := live[i]
			for a := p.At; a < p.At+p.size; a++ {
				owner[a] = false
			}
			used -= p.size
			s.Release(p)
			live = append(live[:i], live[i+1:]...)
		}
		t.Repeat(map[string]func(*rapid.T){
			"alloc": func(t *rapid.T) {
				n := rapid.Uint64Range(0, 3*datasheet.PageSize).Draw(t, "bytes")
				align := uint64(sramGranule) << rapid.IntRange(0, 6).Draw(t, "align")
				p, ok := s.Alloc(n, align)
				if !ok {
					return
				}
				if n == 0 || p.size < n || p.At < from || p.At%align != 0 || p.At+p.size > size {
					t.Fatalf("%d bytes aligned to %d: %+v", n, align, p)
				}
				for a, b := range s.Memory(p) {
					if b != 0 || owner[p.At+uint64(a)] {
						t.Fatalf("byte %#x of %+v is %#x, or somebody's", a, p, b)
					}
					owner[p.At+uint64(a)] = true
				}
				for i := range s.Memory(p) {
					s.Memory(p)[i] = 0xee
				}
				used += p.size
				live = append(live, p)
			},
			"release": func(t *rapid.T) {
				if len(live) > 0 {
					release(rapid.IntRange(0, len(live)-1).Draw(t, "which"))
				}
			},
			"": func(t *rapid.T) {
				must.Be(t, s.Free(), size-from-used, "bytes are free, %d in use", used)
			},
		})
		for len(live) > 0 {
			release(0)
		}
		if len(s.holes) != 1 || s.holes[0] != (Span{from, size - from}) {
			t.Fatalf("what is left: %+v", s.holes)
		}
	})
}
