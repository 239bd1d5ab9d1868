package emulator_test

import (
	"bytes"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"path/filepath"
	"runtime"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/engine"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
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
	memory := must.Get(y.nic.Alloc(t.Context(), size, via.MemoryAttributes{RDMAWrite: true, RDMARead: true}))(t)
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
	must.OK(t, set(r.memory.Address()+uint64(offset), r.memory.Handle()))
	return d
}

// do carries an operation out, with both NICs at work.
func (r *remote) do(t testing.TB, offset, n int, write bool) error {
	t.Helper()
	must.OK(t, r.from.VI.PostSend(r.operation(t, 0, offset, n, write)))
	_, err := r.p.Take(r.from.VI.SendDone)
	return err
}

// frames counts the frames that x has sent.
func frames(t testing.TB, s *sharer) uint64 {
	t.Helper()
	counters := must.Get(s.nic.Stats())(t)
	return counters.FramesSent
}

// direct reports whether an operation is carried out without a frame.
func (r *remote) direct(t testing.TB, write bool) bool {
	t.Helper()
	before := frames(t, r.x)
	must.OK(t, r.do(t, 0, 64, write))
	return frames(t, r.x) == before
}

// closeUnder ends the registration of the target while the initiator repeats an operation of size bytes:
// after more of them than round. Each begins with begin and ends with check. When the registration has ended,
// then is called; after that the operations must end, too. It returns their error, nil if the connection's end ended them.
func (r *remote) closeUnder(t *testing.T, round, size int, write bool, begin func(), check func() error, then func()) error {
	t.Helper()
	begun, ended := make(chan struct{}), make(chan error)
	go func() {
		for i := 0; ; i++ {
			begin()
			if err := r.from.VI.PostSend(r.operation(t, 0, 0, size, write)); err != nil {
				ended <- nil // the connection has ended
				return
			}
			err := error(via.ErrNotDone)
			for err == via.ErrNotDone {
				if _, err = r.from.VI.SendDone(); err == via.ErrNotDone {
					runtime.Gosched()
				}
			}
			if err == nil {
				err = check()
			}
			if err != nil {
				ended <- err
				return
			}
			if i == round {
				close(begun)
			}
		}
	}()
	select {
	case <-begun:
	case err := <-ended:
		t.Fatalf("the operations end before the registration: %v", err)
	}
	must.OK(t, r.memory.Close(t.Context()))
	then()
	for stop := time.Now().Add(timeout); ; r.y.nic.Poll() {
		select {
		case err := <-ended:
			return err
		default:
			must.Be(t, time.Now().After(stop), false, "the initiator does not notice")
		}
	}
}

// waitDirect waits until operations are.
func (r *remote) waitDirect(t testing.TB, write bool) {
	t.Helper()
	waittest.Until(t, "operations go without frames", func() bool { return r.direct(t, write) })
}

// TestDirect: which ends carry out what, and that the bytes are right.
func TestDirect(t *testing.T) {
	on, off := wire.SHMOptions{Share: true}, wire.SHMOptions{}
	for _, tt := range []struct {
		name          string
		first, second wire.SHMOptions
		read, write   bool
	}{
		{"both lend for writing", both, both, true, true},
		{"the target only for reading", both, on, true, false},
		{"the initiator only for reading", on, both, true, false},
		{"both only for reading", on, on, true, false},
		{"the target lends nothing", both, off, false, false},
		{"the initiator lends nothing", off, both, false, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x, y := newWriters(t, tt.first, tt.second)
			const size = 70_000
			r := newRemote(t, x, y, size)
			if tt.read {
				r.waitDirect(t, false)
			}
			if tt.write {
				r.waitDirect(t, true)
			}
			if r.direct(t, false) != tt.read || r.direct(t, true) != tt.write {
				t.Errorf("carried out by itself: reads %v, writes %v", r.direct(t, false), r.direct(t, true))
			}
			ours, theirs := r.from.Memory.Bytes(), r.memory.Bytes()
			for i, n := range []int{1, 63, 64, 4096, 4097, 65_536} {
				fill(theirs, byte(i))
				fill(ours, byte(i+100))
				must.OK(t, r.do(t, i, n, true))
				want := make([]byte, size)
				fill(want, byte(i))
				copy(want[i:], ours[:n])
				must.Same(t, theirs, want, "a write of %d bytes did not land where it should", n)
				clear(ours)
				must.OK(t, r.do(t, i, n, false))
				if !bytes.Equal(ours[:n], want[i:i+n]) || ours[n] != 0 {
					t.Fatalf("a read of %d bytes brought something else", n)
				}
			}
		})
	}
}

func fill(b []byte, seed byte) {
	for i := range b {
		b[i] = seed + byte(i) + byte(i>>8)
	}
}

// TestDirectRefused: what a target does not allow is refused as over any wire, and nothing is
// written.
func TestDirectRefused(t *testing.T) {
	leaktest.Parallel(t)
	const size = 8192
	set := func(a via.MemoryAttributes) func(*testing.T, *remote) {
		return func(t *testing.T, r *remote) { must.OK(t, r.memory.SetAttributes(t.Context(), a)) }
	}
	for _, tt := range []struct {
		name    string
		write   bool
		address uint64 // behind that of the memory
		handle  func(uint32) uint32
		before  func(t *testing.T, r *remote)
	}{
		{"behind the end", true, size - 63, nil, nil},
		{"before the start", false, math.MaxUint64, nil, nil},
		{"an address far away", false, 1 << 63, nil, nil},
		{"another generation of the handle", true, 0, func(h uint32) uint32 { return h + 1<<20 }, nil},
		{"a handle beyond the table", true, 0, func(h uint32) uint32 { return h | 0xfffff }, nil},
		{"handle zero", false, 0, func(uint32) uint32 { return 0 }, nil},
		{"no right to write", true, 0, nil, set(via.MemoryAttributes{RDMARead: true})},
		{"no right to read", false, 0, nil, set(via.MemoryAttributes{RDMAWrite: true})},
		{"another tag", true, 0, nil, func(t *testing.T, r *remote) {
			other := must.Get(r.y.nic.CreatePtag(t.Context()))(t)
			set(via.MemoryAttributes{Ptag: other, RDMAWrite: true, RDMARead: true})(t, r)
		}},
		{"memory that is gone", true, 0, nil, func(t *testing.T, r *remote) { must.OK(t, r.memory.Close(t.Context())) }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			x, y := newWriters(t, both, both)
			r := newRemote(t, x, y, size)
			r.waitDirect(t, true)
			r.waitDirect(t, false)
			theirs := r.memory.Bytes()
			fill(theirs, 3)
			want := bytes.Clone(theirs)
			address, handle := r.memory.Address()+tt.address, r.memory.Handle()
			if tt.before != nil {
				tt.before(t, r)
			}
			if tt.handle != nil {
				handle = tt.handle(handle)
			}
			d := r.from.Prepare(t, r.from.Send[0], 0, 64)
			set := d.SetRDMARead
			if tt.write {
				set = d.SetRDMAWrite
			}
			fill(r.from.Memory.Bytes(), 77)
			must.OK(t, set(address, handle))
			must.OK(t, r.from.VI.PostSend(d))
			_, err := r.p.Take(r.from.VI.SendDone)
			if !errors.Is(err, via.ErrDescriptor) || d.Status()&via.StatusRDMAProtection == 0 {
				t.Errorf("error %v, status %v", err, d.Status())
			}
			if m := r.memory.Bytes(); m != nil && !bytes.Equal(m, want) {
				t.Error("it has been written")
			}
		})
	}
}

// TestDirectOff: who wants a say at either end sees operations as frames, from the return of the
// call that says so until it ends.
func TestDirectOff(t *testing.T) {
	leaktest.Parallel(t)
	for _, tt := range []struct {
		name    string
		on, off func(t *testing.T, s *sharer)
	}{
		{"watched", func(_ *testing.T, s *sharer) { s.device.Watch(func(bool, []byte) {}) },
			func(_ *testing.T, s *sharer) { s.device.Watch(nil) }},
		{"a policy", func(t *testing.T, s *sharer) {
			must.OK(t, s.nic.SetPolicy(via.Policy{Name: "store-and-forward"}))
		}, nil},
		{"the host's pulses", func(t *testing.T, s *sharer) {
			must.OK(t, s.nic.SetPolicy(via.Policy{Name: "auto", At: via.AtHost}))
		}, nil},
		{"the log", func(t *testing.T, s *sharer) { must.OK(t, s.nic.EnableDMALog(64)) },
			func(t *testing.T, s *sharer) { must.OK(t, s.nic.DisableDMALog()) }},
		{"a program", func(t *testing.T, s *sharer) {
			shipped := must.Get(firmware.BuildShipped("count"))(t)
			image := must.Get(load.Flat(shipped.Link()))(t)
			must.Get(s.nic.LoadProgram(t.Context(), image, load.Options{}))(t)
		}, func(t *testing.T, s *sharer) {
			must.Get(s.nic.UnloadProgram())(t)
		}},
	} {
		for _, target := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/target=%v", tt.name, target), func(t *testing.T) {
				x, y := newWriters(t, both, both)
				r := newRemote(t, x, y, 4096)
				r.waitDirect(t, true)
				s := x
				if target {
					s = y
				}
				tt.on(t, s)
				if r.direct(t, true) || r.direct(t, false) {
					t.Error("operations are carried out without a frame")
				}
				if tt.off != nil {
					tt.off(t, s)
					r.waitDirect(t, true)
				}
			})
		}
	}
}

// TestDirectAfterDisconnect: a connection that its target has ended lets nothing in, before the
// initiator knows of its end.
func TestDirectAfterDisconnect(t *testing.T) {
	x, y := newWriters(t, both, both)
	r := newRemote(t, x, y, 4096)
	r.waitDirect(t, true)
	must.OK(t, r.to.VI.Disconnect(t.Context()))
	fill(r.memory.Bytes(), 9)
	want := bytes.Clone(r.memory.Bytes())
	fill(r.from.Memory.Bytes(), 77)
	if err := r.from.VI.PostSend(r.operation(t, 0, 0, 64, true)); err == nil {
		should.Refuse(r.p.Take(r.from.VI.SendDone))(t, via.ErrDescriptor, "error")
	}
	should.Same(t, r.memory.Bytes(), want, "it has been written")
}

// TestDirectAfterDeregistration: once a registration has ended, nothing is written to its memory,
// and no read returns what it holds from then on, while the peer does it as fast as it can. The
// memory is registered twice, so that it is still there to be looked at.
func TestDirectAfterDeregistration(t *testing.T) {
	leaktest.Parallel(t)
	x, y := newWriters(t, both, both)
	const size = 64 << 10
	rounds := 80
	if testing.Short() {
		rounds = 10
	}
	rights := via.MemoryAttributes{RDMAWrite: true, RDMARead: true}
	whole, err := y.nic.Alloc(t.Context(), size, rights)
	must.OK(t, err)
	before, after := make([]byte, size), make([]byte, size)
	fill(before, 3)
	fill(after, 1)
	for round := range rounds {
		write := round%2 == 0
		copy(whole.Bytes(), before)
		r := newRemote(t, x, y, size)
		must.OK(t, r.memory.Close(t.Context()))
		r.memory, err = y.nic.Register(t.Context(), whole.Bytes(), rights)
		must.OK(t, err)
		r.waitDirect(t, write)
		ours := r.from.Memory.Bytes()[:size]
		fill(ours, 77)
		begin, check := func() {}, func() error { return nil }
		if !write {
			begin = func() { clear(ours) }
			check = func() error {
				if !bytes.Equal(ours, before) {
					return errors.New("a read has succeeded that returned other bytes")
				}
				return nil
			}
			copy(whole.Bytes(), before) // waitDirect may have written
		}
		err = r.closeUnder(t, round/2, size, write, begin, check, func() { copy(whole.Bytes(), after) })
		if err != nil && !errors.Is(err, via.ErrDescriptor) {
			t.Fatalf("round %d: %v", round, err)
		}
		must.Same(t, whole.Bytes(), after, "round %d: a byte was written after the end", round)
	}
}

// TestDirectScribbled: a target that writes anything into its table has bytes of its own moved,
// and no others.
func TestDirectScribbled(t *testing.T) {
	leaktest.Parallel(t)
	x, y := newWriters(t, both, both)
	const size = 4096
	r := newRemote(t, x, y, size)
	r.waitDirect(t, true)
	rounds := 50_000
	if soak.Wanted() {
		rounds = 1_000_000
	}
	table, good := y.port.Table(), datasheet.DirectRegion{}
	at := &table.Regions[r.memory.Handle()&0xfffff]
	must.Be(t, at.Load(r.memory.Handle(), &good), true, "the region is not in the table")
	random := rand.New(rand.NewPCG(31, 5))
	near := func(v uint64) uint64 {
		switch random.IntN(4) {
		case 0:
			return random.Uint64()
		case 1:
			return v + uint64(random.IntN(3*size)) - size
		case 2:
			return -v
		}
		return v
	}
	ours := r.from.Memory.Bytes()
	fill(ours, 50)
	guard := bytes.Clone(ours[size:])
	sent, carried := frames(t, x), 0
	for range rounds {
		bad := good
		switch random.IntN(7) {
		case 0:
			bad.Handle = uint32(near(uint64(good.Handle)))
		case 1:
			bad.Access = datasheet.Access(random.Uint32())
		case 2:
			bad.Ptag = uint32(near(uint64(good.Ptag)))
		case 3:
			bad.Memory = uint32(random.IntN(12))
		case 4:
			bad.Address, bad.Length = near(good.Address), near(good.Length)
		case 5:
			bad.Offset, bad.Length = near(good.Offset), near(good.Length)
		case 6:
			table.Endpoints[random.IntN(8)] = near(table.Endpoints[1])
		}
		at.Clear()
		at.Store(&bad)
		n := 1 + random.IntN(size-1)
		must.OK(t, r.do(t, random.IntN(size-n), n, random.IntN(2) == 0))
		if now := frames(t, x); now == sent {
			carried++
		} else {
			sent = now
		}
	}
	if carried == 0 || carried == rounds {
		t.Errorf("%d of %d operations were carried out without a frame", carried, rounds)
	}
	should.Same(t, ours[size:], guard, "a read has left its buffer")
}

// TestDirectOnly: who posts nothing else, and finds each operation complete at once, still hears
// its peer, and is heard: neither takes the other for dead.
func TestDirectOnly(t *testing.T) {
	leaktest.Parallel(t)
	quick := func(o *emulator.Options) {
		o.Timing = engine.DefaultTiming()
		o.Timing.Probe, o.Timing.Dead = 20*time.Millisecond, 300*time.Millisecond
	}
	first, second := both, both
	first.Path, first.Role = filepath.Join(t.TempDir(), "wire"), wire.SHMListen
	second.Path, second.Role = first.Path, wire.SHMConnect
	x, y := newSharer(t, first, quick), newSharer(t, second, quick)
	waitLink(t, true, x.device, y.device)
	r := newRemote(t, x, y, 4096)
	r.waitDirect(t, true)
	d := r.operation(t, 0, 0, 64, false)
	for end := time.Now().Add(time.Second); time.Now().Before(end); y.nic.Poll() {
		for range 100 {
			d.Rearm()
			must.OK(t, r.from.VI.PostSend(d))
			for {
				_, err := r.from.VI.SendDone()
				if err == nil {
					break
				}
				if err != via.ErrNotDone {
					t.Fatal(err)
				}
				y.nic.Poll()
			}
		}
	}
	for _, vi := range []*via.VI{r.from.VI, r.to.VI} {
		if s, err := vi.Query(t.Context()); err != nil || s.State != via.Connected {
			t.Errorf("state %v, %v", s.State, err)
		}
	}
}
