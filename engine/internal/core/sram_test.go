package core

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
				if s.Free() != size-from-used {
					t.Fatalf("%d bytes are free, %d in use", s.Free(), used)
				}
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

// Device memory is reached as host memory is, under a handle, by the tag it is for.
func TestDeviceRegion(t *testing.T) {
	m, host := newTestRegions(datasheet.PageSize)
	m.SRAM.Bytes, m.SRAM.From = make([]byte, 3*datasheet.PageSize), datasheet.PageSize
	m.SRAM.Clear()
	tag, _ := m.CreatePtag(nil)
	p, ok := m.SRAM.Alloc(128, sramGranule)
	if !ok {
		t.Fatal("no room")
	}
	handle, ok := m.RegisterDevice(p, tag.Ptag, 0)
	if !ok {
		t.Fatal("no handle")
	}
	l := &Layout{Segments: []Segment{{Address: p.At + 100, Handle: handle, Length: 28}}}
	for _, c := range []struct {
		tag  uint32
		want datasheet.Status
	}{{tag.Ptag, 0}, {0, datasheet.StatusProtectionError}} {
		if _, st := m.Scatter([]byte("to the card"), l, 0, c.tag); st&datasheet.StatusErrorMask != c.want {
			t.Errorf("tag %#x: %v, want %v", c.tag, st, c.want)
		}
	}
	if got := m.SRAM.Bytes[p.At+100:][:11]; string(got) != "to the card" {
		t.Errorf("the device has %q", got)
	}
	// The memory may be another after a client of the device has gone.
	m.SRAM.Bytes = make([]byte, len(m.SRAM.Bytes))
	host.generation++
	m.Renew()
	got := make([]byte, 11)
	if st := m.Gather(got, l, 0, tag.Ptag); st != 0 || !bytes.Equal(got, make([]byte, 11)) {
		t.Errorf("%v, %q", st, got)
	}
	l.Segments[0].Length++
	if st := m.Gather(make([]byte, 29), l, 0, tag.Ptag); st != datasheet.StatusProtectionError {
		t.Errorf("one byte too many: %v", st)
	}
	if why := m.DestroyPtag(&datasheet.PtagBody{Ptag: tag.Ptag}); why.Result != datasheet.ResultResource {
		t.Errorf("the tag is in use: %+v", why)
	}
}
