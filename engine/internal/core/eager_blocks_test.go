package core

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Bytes of host and device memory in these tests say whose they are.
const (
	hostsOwn   = 0x11
	pushed     = 0x22
	neighbours = 0xbb
)

// eagerRig is three eager regions, one behind the other in host and in device memory; the one
// in the middle is looked at, and has a ptag of its own.
type eagerRig struct {
	*Regions
	bus    *bus
	tag    uint32
	others [2]uint32
	handle uint32
	at     uint64 // address and IOVA of the first byte
	size   uint64
}

func newEagerRig(t testing.TB, piece, skip, size uint64, access datasheet.Access) *eagerRig {
	t.Helper()
	m, host := newTestRegions(piece)
	m.SRAM.Bytes, m.SRAM.From = Aligned(1<<16), 0
	m.SRAM.Clear()
	r := &eagerRig{Regions: m, bus: host, at: datasheet.PageSize + skip, size: size}
	tag, _ := m.CreatePtag(nil)
	r.tag = tag.Ptag
	for i := range host.mem {
		host.mem[i] = neighbours
	}
	register := func(at, n uint64, tag uint32) uint32 {
		reply, why := m.Register(&datasheet.RegisterMemoryBody{Address: at, IOVA: at, Length: n, Ptag: tag, Access: access | datasheet.AccessEager})
		must.Be(t, why, Refusal{})
		return reply.Handle
	}
	r.others[0] = register(r.at-100, 100, 0)
	r.handle = register(r.at, size, r.tag)
	r.others[1] = register(r.at+size, 100, 0)
	for _, h := range r.others {
		r.spoil(h, neighbours)
	}
	r.spoil(r.handle, pushed)
	for i := range size {
		host.mem[r.at+i] = hostsOwn
	}
	return r
}

// spoil fills the blocks of a region and says that all of them are good.
func (r *eagerRig) spoil(handle uint32, with byte) {
	e := r.table[handle&RegionIndexMask].Eager
	for i := range e.blocks {
		e.blocks[i] = with
	}
	for i := range e.status {
		e.status[i] = datasheet.EagerValid
	}
}

// FuzzEagerBlocks: whatever the host has stored to the status of blocks, and stores while a
// message is taken, and wherever a message lies, it has the region's own bytes, each from where
// its status says, and a message that does not lie in it is refused.
func FuzzEagerBlocks(f *testing.F) {
	f.Add([]byte{1, 0, 1, 1, 0, 2, 255, 1}, uint16(3), uint16(700), int16(5), uint16(600), uint16(100), false)
	f.Add([]byte{}, uint16(0), uint16(64), int16(0), uint16(64), uint16(64), true)
	f.Add([]byte{0, 1}, uint16(63), uint16(130), int16(-1), uint16(131), uint16(1), false)
	f.Add([]byte{1, 1, 1, 1, 1, 1}, uint16(1), uint16(4000), int16(4000), uint16(1), uint16(4096), true)
	f.Fuzz(func(t *testing.T, status []byte, skip, size uint16, from int16, length, step uint16, wide bool) {
		n := uint64(size)%(2*datasheet.PageSize) + 1
		access := datasheet.Access(0)
		if wide {
			access = datasheet.AccessEagerWide
		}
		// In pieces, or in one piece that the engine has seen before.
		piece := uint64(datasheet.PageSize) << (step % 2 * 2)
		r := newEagerRig(t, piece, uint64(skip)%256, n, access)
		r.Window(&r.table[r.handle&RegionIndexMask], 0, 1, false)
		e := r.table[r.handle&RegionIndexMask].Eager
		for i := range e.status {
			e.status[i] = 0
			if len(status) > 0 {
				e.status[i] = status[i%len(status)]
			}
		}
		l := &Layout{Segments: []Segment{{Address: r.at + uint64(int64(from)), Handle: r.handle, Length: uint32(length)}}, Total: uint32(length)}
		inside := from >= 0 && uint64(from)+uint64(length) <= n
		if st := r.Check(l, r.tag, false); (st == 0) != inside {
			t.Fatalf("%d bytes at %d of %d: %v", length, from, n, st)
		}
		if !inside {
			return
		}
		if whole := l.Memory != nil; whole != (piece > datasheet.PageSize || r.at/piece == (r.at+n-1)/piece) {
			t.Fatalf("%d bytes at %#x, in pieces of %d: found in one piece: %v", n, r.at, piece, whole)
		}
		each := int(step)%3000 + 1
		for at := 0; at < int(length); at += each {
			got := make([]byte, min(each, int(length)-at))
			must.Be(t, r.Gather(got, l, uint32(at), r.tag), 0, "%d bytes at %d", len(got), at)
			for i, b := range got {
				want := byte(hostsOwn)
				if e.status[(e.Lead+uint64(int(from)+at+i))>>e.Log2] == datasheet.EagerValid {
					want = pushed
				}
				must.Be(t, b, want, "byte %d of the region", int(from)+at+i)
			}
			if len(status) > 0 { // the host changes its mind
				b := uint64(status[at%len(status)]) % e.Count
				e.status[b] ^= datasheet.EagerValid
			}
		}
		if st := r.Check(l, 0, false); st != datasheet.StatusProtectionError || l.Memory != nil {
			t.Fatalf("with the neighbours' tag: %v", st)
		}
		r.mustTakeTokens(t, status, uint64(skip)%4*datasheet.TokenSize, step)
	})
}

// mustTakeTokens: whatever the status of the blocks of a ring of tokens is, and becomes
// meanwhile, each token is the one that its status says, and of that ring.
func (r *eagerRig) mustTakeTokens(t *testing.T, status []byte, skip uint64, step uint16) {
	at := r.at&^63 + skip
	ep := &Endpoint{Options: datasheet.EndpointEager}
	for _, q := range []*WorkQueue{&ep.Send, &ep.Recv} {
		q.IOVA, q.Mask = at, 1<<(2+step%4)-1
		at += uint64(q.Mask+1) * datasheet.TokenSize
	}
	free := r.SRAM.Free()
	if _, ok := r.PushRings(ep); !ok {
		t.Fatal("no room for two rings")
	}
	const mine, theirs = 0x33, 0x44
	for i, q := range []*WorkQueue{&ep.Send, &ep.Recv} {
		for j := range q.Pushed.blocks {
			q.Pushed.blocks[j] = mine + byte(i)
		}
		for j := range (q.Mask + 1) * datasheet.TokenSize {
			r.bus.mem[q.IOVA+uint64(j)] = theirs + byte(i)
		}
		for j := range q.Pushed.status {
			if q.Pushed.status[j] = 0; len(status) > 0 {
				q.Pushed.status[j] = status[j%len(status)]
			}
		}
	}
	for n := range uint32(100) {
		for i, q := range []*WorkQueue{&ep.Send, &ep.Recv} {
			e, number := q.Pushed, n*uint32(step|1) // wraps
			b := (e.Lead + uint64(number&q.Mask)*datasheet.TokenSize) >> e.Log2
			want := byte(theirs + i)
			if e.status[b] == datasheet.EagerValid {
				want = byte(mine + i)
			}
			got, st := r.Token(q, number)
			if st != 0 || got.Handle != uint32(want)*0x01010101 || got.Flags != got.Handle || got.Address != uint64(got.Handle)<<32|uint64(got.Handle) {
				t.Fatalf("token %d of %d is %+v, %v; want bytes of %#x", number, q.Mask+1, got, st, want)
			}
			if len(status) > 0 {
				e.status[uint64(status[int(n)%len(status)])%e.Count] ^= datasheet.EagerValid
			}
		}
	}
	if r.ForgetRings(ep); r.SRAM.Free() != free || ep.Send.Pushed != nil || ep.Recv.Pushed != nil {
		t.Fatalf("%d bytes are free of %d", r.SRAM.Free(), free)
	}
}

// TestEagerLanding: whatever lands in a region, and is pushed and sent on meanwhile, the host has the latest bytes by the read path,
// and in memory once the region is deregistered. Each block has its status. What a hostile host stores to status changes
// nothing of the neighbours.
func TestEagerLanding(tt *testing.T) {
	const lands = datasheet.AccessEagerLands
	rapid.Check(tt, func(t *rapid.T) {
		access := lands | rapid.SampledFrom([]datasheet.Access{0, datasheet.AccessEagerHeld}).Draw(t, "held") |
			rapid.SampledFrom([]datasheet.Access{0, datasheet.AccessEagerWide}).Draw(t, "wide")
		size := rapid.Uint64Range(1, 2000).Draw(t, "size")
		piece := rapid.SampledFrom([]uint64{64, datasheet.PageSize, 4 * datasheet.PageSize}).Draw(t, "windows")
		r := newEagerRig(tt, piece, rapid.Uint64Range(0, 255).Draw(t, "skip"), size, access)
		hostile := rapid.Bool().Draw(t, "hostile")
		e := r.table[r.handle&RegionIndexMask].Eager
		clear(e.status)
		want, landed := bytes.Repeat([]byte{hostsOwn}, int(size)), uint64(0)
		memory := r.bus.mem[r.at:][:size]
		span := func() (from, n uint64) {
			from = rapid.Uint64Range(0, size-1).Draw(t, "from")
			return from, rapid.Uint64Range(1, size-from).Draw(t, "bytes")
		}
		layout := func(from, n uint64, write bool) *Layout {
			l := &Layout{Segments: []Segment{{Address: r.at + from, Handle: r.handle, Length: uint32(n)}}, Total: uint32(n)}
			must.Be(t, r.Check(l, r.tag, write), 0, "%d bytes at %d", n, from)
			return l
		}
		t.Repeat(map[string]func(*rapid.T){
			"land": func(t *rapid.T) {
				from, n := span()
				l := layout(from, n, true)
				data := rapid.SliceOfN(rapid.Byte(), int(n), int(n)).Draw(t, "data")
				copy(want[from:], data)
				if all, st := r.Scatter(data, l, 0, r.tag); !all || st != 0 {
					t.Fatalf("%d bytes at %d: %v, %v", n, from, all, st)
				}
				status := datasheet.EagerLanded
				if e.holds {
					status = datasheet.EagerHeld
				}
				for b, end := e.Span(from, n); b < end; b++ {
					whole := b<<e.Log2 >= e.Lead+from && (b+1)<<e.Log2 <= e.Lead+from+n && l.Memory != nil
					if whole {
						landed++
					}
					if got := e.status[b]; whole && got != status || !whole && got != 0 {
						t.Fatalf("block %d, covered %v, has status %d", b, whole, got)
					}
				}
			},
			"send": func(t *rapid.T) {
				from, n := span()
				got := make([]byte, n)
				if st := r.Gather(got, layout(from, n, false), 0, r.tag); st != 0 || !hostile && !bytes.Equal(got, want[from:][:n]) {
					t.Fatalf("%d bytes at %d: %v, or others than have landed", n, from, st)
				}
			},
			"push": func(t *rapid.T) {
				b := rapid.Uint64Range(0, e.Count-1).Draw(t, "block")
				if e.status[b] == datasheet.EagerHeld && !hostile {
					copy(memory[b<<e.Log2-e.Lead:], e.blocks[b<<e.Log2:][:1<<e.Log2])
				}
				for i := range uint64(1) << e.Log2 {
					if at := b<<e.Log2 + i - e.Lead; at < size {
						e.blocks[b<<e.Log2+i] = memory[at]
					}
				}
				e.status[b] = datasheet.EagerValid
			},
			"scribble": func(t *rapid.T) {
				if hostile {
					e.status[rapid.Uint64Range(0, e.Count-1).Draw(t, "block")] = rapid.SampledFrom([]byte{0, 1, 2, 3, 255}).Draw(t, "status")
				}
			},
			"": func(t *rapid.T) {
				got := bytes.Clone(memory)
				for b, status := range e.status[:e.Count] {
					if status == datasheet.EagerHeld && !hostile {
						copy(got[uint64(b)<<e.Log2-e.Lead:], e.blocks[b<<e.Log2:][:1<<e.Log2])
					}
				}
				if !hostile && !bytes.Equal(got, want) {
					t.Fatal("the host does not read what has landed")
				}
				must.Be(t, r.Own[datasheet.CounterEagerLanded], landed, "blocks are counted, have landed")
				for _, h := range r.others {
					o := r.table[h&RegionIndexMask].Eager
					if len(bytes.Trim(o.blocks, string([]byte{neighbours}))) != 0 || len(bytes.Trim(o.status, string([]byte{datasheet.EagerValid}))) != 0 {
						t.Fatal("blocks or status of a neighbour have changed")
					}
				}
				if len(bytes.Trim(r.bus.mem[:r.at], string([]byte{neighbours}))) != 0 || len(bytes.Trim(r.bus.mem[r.at+size:], string([]byte{neighbours}))) != 0 {
					t.Fatal("memory of a neighbour has changed")
				}
			},
		})
		if r.Deregister(r.handle); !hostile && !bytes.Equal(memory, want) {
			t.Fatal("memory does not have what had landed when the region went")
		}
	})
}

// TestEagerRefused: registrations that make no sense, and those without device memory.
func TestEagerRefused(t *testing.T) {
	m, _ := newTestRegions(datasheet.PageSize)
	body := datasheet.RegisterMemoryBody{Length: 100, Access: datasheet.AccessEager}
	if _, why := m.Register(&body); why != (Refusal{datasheet.ResultNotSupported, Field(&body, &body.Access)}) {
		t.Errorf("no device memory: %+v", why)
	}
	m.SRAM.Bytes = Aligned(4096)
	m.SRAM.Clear()
	for name, c := range map[string]struct {
		access datasheet.Access
		length uint64
		want   datasheet.Result
	}{
		"wide alone":  {datasheet.AccessEagerWide, 100, datasheet.ResultInvalidParameter},
		"lands alone": {datasheet.AccessEagerLands, 100, datasheet.ResultInvalidParameter},
		"read-only":   {datasheet.AccessEager | datasheet.AccessEagerLands | datasheet.AccessReadOnly, 100, datasheet.ResultInvalidParameter},
		"held alone":  {datasheet.AccessEager | datasheet.AccessEagerHeld, 100, datasheet.ResultInvalidParameter},
		"held, for peers": {datasheet.AccessEager | datasheet.AccessEagerLands | datasheet.AccessEagerHeld | datasheet.AccessRDMARead, 100,
			datasheet.ResultInvalidParameter},
		"too large":      {datasheet.AccessEager, 4096, datasheet.ResultResource},
		"much too large": {datasheet.AccessEager, 1 << 62, datasheet.ResultResource},
	} {
		body.Access, body.Length = c.access, c.length
		if _, why := m.Register(&body); why != (Refusal{c.want, Field(&body, &body.Access)}) {
			t.Errorf("%s: %+v", name, why)
		}
	}
	body.Access, body.Length = datasheet.AccessEager, 100
	h := m.mustRegister(t, body)
	for _, access := range []datasheet.Access{0, datasheet.AccessEager | datasheet.AccessEagerWide, datasheet.AccessEager | datasheet.AccessEagerLands} {
		if why := m.Modify(&datasheet.ModifyMemoryBody{Handle: h, Access: access}); why != (Refusal{datasheet.ResultNotSupported, Field(&body, &body.Access)}) {
			t.Errorf("modified to %#x: %+v", access, why)
		}
	}
	free := m.SRAM.Free()
	if why := m.Modify(&datasheet.ModifyMemoryBody{Handle: h, Access: datasheet.AccessEager | datasheet.AccessReadOnly}); why != (Refusal{}) || m.SRAM.Free() != free {
		t.Errorf("modified: %+v, %d bytes free of %d", why, m.SRAM.Free(), free)
	}
	if m.Deregister(h); m.SRAM.Free() <= free {
		t.Errorf("deregistered: %d bytes free", m.SRAM.Free())
	}
}
