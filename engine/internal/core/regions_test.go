package core

import (
	"bytes"
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// bus is host memory from address 0 on; its windows are not larger than piece.
type bus struct {
	mem        []byte
	piece      uint64
	generation uint64
}

func (b *bus) Generation() uint64 { return b.generation }
func (b *bus) Window(iova, n uint64, _ bool) ([]byte, error) {
	if iova >= uint64(len(b.mem)) {
		return nil, errors.New("there is no memory")
	}
	return b.mem[iova : iova+min(n, b.piece-iova%b.piece, uint64(len(b.mem))-iova)], nil
}

func newTestRegions(piece uint64) (*Regions, *bus) {
	b := &bus{mem: make([]byte, 4*datasheet.PageSize), piece: piece}
	m := &Regions{counters: &counters{}, bus: b, Limits: DefaultLimits()}
	m.clear()
	return m, b
}

func (m *Regions) mustRegister(t *testing.T, body datasheet.RegisterMemoryBody) uint32 {
	t.Helper()
	reply, why := m.Register(&body)
	if why != (Refusal{}) {
		t.Fatalf("register: %+v", why)
	}
	return reply.Handle
}

func TestReach(t *testing.T) {
	m, _ := newTestRegions(datasheet.PageSize)
	tag, _ := m.CreatePtag(nil)
	const base, size = 0x7000, 100
	write := m.mustRegister(t, datasheet.RegisterMemoryBody{Address: base, Length: size, Ptag: tag.Ptag})
	read := m.mustRegister(t, datasheet.RegisterMemoryBody{Address: base, Length: size, Ptag: tag.Ptag, Access: datasheet.AccessReadOnly})
	for name, c := range map[string]struct {
		handle, tag uint32
		address, n  uint64
		write, ok   bool
	}{
		"all of it":           {write, tag.Ptag, base, size, true, true},
		"its last byte":       {write, tag.Ptag, base + size - 1, 1, true, true},
		"nothing at its end":  {write, tag.Ptag, base + size, 0, true, true},
		"one byte too many":   {write, tag.Ptag, base, size + 1, false, false},
		"before it":           {write, tag.Ptag, base - 1, 1, false, false},
		"a length that wraps": {write, tag.Ptag, base + 1, ^uint64(0), false, false},
		"another tag":         {write, 0, base, 1, false, false},
		"another handle":      {write + 1<<regionIndexBits, tag.Ptag, base, 1, false, false},
		"handle zero":         {0, tag.Ptag, base, 1, false, false},
		"reading":             {read, tag.Ptag, base, 1, false, true},
		"writing":             {read, tag.Ptag, base, 1, true, false},
	} {
		if r, _ := m.Reach(c.handle, c.tag, c.address, c.n, c.write); (r != nil) != c.ok {
			t.Errorf("%s: reached %v", name, r != nil)
		}
	}
	if why := m.DestroyPtag(&tag); why.Result != datasheet.ResultResource {
		t.Errorf("destroyPtag of one in use: %+v", why)
	}
	stamp := m.Stamp
	if _, why := m.Hosts(write); why != (Refusal{}) {
		t.Fatalf("deregister: %+v", why)
	}
	m.Deregister(write)
	if r, _ := m.Reach(write, tag.Ptag, base, 1, false); r != nil || m.Stamp == stamp {
		t.Error("reached a region that is not registered any more")
	}
}

// TestScatterGather writes and reads a message that lies in two regions and, on the
// second bus, in windows that end in its middle.
func TestScatterGather(t *testing.T) {
	for _, piece := range []uint64{datasheet.PageSize * 4, 64} {
		m, b := newTestRegions(piece)
		first := m.mustRegister(t, datasheet.RegisterMemoryBody{Address: 0x10000, Length: 200, IOVA: 0})
		second := m.mustRegister(t, datasheet.RegisterMemoryBody{Address: 0x20000, Length: 200, IOVA: datasheet.PageSize})
		l := Layout{Segments: []Segment{{0x10000 + 50, first, 150}, {0x20000, second, 0}, {0x20000, second, 120}}, Total: 270}
		if st := m.Check(&l, 0, true); st != 0 {
			t.Fatalf("check: %v", st)
		}
		want := make([]byte, l.Total)
		for i := range want {
			want[i] = byte(i) | 1
		}
		for _, at := range []uint32{200, 100, 0} { // as frames may come
			end := min(at+100, l.Total)
			if landed, st := m.Scatter(want[at:end], &l, at, 0); !landed || st != 0 {
				t.Fatalf("scatter at %d: %v, %v", at, landed, st)
			}
		}
		if !bytes.Equal(b.mem[50:200], want[:150]) || !bytes.Equal(b.mem[datasheet.PageSize:][:120], want[150:]) {
			t.Errorf("pieces of %d: the message is not where it belongs", piece)
		}
		got := make([]byte, l.Total)
		if st := m.Gather(got, &l, 0, 0); st != 0 || !bytes.Equal(got, want) {
			t.Errorf("pieces of %d: gathered something else, %v", piece, st)
		}
		if st := m.Gather(got, &l, 1, 0); st != datasheet.StatusLengthError {
			t.Errorf("gather behind the end: %v", st)
		}
		m.Deregister(second)
		if landed, st := m.Scatter(want, &l, 0, 0); !landed || st != datasheet.StatusProtectionError {
			t.Errorf("scatter into memory that was taken away: %v, %v", landed, st)
		}
	}
}

// TestWindowsAreRenewed: what the bus has moved is looked up again.
func TestWindowsAreRenewed(t *testing.T) {
	m, b := newTestRegions(4 * datasheet.PageSize)
	handle := m.mustRegister(t, datasheet.RegisterMemoryBody{Address: 0x10000, Length: 10})
	l := Layout{Segments: []Segment{{0x10000, handle, 10}}, Total: 10}
	m.Scatter([]byte("0123456789"), &l, 0, 0)
	b.mem = bytes.Repeat([]byte{'x'}, len(b.mem))
	b.generation++
	m.Renew()
	got := make([]byte, 10)
	if m.Gather(got, &l, 0, 0); string(got) != "xxxxxxxxxx" {
		t.Errorf("gathered %q from an old window", got)
	}
	b.mem = nil
	m.Epoch++
	if st := m.Gather(got, &l, 0, 0); st != datasheet.StatusProtectionError || m.Own[datasheet.CounterDMAFaults] == 0 {
		t.Errorf("gather of what the bus refuses: %v, %d faults", st, m.Own[datasheet.CounterDMAFaults])
	}
}
