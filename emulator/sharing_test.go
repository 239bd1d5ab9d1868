package emulator_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire"
)

// held are devices that tests have made, by the path of addresses of scheme held:
// so that an application can open a device whose wire the test knows.
var held sync.Map

func init() {
	vfio.Register("held", func(_ context.Context, a vfio.Address) (vfio.Device, error) {
		d, ok := held.LoadAndDelete(a.Path)
		if !ok {
			return nil, fmt.Errorf("%w: nobody holds %q", vfio.ErrBadAddress, a.Path)
		}
		return d.(vfio.Device), nil
	})
}

// sharer is a NIC on a wire in shared memory.
type sharer struct {
	port   *wire.SHM
	device *emulator.Device
	nic    *via.NIC
}

// newSharer makes a NIC, whose engine is inline if nothing else is said.
func newSharer(t testing.TB, o wire.SHMOptions, change func(o *emulator.Options)) *sharer {
	t.Helper()
	var port *wire.SHM
	waittest.Until(t, "the peer answers in time", func() bool { // not at once where the machine is busy
		var err error
		if port, err = wire.NewSHM(t.Context(), o); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		return err == nil
	})
	options := emulator.Options{Wire: port}
	if change != nil {
		change(&options)
	}
	d := must.Get(emulator.New(options))(t)
	name := fmt.Sprintf("%p", d)
	held.Store(name, vfio.Device(d))
	if options.Thread {
		held.Store(name, struct{ vfio.Device }{d}) // no Poller
	}
	return &sharer{port, d, conform.OpenNIC(t, "held:"+name, via.Options{})}
}

// newSharers makes a pair.
func newSharers(t testing.TB, first, second bool, change func(o *emulator.Options)) (a, b *sharer) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "wire")
	a = newSharer(t, wire.SHMOptions{Path: path, Role: wire.SHMListen, Share: first}, change)
	b = newSharer(t, wire.SHMOptions{Path: path, Role: wire.SHMConnect, Share: second}, change)
	waitLink(t, true, a.device, b.device)
	return a, b
}

// waitShared waits until memory of a is the peer's to read.
func waitShared(t testing.TB, a *sharer, b []byte) {
	t.Helper()
	waittest.Until(t, "the peer can read it", func() bool {
		_, _, ok := a.port.Lend(b)
		return ok
	})
}

// exchange sends a message of n bytes and checks that it arrives.
func exchange(t testing.TB, p *conform.World, x, y *conform.End, n int, seed byte) {
	t.Helper()
	half := x.Memory.Size() / 2
	out, in := x.Memory.Bytes()[:n], y.Memory.Bytes()[half:half+n]
	for i := range out {
		out[i] = seed + byte(i) + byte(i>>8)
	}
	clear(in)
	must.OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[0], half, n)))
	must.OK(t, x.VI.PostSend(x.Prepare(t, x.Send[0], 0, n)))
	p.MustTake(y.VI.RecvDone)
	p.MustTake(x.VI.SendDone)
	must.Same(t, in, out, "of %d bytes", n)
}

// TestLentBetweenDevices: payloads are lent if both ends share, and arrive in any
// case.
func TestLentBetweenDevices(t *testing.T) {
	for _, tt := range []struct {
		name          string
		first, second bool
		level         via.Reliability
		lends         bool
	}{
		{"both share", true, true, via.ReliableDelivery, true},
		{"reliable reception", true, true, via.ReliableReception, true},
		{"unreliable", true, true, via.Unreliable, false},
		{"one shares", true, false, via.ReliableDelivery, false},
		{"the other shares", false, true, via.ReliableDelivery, false},
		{"nobody shares", false, false, via.ReliableDelivery, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			checkFiles(t)
			a, b := newSharers(t, tt.first, tt.second, nil)
			p := conform.NewWorld(t, a.nic, b.nic)
			const largest = 1 << 20
			x, y := p.Connect(conform.Setup{Memory: 2 * largest,
				Attributes: via.VIAttributes{Reliability: tt.level, MaxTransfer: largest}})
			if tt.lends {
				waitShared(t, a, x.Memory.Bytes())
				waitShared(t, b, y.Memory.Bytes())
			}
			before := a.port.Stats().Lent
			lent := uint64(0)
			for i, n := range []int{0, 64, 1000, 4096, 8192, 65536, 100_000, largest} {
				exchange(t, p, x, y, n, byte(i))
				exchange(t, p, y, x, n, byte(i+100))
				lent += uint64(n)
			}
			lent -= 64 + 1000 + 100_000%(16<<10) // in frames that are too small
			for _, s := range []*sharer{a, b} {
				got, sharing := s.port.Stats(), s.device.Sharing()
				if !tt.lends {
					should.Be(t, got.Borrowed, 0, "%+v", got)
					continue
				}
				if got.BorrowedBytes < lent || got.Lent == before || got.Revoked != 0 {
					t.Errorf("%+v, want %d bytes", got, lent)
				}
				if !sharing.On || sharing.Exported == 0 || sharing.Copied != 0 || sharing.Err != nil {
					t.Errorf("%+v", sharing)
				}
			}
			for _, s := range []*sharer{a, b} {
				should.OK(t, s.nic.Close())
				should.Be(t, s.device.Sharing().Exported, 0, "mappings are exported after the driver has taken all back")
			}
			should.Be(t, sharedMappings(t), 0, "mappings are left")
		})
	}
}

// TestFreeWhileItIsRead ends connections and frees memory while the peer, which has
// an engine of its own, reads what was lent. Each message arrives as it was sent, or
// not at all.
func TestFreeWhileItIsRead(t *testing.T) {
	checkFiles(t)
	a, b := newSharers(t, true, true, func(o *emulator.Options) { o.Thread = true })
	p := conform.NewWorld(t, a.nic, b.nic)
	ctx := conform.Context(t)
	const count, size, rounds = 4, 30_000, 60
	x, y := conform.NewEnd(t, a.nic, conform.Setup{}), conform.NewEnd(t, b.nic, conform.Setup{Memory: count * size})
	arrived := 0
	for round := range byte(rounds) {
		memory := must.Get(a.nic.Alloc(ctx, count*size, via.MemoryAttributes{Ptag: x.VI.Attributes().Ptag}))(t)
		out := memory.Bytes()
		for i := range out {
			out[i] = round
		}
		waitShared(t, a, out)
		for i := range count {
			must.OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[i], i*size, size)))
		}
		must.OK(t, conform.ConnectVIs(ctx, x.VI, y.VI, t.Name()))
		for i := range count {
			d := x.Send[i]
			d.Prepare()
			must.OK(t, memory.AddTo(d, i*size, size))
			must.OK(t, x.VI.PostSend(d))
		}
		for i := range int(round) % (count + 1) {
			p.Until("one more message", func() bool { return y.Recv[i].Status().Done() })
		}
		must.OK(t, x.VI.Disconnect(ctx))
		for i := range out {
			out[i] = 0xee
		}
		for range count {
			_, _ = p.Take(x.VI.SendDone) // flushed or not
		}
		must.OK(t, memory.Close(ctx))
		for i := range count {
			d, _ := p.Take(y.VI.RecvDone)
			if d.Status().Failed() {
				continue
			}
			arrived++
			must.Same(t, y.Memory.Bytes()[i*size:(i+1)*size], bytes.Repeat([]byte{round}, size), "round %d, message %d", round, i)
		}
		must.OK(t, y.VI.Disconnect(ctx))
	}
	t.Logf("%d of %d messages arrived, %+v", arrived, count*rounds, b.port.Stats())
}

// TestMoreMemoryThanIsShared: what cannot be exported is copied, and the device
// says so.
func TestMoreMemoryThanIsShared(t *testing.T) {
	checkFiles(t)
	a, b := newSharers(t, true, true, nil)
	p := conform.NewWorld(t, a.nic, b.nic)
	ctx := conform.Context(t)
	x, y := p.Connect(conform.Setup{})
	var many []*via.Memory
	for range 80 {
		m := must.Get(a.nic.Alloc(ctx, 4096, via.MemoryAttributes{Ptag: x.VI.Attributes().Ptag}))(t)
		many = append(many, m)
	}
	s := a.device.Sharing()
	if s.Exported != 64 || s.Copied < 16 || !errors.Is(s.Err, wire.ErrMemory) {
		t.Fatalf("%+v", s)
	}
	last := many[len(many)-1]
	for i := range last.Bytes() {
		last.Bytes()[i] = byte(i)
	}
	must.OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 4096)))
	d := x.Send[0]
	d.Prepare()
	must.OK(t, last.AddTo(d, 0, 4096))
	must.OK(t, x.VI.PostSend(d))
	p.MustTake(y.VI.RecvDone)
	p.MustTake(x.VI.SendDone)
	must.Same(t, y.Memory.Bytes()[:4096], last.Bytes(), "what has arrived")
	should.Be(t, b.port.Stats().Borrowed, 0, "borrowed")
	for _, m := range many {
		must.OK(t, m.Close(ctx))
	}
	if left := a.device.Sharing(); left.Copied != 0 || left.Exported >= s.Exported {
		t.Errorf("%+v", left)
	}
}

// TestResetKeepsExports: mappings are the IOMMU's, and so is what the peer may
// read.
func TestResetKeepsExports(t *testing.T) {
	checkFiles(t)
	path := filepath.Join(t.TempDir(), "wire")
	port := must.Get(wire.NewSHM(t.Context(), wire.SHMOptions{Path: path, Role: wire.SHMListen, Share: true}))(t)
	d := must.Get(emulator.New(emulator.Options{Wire: port, Limits: smallLimits}))(t)
	defer closeDevice(t, d)
	for i, flags := range []vfio.DMAFlags{vfio.DMARead, vfio.DMARead | vfio.DMAWrite, vfio.DMAWrite} {
		must.OK(t, d.MapDMA(newMemory(t, datasheet.PageSize), uint64(0x100000+i*datasheet.PageSize), flags))
	}
	must.OK(t, d.Reset(t.Context()))
	if s := d.Sharing(); s.Exported != 2 || s.Copied != 0 {
		t.Errorf("%+v: what the device may not read is not for its peer either", s)
	}
	for i := range 3 {
		should.OK(t, d.UnmapDMA(uint64(0x100000+i*datasheet.PageSize), datasheet.PageSize))
	}
	if s := d.Sharing(); s.Exported != 0 || s.Err != nil {
		t.Errorf("%+v", s)
	}
}
