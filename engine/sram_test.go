package engine

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// What is given out is zeroed, aligned, inside the memory and never given out twice; and
// when all of it has been given back the memory is whole again.
func TestSRAM(t *testing.T) {
	const from, size = 4096 + 64, 64 << 10
	rapid.Check(t, func(t *rapid.T) {
		s := sram{bytes: bytes.Repeat([]byte{0xee}, size), from: from}
		s.clear()
		var live []span
		owner := make([]bool, size)
		used := uint64(0)
		release := func(i int) {
			p := live[i]
			for a := p.at; a < p.at+p.size; a++ {
				owner[a] = false
			}
			used -= p.size
			s.release(p)
			live = append(live[:i], live[i+1:]...)
		}
		t.Repeat(map[string]func(*rapid.T){
			"alloc": func(t *rapid.T) {
				n := rapid.Uint64Range(0, 3*datasheet.PageSize).Draw(t, "bytes")
				align := uint64(sramGranule) << rapid.IntRange(0, 6).Draw(t, "align")
				p, ok := s.alloc(n, align)
				if !ok {
					return
				}
				if n == 0 || p.size < n || p.at < from || p.at%align != 0 || p.at+p.size > size {
					t.Fatalf("%d bytes aligned to %d: %+v", n, align, p)
				}
				for a, b := range s.memory(p) {
					if b != 0 || owner[p.at+uint64(a)] {
						t.Fatalf("byte %#x of %+v is %#x, or somebody's", a, p, b)
					}
					owner[p.at+uint64(a)] = true
				}
				for i := range s.memory(p) {
					s.memory(p)[i] = 0xee
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
				if s.free() != size-from-used {
					t.Fatalf("%d bytes are free, %d in use", s.free(), used)
				}
			},
		})
		for len(live) > 0 {
			release(0)
		}
		if len(s.holes) != 1 || s.holes[0] != (span{from, size - from}) {
			t.Fatalf("what is left: %+v", s.holes)
		}
	})
}

// Device memory is reached as host memory is, under a handle, by the tag it is for.
func TestDeviceRegion(t *testing.T) {
	m, host := newTestRegions(datasheet.PageSize)
	m.sram.bytes, m.sram.from = make([]byte, 3*datasheet.PageSize), datasheet.PageSize
	m.sram.clear()
	tag, _ := m.createPtag(nil)
	p, ok := m.sram.alloc(128, sramGranule)
	if !ok {
		t.Fatal("no room")
	}
	handle, ok := m.registerDevice(p, tag.Ptag, 0)
	if !ok {
		t.Fatal("no handle")
	}
	l := &layout{segments: []segment{{address: p.at + 100, handle: handle, length: 28}}}
	for _, c := range []struct {
		tag  uint32
		want datasheet.Status
	}{{tag.Ptag, 0}, {0, datasheet.StatusProtectionError}} {
		if _, st := m.scatter([]byte("to the card"), l, 0, c.tag); st&datasheet.StatusErrorMask != c.want {
			t.Errorf("tag %#x: %v, want %v", c.tag, st, c.want)
		}
	}
	if got := m.sram.bytes[p.at+100:][:11]; string(got) != "to the card" {
		t.Errorf("the device has %q", got)
	}
	// The memory may be another after a client of the device has gone.
	m.sram.bytes = make([]byte, len(m.sram.bytes))
	host.generation++
	m.renew()
	got := make([]byte, 11)
	if st := m.gather(got, l, 0, tag.Ptag); st != 0 || !bytes.Equal(got, make([]byte, 11)) {
		t.Errorf("%v, %q", st, got)
	}
	l.segments[0].length++
	if st := m.gather(make([]byte, 29), l, 0, tag.Ptag); st != datasheet.StatusProtectionError {
		t.Errorf("one byte too many: %v", st)
	}
	if why := m.destroyPtag(&datasheet.PtagBody{Ptag: tag.Ptag}); why.result != datasheet.ResultResource {
		t.Errorf("the tag is in use: %+v", why)
	}
}
