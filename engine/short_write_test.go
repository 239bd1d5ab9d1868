package engine_test

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// writesPair is a pair of VIs with rights of RDMA over a wire that carries short frames and lends.
func writesPair(t *testing.T) (w *world, v, p *vi) {
	t.Helper()
	w, v, p = pair(t, withRights(bothRights), lending(8192, new([2]*lender)), exactly(nil), withSlots, lendsToo)
	w.a.calls, w.b.calls = true, true
	mustArrive(t, v, p, 10, 1) // the regions of descriptors have been looked up
	return w, v, p
}

// TestShortWrites: an RDMA write of one frame is a short frame, and one of 2 KiB or more a reference. Sends around it complete in
// order.
func TestShortWrites(t *testing.T) {
	w, v, p := writesPair(t)
	to := p.target(16<<10, bothRights)
	for i, n := range []int{1, 64, 96, 97, 1000, 1968, 2048, 8176} {
		short := w.a.slots.short
		want := pattern(n, uint64(i))
		r, _ := p.descriptor(8)
		p.postRecv(r)
		before, _ := v.descriptor(8)
		write := v.write(to, i, want, n)
		behind, _ := v.descriptor(8)
		r2, _ := p.descriptor(8)
		p.postRecv(r2)
		v.postSend(before)
		v.postSend(write)
		v.postSend(behind)
		w.run("the write", func() bool { return behind.Status().Done() && r2.Status().Done() })
		if st := write.Status(); st != datasheet.StatusDone|datasheet.StatusOpRDMAWrite || write.Length() != uint32(n) {
			t.Errorf("%d bytes: %v, length %d", n, st, write.Length())
		}
		should.Same(t, to.mem[i:i+n], want, "%d bytes are not what was written", n)
		should.Be(t, w.a.slots.short-short, 3, "%d bytes: short frames", n)
	}
	should.Be(t, w.a.slots.lent, 2, "lent")
}

// TestShortWriteRefused: a write that the peer does not allow ends the connection. Writes and sends before it are complete, those behind
// it are flushed.
func TestShortWriteRefused(t *testing.T) {
	for _, n := range []int{64, 4096} {
		for name, change := range map[string]func(p *vi, to *target){
			"no such region": func(_ *vi, to *target) { to.handle += 1 << 12 },
			"beyond":         func(_ *vi, to *target) { to.address += 8192 },
			"wraps":          func(_ *vi, to *target) { to.address = ^uint64(0) - 8 },
			"not for writes": func(p *vi, to *target) { *to = p.target(8192, datasheet.AccessRDMARead) },
			"deregistered": func(p *vi, to *target) {
				do(p.n, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: to.handle})
			},
		} {
			t.Run(fmt.Sprint(n, " ", name), func(t *testing.T) {
				w, v, p := writesPair(t)
				good, bad := p.target(8192, bothRights), target{}
				bad = good
				change(p, &bad)
				first := v.write(good, 0, pattern(n, 1), n)
				wrong := v.write(bad, 0, pattern(n, 2), n)
				third := v.write(good, 4096, pattern(n, 3), n)
				for _, d := range []*descriptors.Descriptor{first, wrong, third} {
					v.postSend(d)
				}
				w.run("the end", func() bool { return third.Status().Done() && p.state() == datasheet.StateError })
				if name != "deregistered" && (first.Status().Failed() || !bytes.Equal(good.mem[:n], pattern(n, 1))) {
					t.Errorf("the first: %v", first.Status())
				}
				refused := wrong
				if name == "deregistered" {
					refused = first // it is the same region
				}
				if refused.Status()&datasheet.StatusRDMAProtection == 0 {
					t.Errorf("the refused one: %v", refused.Status())
				}
				should.Be(t, third.Status()&datasheet.StatusFlushed, datasheet.StatusFlushed, "the one behind it: %v", third.Status())
				should.Same(t, good.mem[4096:], make([]byte, 4096), "memory was written behind a refused write")
			})
		}
	}
}

// TestShortWriteRevoked: memory that is taken back while it is lent for a write ends the connection.
func TestShortWriteRevoked(t *testing.T) {
	w, v, p := writesPair(t)
	to := p.target(8192, bothRights)
	w.b.lender.reading = func() { w.a.lender.Revoke(0) }
	d := v.write(to, 0, pattern(4096, 1), 4096)
	v.postSend(d)
	w.run("the end", func() bool { return d.Status().Done() && p.state() == datasheet.StateError })
	should.Be(t, d.Status().Failed(), true, "%v", d.Status())
}

// TestHostileShortWrites: short writes that may not be write nothing, and end the connection.
func TestHostileShortWrites(t *testing.T) {
	type write struct {
		frame   shortFrame
		payload []byte
	}
	for name, change := range map[string]func(w *write, x *datasheet.Extension){
		"no extension":          func(w *write, _ *datasheet.Extension) { w.payload = w.payload[:8] },
		"of another frame":      func(_ *write, x *datasheet.Extension) { x.Request++ },
		"of the frame before":   func(_ *write, x *datasheet.Extension) { x.Request-- },
		"not the next":          func(w *write, _ *datasheet.Extension) { w.frame.header = numbered(w.frame.header, 1) },
		"handle 0":              func(_ *write, x *datasheet.Extension) { x.Handle = 0 },
		"before the region":     func(_ *write, x *datasheet.Extension) { x.Address-- },
		"beyond the region":     func(_ *write, x *datasheet.Extension) { x.Address += 8192 - 63 },
		"a table and no region": func(w *write, _ *datasheet.Extension) { w.frame.beside |= datasheet.ShortLent },
	} {
		t.Run(name, func(t *testing.T) {
			w, v, p := writesPair(t)
			to := p.target(8192, bothRights)
			var last write
			w.a.slots.seen = func(f shortFrame, b []byte) { last = write{f, b} }
			d := v.write(to, 0, pattern(64, 1), 64)
			v.postSend(d)
			w.run("the write", func() bool { return d.Status().Done() })
			remembered := append([]byte(nil), to.mem...)
			payload := alignedBytes(len(last.payload))
			copy(payload, last.payload)
			for i := range payload[datasheet.ExtensionSize:] {
				payload[datasheet.ExtensionSize+i] = 0xee
			}
			next := write{last.frame, payload}
			next.frame.header = numbered(next.frame.header, 1)
			x := datasheet.ExtensionAt(payload)
			x.Request++
			change(&next, x)
			w.b.slots.arrive(next.frame, next.payload)
			w.run("the end", func() bool { return p.state() == datasheet.StateError })
			should.Same(t, to.mem, remembered, "memory was written")
		})
	}
}

// TestShortWriteWithoutRights: a VI that allows no writes is not written to by one that did not ask.
func TestShortWriteWithoutRights(t *testing.T) {
	w, v, p := pair(t, nil, exactly(nil), withSlots)
	w.a.calls, w.b.calls = true, true
	to := p.target(4096, bothRights)
	var psn uint32
	w.a.port.spoil = func(f []byte) [][]byte {
		psn = datasheet.HeaderAt(f).PSN
		return [][]byte{f}
	}
	w.a.slots.whole = true // its header has the whole PSN
	mustArrive(t, v, p, 10, 1)
	w.a.slots.whole, w.a.port.spoil = false, nil
	var last shortFrame
	w.a.slots.seen = func(f shortFrame, _ []byte) { last = f }
	mustArrive(t, v, p, 10, 1)
	payload := alignedBytes(datasheet.ExtensionSize + 64)
	*datasheet.ExtensionAt(payload) = datasheet.Extension{Address: to.address, Handle: to.handle, Request: psn + 2}
	payload[datasheet.ExtensionSize] = 1
	w.b.slots.arrive(shortFrame{numbered(last.header, 1), last.beside | datasheet.ShortWrite}, payload)
	w.run("the end", func() bool { return p.state() == datasheet.StateError })
	should.Same(t, to.mem, make([]byte, 4096), "memory was written")
}
