package vfiouser_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

func write32(t testing.TB, d vfio.Device, offset uint64, v uint32) {
	t.Helper()
	must.OK(t, d.WriteRegion(0, offset, binary.LittleEndian.AppendUint32(nil, v)))
}

func read32(t testing.TB, d vfio.Device, offset uint64) uint32 {
	t.Helper()
	var b [4]byte
	must.OK(t, d.ReadRegion(0, offset, b[:]))
	return binary.LittleEndian.Uint32(b[:])
}

// setCopy tells the device what to copy.
func setCopy(t testing.TB, d vfio.Device, from, to uint64, n uint32) {
	t.Helper()
	for at, v := range map[uint64]uint64{regSource: from, regTarget: to} {
		must.OK(t, d.WriteRegion(0, at, binary.LittleEndian.AppendUint64(nil, v)))
	}
	write32(t, d, regLength, n)
}

func TestDescription(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	d := r.open(t)
	want := vfio.Info{Address: "vfio-user:" + r.path, Backend: "vfio-user", Resettable: true, Regions: 9, IRQs: 5}
	should.Be(t, cmp.Diff(want, d.Info()), "")
	for i := range want.Regions {
		got := must.Get(d.Region(i))(t)
		want := must.Get(r.dev.Region(i))(t)
		if i == 5 {
			want.Flags &^= vfio.RegionMmap // the server does not give its file away
		}
		should.Be(t, cmp.Diff(want, got), "", "region %d", i)
	}
	for i := range want.IRQs {
		got := must.Get(d.IRQ(i))(t)
		want := must.Get(r.dev.IRQ(i))(t)
		should.Be(t, cmp.Diff(want, got), "", "interrupt %d", i)
	}
	_, err := vfio.ReadConfig(d)
	should.Hold(t, err == nil, "ReadConfig: %v", err)
	ranges, err := d.IOVARanges()
	should.Hold(t, err == nil && len(ranges) != 0, "IOVARanges: %v, %v", ranges, err)
}

func TestRegionAccess(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	d := r.open(t)
	for _, size := range []int{1, 2, 4, 8, 3, 100, page} {
		want := bytes.Repeat([]byte{byte(size), 0x5a}, size)[:size]
		must.OK(t, d.WriteRegion(4, 0x10%uint64(size), want))
		got := make([]byte, size)
		must.OK(t, d.ReadRegion(4, 0x10%uint64(size), got))
		should.Same(t, got, want, "%d bytes", size)
	}
	before := d.Stats().Messages.Total()
	for _, tt := range []struct {
		index  int
		offset uint64
		size   int
		want   error
	}{
		{-1, 0, 4, vfio.ErrNoSuchRegion}, {9, 0, 4, vfio.ErrNoSuchRegion}, {math.MaxInt, 0, 4, vfio.ErrNoSuchRegion},
		{0, page, 1, vfio.ErrOutOfRange}, {0, page - 3, 4, vfio.ErrOutOfRange}, {0, math.MaxUint64, 2, vfio.ErrOutOfRange},
		{1, 0, 1, vfio.ErrOutOfRange}, {0, 0, 0, nil}, {1, 0, 0, nil},
	} {
		p := make([]byte, tt.size)
		should.Fail(t, d.ReadRegion(tt.index, tt.offset, p), tt.want, "read %d bytes at %#x of %d", tt.size, tt.offset, tt.index)
		should.Fail(t, d.WriteRegion(tt.index, tt.offset, p), tt.want, "write %d bytes at %#x of %d", tt.size, tt.offset, tt.index)
	}
	should.Be(t, d.Stats().Messages.Total(), before)
	var refused *vfiouser.ServerError
	err := d.WriteRegion(vfio.RegionROM, 0, []byte{1})
	should.Hold(t, errors.As(err, &refused) && refused.Command == protocol.CommandRegionWrite, "write to ROM: %v", err)
}

// TestLargeAccess is cut into messages.
func TestLargeAccess(t *testing.T) {
	leaktest.Check(t)
	server := must.Get(newFake(t, func(f *fakeServer) {
		f.regions[0] = make([]byte, 3<<20)
		f.maxData = 4096 + 4
	}))(t)
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16+1)
	must.OK(t, server.client.WriteRegion(0, 8, want))
	got := make([]byte, len(want))
	must.OK(t, server.client.ReadRegion(0, 8, got))
	should.Same(t, got, want, "what was read is not what was written")
	should.Be(t, server.client.Stats().Messages[protocol.CommandRegionRead], uint64(len(want)+4095)/4096, "messages")
}

func TestMapRegion(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	d := r.open(t)
	for _, tt := range []struct {
		name         string
		index        int
		offset, size uint64
		want         error
	}{
		{"all", 4, 0, 4 * page, nil},
		{"part", 4, page, page, nil},
		{"area", 2, page, 2 * page, nil},
		{"part of an area", 2, 2 * page, page, nil},
		{"last area", 2, 4 * page, page, nil},
		{"between the areas", 2, 3 * page, page, vfio.ErrNotMappable},
		{"over the end of an area", 2, 2 * page, 2 * page, vfio.ErrNotMappable},
		{"all of a region of areas", 2, 0, 8 * page, vfio.ErrNotMappable},
		{"registers", 0, 0, page, vfio.ErrNotMappable},
		{"file that can shrink", 5, 0, page, vfio.ErrNotMappable},
		{"misaligned offset", 4, 8, page, vfio.ErrMisaligned},
		{"misaligned size", 4, 0, 8, vfio.ErrMisaligned},
		{"nothing", 4, 0, 0, vfio.ErrBadSize},
		{"outside", 4, 4 * page, page, vfio.ErrOutOfRange},
		{"wraps", 4, math.MaxUint64 &^ (page - 1), 2 * page, vfio.ErrOutOfRange},
		{"no region", 9, 0, page, vfio.ErrNoSuchRegion},
	} {
		t.Run(tt.name, func(t *testing.T) {
			m, err := d.MapRegion(tt.index, tt.offset, tt.size)
			must.Hold(t, errors.Is(err, tt.want) && (m == nil) == (tt.want != nil), "got %v, want %v", err, tt.want)
			if m == nil {
				return
			}
			copy(m.Bytes(), "mapped")
			var got [6]byte
			err = d.ReadRegion(tt.index, tt.offset, got[:])
			should.Hold(t, err == nil && string(got[:]) == "mapped", "the device has %q, %v", got, err)
			should.OK(t, errors.Join(m.Close(), m.Close()))
		})
	}
}

func TestMapDMA(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	d := r.open(t)
	mem, other, closed := alloc(t, 2*page), alloc(t, page), alloc(t, page)
	must.OK(t, closed.Close())
	must.OK(t, d.MapDMA(mem, 0x10000, both))
	for _, tt := range []struct {
		name  string
		mem   *vfio.Memory
		iova  uint64
		flags vfio.DMAFlags
		want  error
	}{
		{"twice", mem, 0x10000, both, vfio.ErrIOVAInUse},
		{"overlap at the end", other, 0x11000, both, vfio.ErrIOVAInUse},
		{"overlap at the start", mem, 0xf000, both, vfio.ErrIOVAInUse},
		{"misaligned", other, 0x20010, both, vfio.ErrMisaligned},
		{"address zero", other, 0, both, vfio.ErrIOVARange},
		{"into the interrupts", other, 0xfee00000, both, vfio.ErrIOVARange},
		{"beyond the ranges", other, 1 << 39, both, vfio.ErrIOVARange},
		{"wraps", mem, math.MaxUint64 &^ (page - 1), both, vfio.ErrIOVARange},
		{"without rights", other, 0x20000, 0, vfio.ErrNotSupported},
		{"with unknown rights", other, 0x20000, 7, vfio.ErrNotSupported},
		{"no memory", nil, 0x20000, both, vfio.ErrNoDMAMemory},
		{"closed memory", closed, 0x20000, both, vfio.ErrNoDMAMemory},
	} {
		t.Run(tt.name, func(t *testing.T) {
			var e *vfio.Error
			err := d.MapDMA(tt.mem, tt.iova, tt.flags)
			should.Hold(t, errors.Is(err, tt.want) && errors.As(err, &e) && e.Device == d.Info().Address, "got %v, want %v", err, tt.want)
		})
	}
	should.Be(t, r.Stats().Ranges, 1, "the server has ranges")
	for _, tt := range []struct{ iova, size uint64 }{{0x10000, page}, {0x11000, page}, {0x12000, page}, {0, 0}, {0xf000, 4 * page}} {
		should.Fail(t, d.UnmapDMA(tt.iova, tt.size), vfio.ErrNotMapped, "unmap %#x bytes at %#x", tt.size, tt.iova)
	}
	should.OK(t, d.UnmapDMA(0x10000, 2*page))
	r.holds(t, 0, 0)
	// Rights are the device's to honour.
	must.OK(t, errors.Join(d.MapDMA(mem, 0x10000, vfio.DMARead), d.MapDMA(other, 0x20000, both)))
	setCopy(t, d, 0x20000, 0x10000, 8)
	write32(t, d, regStart, 1)
	should.Be(t, read32(t, d, regFaults), 1, "faults")
}

func TestServerFull(t *testing.T) {
	o := vfiouser.ServerOptions{}
	o.Limits.Ranges, o.Limits.Files = 3, 2
	r := serve(t, o)
	d := r.open(t)
	for i := range uint64(3) {
		err := d.MapDMA(alloc(t, page), 0x10000+i*page, both)
		var e *vfio.Error
		should.Hold(t, (err == nil) == (i < 2) && (i != 2 || errors.As(err, &e) && e.Hint != ""), "file %d: %v", i, err)
	}
}

// TestServerAddsNoSeals: a server cannot seal a client's memory in a way that its
// successor could not map it.
func TestServerAddsNoSeals(t *testing.T) {
	d := serve(t, quiet).open(t)
	m := alloc(t, page)
	must.OK(t, d.MapDMA(m, 0x10000, both))
	should.Refuse(unix.FcntlInt(uintptr(m.FD()), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE))(t, unix.EPERM, "adding a seal")
}
