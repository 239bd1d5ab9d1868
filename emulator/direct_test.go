package emulator_test

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// both has a wire lend for reading and writing.
var both = wire.SHMOptions{Share: true, ShareWrite: true}

// newWriters makes a pair whose wires have options of their own.
func newWriters(t testing.TB, first, second wire.SHMOptions) (a, b *sharer) {
	t.Helper()
	first.Path, first.Role = filepath.Join(t.TempDir(), "wire"), wire.SHMListen
	second.Path, second.Role = first.Path, wire.SHMConnect
	a, b = newSharer(t, first, nil), newSharer(t, second, nil)
	waitLink(t, true, a.device, b.device)
	return a, b
}

// remote is a connection from x to y, with memory of y's that x may write and read.
type remote struct {
	p        *conform.World
	x, y     *sharer
	from, to *conform.End
	memory   *via.Memory
}

func newRemote(t testing.TB, x, y *sharer, size int) *remote {
	t.Helper()
	p := conform.NewWorld(t, x.nic, y.nic)
	r := &remote{p: p, x: x, y: y}
	r.from, r.to = p.Connect(conform.Setup{Memory: 2 * size, Segments: 2,
		Attributes: via.VIAttributes{Reliability: via.ReliableDelivery, MaxTransfer: uint32(size), RDMAWrite: true, RDMARead: true}})
	memory, err := y.nic.Alloc(t.Context(), size, via.MemoryAttributes{RDMAWrite: true, RDMARead: true})
	if err != nil {
		t.Fatal(err)
	}
	r.memory = memory
	return r
}

// operation makes descriptor i of x a write to n bytes at offset of y's memory, or a read of
// them.
func (r *remote) operation(t testing.TB, i, offset, n int, write bool) *via.Descriptor {
	t.Helper()
	d := r.from.Prepare(t, r.from.Send[i], 0, n)
	set := d.SetRDMARead
	if write {
		set = d.SetRDMAWrite
	}
	if err := set(r.memory.Address()+uint64(offset), r.memory.Handle()); err != nil {
		t.Fatal(err)
	}
	return d
}

// do carries an operation out, with both NICs at work.
func (r *remote) do(t testing.TB, offset, n int, write bool) error {
	t.Helper()
	if err := r.from.VI.PostSend(r.operation(t, 0, offset, n, write)); err != nil {
		t.Fatal(err)
	}
	_, err := r.p.Take(r.from.VI.SendDone)
	return err
}

// frames is how many frames x has sent.
func frames(t testing.TB, s *sharer) uint64 {
	t.Helper()
	counters, err := s.nic.Stats()
	if err != nil {
		t.Fatal(err)
	}
	return counters.FramesSent
}

// direct reports whether an operation is carried out without a frame.
func (r *remote) direct(t testing.TB, write bool) bool {
	t.Helper()
	before := frames(t, r.x)
	if err := r.do(t, 0, 64, write); err != nil {
		t.Fatal(err)
	}
	return frames(t, r.x) == before
}

// waitDirect waits until operations are.
func (r *remote) waitDirect(t testing.TB, write bool) {
	t.Helper()
	for end := time.Now().Add(patience); !r.direct(t, write); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("operations go in frames: %+v, %+v", r.x.device.Sharing(), r.y.device.Sharing())
		}
	}
}
