package vfiouser_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"math"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/mmio"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser"
	"github.com/trapeze-nic/trapeze/vfio/vfiouser/internal/protocol"
)

func write32(t testing.TB, d vfio.Device, offset uint64, v uint32) {
	t.Helper()
	if err := d.WriteRegion(0, offset, binary.LittleEndian.AppendUint32(nil, v)); err != nil {
		t.Fatal(err)
	}
}

func read32(t testing.TB, d vfio.Device, offset uint64) uint32 {
	t.Helper()
	var b [4]byte
	if err := d.ReadRegion(0, offset, b[:]); err != nil {
		t.Fatal(err)
	}
	return binary.LittleEndian.Uint32(b[:])
}

// setCopy tells the device what to copy.
func setCopy(t testing.TB, d vfio.Device, from, to uint64, n uint32) {
	t.Helper()
	for at, v := range map[uint64]uint64{regSource: from, regTarget: to} {
		if err := d.WriteRegion(0, at, binary.LittleEndian.AppendUint64(nil, v)); err != nil {
			t.Fatal(err)
		}
	}
	write32(t, d, regLength, n)
}

func TestDescription(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	d := r.open(t)
	want := vfio.Info{Address: "vfio-user:" + r.path, Backend: "vfio-user", Resettable: true, Regions: 9, IRQs: 5}
	if diff := cmp.Diff(want, d.Info()); diff != "" {
		t.Error(diff)
	}
	for i := range want.Regions {
		got, err := d.Region(i)
		if err != nil {
			t.Fatal(err)
		}
		want, err := r.dev.Region(i)
		if err != nil {
			t.Fatal(err)
		}
		if i == 5 {
			want.Flags &^= vfio.RegionMmap // the server does not give its file away
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("region %d: %s", i, diff)
		}
	}
	for i := range want.IRQs {
		got, err := d.IRQ(i)
		if err != nil {
			t.Fatal(err)
		}
		want, err := r.dev.IRQ(i)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("interrupt %d: %s", i, diff)
		}
	}
	if _, err := vfio.ReadConfig(d); err != nil {
		t.Errorf("ReadConfig: %v", err)
	}
	if ranges, err := d.IOVARanges(); err != nil || len(ranges) == 0 {
		t.Errorf("IOVARanges: %v, %v", ranges, err)
	}
}

func TestRegionAccess(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	d := r.open(t)
	for _, size := range []int{1, 2, 4, 8, 3, 100, page} {
		want := bytes.Repeat([]byte{byte(size), 0x5a}, size)[:size]
		if err := d.WriteRegion(4, 0x10%uint64(size), want); err != nil {
			t.Fatal(err)
		}
		got := make([]byte, size)
		if err := d.ReadRegion(4, 0x10%uint64(size), got); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%d bytes: got %x, want %x", size, got, want)
		}
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
		if err := d.ReadRegion(tt.index, tt.offset, p); !errors.Is(err, tt.want) {
			t.Errorf("read %d bytes at %#x of %d: %v, want %v", tt.size, tt.offset, tt.index, err, tt.want)
		}
		if err := d.WriteRegion(tt.index, tt.offset, p); !errors.Is(err, tt.want) {
			t.Errorf("write %d bytes at %#x of %d: %v, want %v", tt.size, tt.offset, tt.index, err, tt.want)
		}
	}
	if n := d.Stats().Messages.Total(); n != before {
		t.Errorf("%d messages for what the client knows", n-before)
	}
	var refused *vfiouser.ServerError
	err := d.WriteRegion(vfio.RegionROM, 0, []byte{1})
	if !errors.As(err, &refused) || refused.Command != protocol.CommandRegionWrite {
		t.Errorf("write to ROM: %v", err)
	}
}

// TestLargeAccess is cut into messages.
func TestLargeAccess(t *testing.T) {
	checkLeaks(t)
	server, err := newFake(t, func(f *fakeServer) {
		f.regions[0] = make([]byte, 3<<20)
		f.maxData = 4096 + 4
	})
	if err != nil {
		t.Fatal(err)
	}
	want := bytes.Repeat([]byte("0123456789abcdef"), 1<<16+1)
	if err := server.client.WriteRegion(0, 8, want); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(want))
	if err := server.client.ReadRegion(0, 8, got); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Error("what was read is not what was written")
	}
	if n := server.client.Stats().Messages[protocol.CommandRegionRead]; n != uint64(len(want)+4095)/4096 {
		t.Errorf("%d messages", n)
	}
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
			if !errors.Is(err, tt.want) || (m == nil) != (tt.want != nil) {
				t.Fatalf("got %v, want %v", err, tt.want)
			}
			if m == nil {
				return
			}
			copy(m.Bytes(), "mapped")
			var got [6]byte
			if err := d.ReadRegion(tt.index, tt.offset, got[:]); err != nil || string(got[:]) != "mapped" {
				t.Errorf("the device has %q, %v", got, err)
			}
			if err := errors.Join(m.Close(), m.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestDataPath: once set up, doorbells, DMA and interrupts make no message.
func TestDataPath(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	d := r.open(t)
	mem := alloc(t, 4*page)
	if err := d.MapDMA(mem, 0x100000, both); err != nil {
		t.Fatal(err)
	}
	event := newEvent(t)
	if err := d.SetIRQs(vfio.IRQMSIX, 0, []int{event.FD()}); err != nil {
		t.Fatal(err)
	}
	setCopy(t, d, 0x100000, 0x102000, 2*page)
	bar, err := d.MapRegion(4, 0, page)
	if err != nil {
		t.Fatal(err)
	}
	defer bar.Close()
	bell, err := bar.Register32(doorbell)
	if err != nil {
		t.Fatal(err)
	}
	sent, taken := d.Stats().Messages, r.Stats().Messages
	for i := range uint32(200) {
		for j := range mem.Bytes()[:2*page] {
			mem.Bytes()[j] = byte(i) + byte(j)
		}
		mmio.ToDevice()
		mmio.Write32(bell, i+1)
		signalled(t, event)
		if !bytes.Equal(mem.Bytes()[:2*page], mem.Bytes()[2*page:]) {
			t.Fatalf("copy %d differs", i)
		}
	}
	if diff := cmp.Diff(sent, d.Stats().Messages); diff != "" {
		t.Errorf("messages of the client: %s", diff)
	}
	if diff := cmp.Diff(taken, r.Stats().Messages); diff != "" {
		t.Errorf("messages to the server: %s", diff)
	}
	if n := read32(t, d, regFaults); n != 0 {
		t.Errorf("%d faults", n)
	}
}

func TestMapDMA(t *testing.T) {
	r := serve(t, vfiouser.ServerOptions{})
	d := r.open(t)
	mem, other, closed := alloc(t, 2*page), alloc(t, page), alloc(t, page)
	if err := closed.Close(); err != nil {
		t.Fatal(err)
	}
	if err := d.MapDMA(mem, 0x10000, both); err != nil {
		t.Fatal(err)
	}
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
			if err := d.MapDMA(tt.mem, tt.iova, tt.flags); !errors.Is(err, tt.want) || !errors.As(err, &e) || e.Device != d.Info().Address {
				t.Errorf("got %v, want %v", err, tt.want)
			}
		})
	}
	if n := r.Stats().Ranges; n != 1 {
		t.Errorf("the server has %d ranges", n)
	}
	for _, tt := range []struct{ iova, size uint64 }{{0x10000, page}, {0x11000, page}, {0x12000, page}, {0, 0}, {0xf000, 4 * page}} {
		if err := d.UnmapDMA(tt.iova, tt.size); !errors.Is(err, vfio.ErrNotMapped) {
			t.Errorf("unmap %#x bytes at %#x: %v", tt.size, tt.iova, err)
		}
	}
	if err := d.UnmapDMA(0x10000, 2*page); err != nil {
		t.Error(err)
	}
	if s := r.Stats(); s.Ranges != 0 || s.Files != 0 {
		t.Errorf("the server has %d ranges, %d files", s.Ranges, s.Files)
	}
	// Rights are the device's to honour.
	if err := errors.Join(d.MapDMA(mem, 0x10000, vfio.DMARead), d.MapDMA(other, 0x20000, both)); err != nil {
		t.Fatal(err)
	}
	setCopy(t, d, 0x20000, 0x10000, 8)
	write32(t, d, regStart, 1)
	if n := read32(t, d, regFaults); n != 1 {
		t.Errorf("%d faults", n)
	}
}

func TestServerFull(t *testing.T) {
	o := vfiouser.ServerOptions{}
	o.Limits.Ranges, o.Limits.Files = 3, 2
	r := serve(t, o)
	d := r.open(t)
	for i := range uint64(3) {
		err := d.MapDMA(alloc(t, page), 0x10000+i*page, both)
		var e *vfio.Error
		if (err == nil) != (i < 2) || i == 2 && (!errors.As(err, &e) || e.Hint == "") {
			t.Errorf("file %d: %v", i, err)
		}
	}
}

// TestServerAddsNoSeals: a server cannot seal a client's memory in a way that its
// successor could not map it.
func TestServerAddsNoSeals(t *testing.T) {
	d := serve(t, quiet).open(t)
	m := alloc(t, page)
	if err := d.MapDMA(m, 0x10000, both); err != nil {
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(m.FD()), unix.F_ADD_SEALS, unix.F_SEAL_FUTURE_WRITE); !errors.Is(err, unix.EPERM) {
		t.Errorf("adding a seal: %v", err)
	}
}
