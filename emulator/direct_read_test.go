package emulator_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// read reads n bytes at offset of y's memory to the start of x's, without a descriptor.
func (r *remote) read(offset, n int) bool {
	return r.from.VI.ReadDirect(r.memory.Address()+uint64(offset), r.memory.Handle(), r.from.Memory, 0, n)
}

// TestReadDirect: a read without a descriptor brings the same bytes as one that is posted, where that
// takes no frame, and nothing elsewhere.
func TestReadDirect(t *testing.T) {
	on, off := wire.SHMOptions{Share: true}, wire.SHMOptions{}
	for name, target := range map[string]wire.SHMOptions{"lends": on, "lends nothing": off} {
		t.Run(name, func(t *testing.T) {
			x, y := newWriters(t, on, target)
			const size = 70_000
			r := newRemote(t, x, y, size)
			if target.Share {
				r.waitDirect(t, false)
			}
			fill(r.memory.Bytes(), 5)
			for i, n := range []int{1, 64, 4097, 65_536} {
				ours := r.from.Memory.Bytes()
				fill(ours, 99)
				want := bytes.Clone(ours)
				if target.Share {
					copy(want, r.memory.Bytes()[i:i+n])
				}
				before := frames(t, x)
				if ok := r.read(i, n); ok != target.Share || frames(t, x) != before || !bytes.Equal(ours, want) {
					t.Fatalf("a read of %d bytes: %v, %d frames, or other bytes", n, ok, frames(t, x)-before)
				}
			}
			should.OK(t, r.do(t, 0, 64, false))
		})
	}
}

// TestReadDirectRefused: what a read may not reach at either end does not come.
func TestReadDirectRefused(t *testing.T) {
	x, y := newWriters(t, both, both)
	const size = 8192
	r := newRemote(t, x, y, size)
	r.waitDirect(t, false)
	at, handle, into := r.memory.Address(), r.memory.Handle(), r.from.Memory
	fill(into.Bytes(), 99)
	want := bytes.Clone(into.Bytes())
	tag := must.Get(x.nic.CreatePtag(t.Context()))(t)
	other := must.Get(x.nic.Alloc(t.Context(), size, via.MemoryAttributes{Ptag: tag}))(t)
	gone := must.Get(x.nic.Alloc(t.Context(), size, via.MemoryAttributes{}))(t)
	must.OK(t, gone.Close(t.Context()))
	refused := func(name string, address uint64, handle uint32, into *via.Memory, offset, n int) {
		t.Helper()
		should.Be(t, r.from.VI.ReadDirect(address, handle, into, offset, n), false, "%s: it is read", name)
	}
	refused("behind the end", at+size-63, handle, into, 0, 64)
	refused("before the start", at-1, handle, into, 0, 64)
	refused("an address that wraps", math.MaxUint64-10, handle, into, 0, 64)
	refused("another generation of the handle", at, handle+1<<20, into, 0, 64)
	refused("a handle beyond the table", at, handle|0xfffff, into, 0, 64)
	refused("handle zero", at, 0, into, 0, 64)
	refused("no bytes", at, handle, into, 0, 0)
	refused("more than a message", at, handle, into, 0, size+1)
	refused("before its own memory", at, handle, into, -1, 64)
	refused("behind its own memory", at, handle, into, 2*size-63, 64)
	refused("its own memory of another tag", at, handle, other, 0, 64)
	refused("its own memory that is gone", at, handle, gone, 0, 64)
	must.OK(t, r.from.VI.PostSend(r.operation(t, 0, 0, 64, true)))
	refused("something is posted", at, handle, into, 0, 64)
	must.Get(r.p.Take(r.from.VI.SendDone))(t)
	x.device.Watch(func(bool, []byte) {})
	refused("it is watched", at, handle, into, 0, 64)
	x.device.Watch(nil)
	r.waitDirect(t, false)
	must.OK(t, r.memory.SetAttributes(t.Context(), via.MemoryAttributes{RDMAWrite: true}))
	copy(into.Bytes(), want) // waitDirect has read
	refused("no right to read", at, handle, into, 0, 64)
	must.OK(t, r.memory.SetAttributes(t.Context(), via.MemoryAttributes{RDMARead: true}))
	should.Be(t, r.read(0, 64), true, "it is not read again")
	copy(into.Bytes(), want)
	must.OK(t, r.to.VI.Disconnect(t.Context()))
	refused("the target has disconnected", at, handle, into, 0, 64)
	must.OK(t, r.memory.Close(t.Context()))
	refused("memory that is gone", at, handle, into, 0, 64)
	should.Same(t, into.Bytes(), want, "bytes have come")
}
