package guest

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/vfio"
)

func TestOpen(t *testing.T) {
	e := openEdu(t, alone(t, eduID, false))
	info := e.Info()
	should.Be(t, info.Backend, backend(), "back end")
	config := must.Get(vfio.ReadConfig(e))(t)
	should.Hold(t, config.Vendor == 0x1234 && config.Device == 0x11e8, "device %04x:%04x", config.Vendor, config.Device)
	should.Be(t, config.Command&vfio.CommandBusMaster, 0, "bus mastering is on after open")
	ranges := must.Get(e.IOVARanges())(t)
	t.Logf("%+v; usable IOVAs %#x", info, ranges)
	for i := range info.Regions {
		r := must.Get(e.Region(i))(t)
		if r.Size > 0 {
			t.Logf("region %+v", r)
		}
	}
	for i := range info.IRQs {
		irq := must.Get(e.IRQ(i))(t)
		t.Logf("interrupt %+v", irq)
	}
}

// TestAuto opens without saying how: cdev if there is a node, else the group;
// never without an IOMMU.
func TestAuto(t *testing.T) {
	checkFiles(t)
	f := alone(t, eduID, false)
	bind(t, f, "vfio-pci")
	d, err := vfio.Open(within(t), "pci:"+f)
	if backend() == "noiommu" {
		must.Hold(t, errors.Is(err, vfio.ErrNotSupported), "opened without IOMMU and without being asked: %v", err)
		t.Log(err)
		t.Setenv("TRAPEZE_NOIOMMU", "allow")
		d, err = vfio.Open(within(t), "pci:"+f)
	}
	must.OK(t, err)
	defer d.Close()
	t.Logf("auto chose %s", d.Info().Backend)
	want := backend()
	if want == "group" && nodeOf(f) != "" {
		want = "cdev"
	}
	should.Be(t, d.Info().Backend, want, "back end")
}

func TestRegisters(t *testing.T) {
	e := openEdu(t, alone(t, eduID, false))
	id := e.read(eduIdent)
	must.Hold(t, id&0xffff == 0x00ed, "identification %#x", id)
	for _, v := range []uint32{0, 1, 0x12345678, 0xffffffff} {
		e.write(eduLiveness, v)
		should.Be(t, e.read(eduLiveness), ^v, "liveness of %#x", v)
		// The kernel's own access to the same register.
		var b [4]byte
		must.OK(t, e.ReadRegion(vfio.RegionBAR0, eduLiveness, b[:]))
		should.Be(t, uint32(b[0])|uint32(b[1])<<8|uint32(b[2])<<16|uint32(b[3])<<24, ^v, "liveness of %#x, not mapped", v)
	}
	for n, want := uint32(0), uint32(1); n <= 12; n++ {
		want *= max(n, 1)
		e.write(eduFactorial, n)
		waittest.Until(t, "the end of a computation", func() bool { return e.read(eduStatus)&eduComputing == 0 })
		should.Be(t, e.read(eduFactorial), want, "%d!", n)
	}
	t.Log("0! to 12! computed by the device")
}

// TestDMA copies random bytes to the device and back to another place.
func TestDMA(t *testing.T) {
	e := openEdu(t, alone(t, eduID, false))
	out, outIOVA := e.alloc(eduBufferSize)
	in, inIOVA := e.alloc(eduBufferSize)
	random := rand.New(rand.NewPCG(1, 2))
	for i := range out.Bytes()[:eduBufferSize] {
		out.Bytes()[i] = byte(random.Uint32())
	}
	e.busMaster(true)
	for _, size := range []uint32{1, 64, 1500, eduBufferSize} {
		clear(in.Bytes())
		e.fetch(outIOVA, size)
		e.store(inIOVA, size)
		should.Same(t, in.Bytes()[:size], out.Bytes()[:size], "%d bytes came back changed", size)
		rest := in.Bytes()[size:]
		should.Hold(t, bytes.Equal(rest, make([]byte, len(rest))), "more than %d bytes were written", size)
	}
	t.Logf("1 to %d bytes there and back through IOVAs %#x and %#x", eduBufferSize, outIOVA, inIOVA)
}

// TestLargeMemory: DMA to both ends of several huge pages, which the IOMMU may
// translate in one go, or not.
func TestLargeMemory(t *testing.T) {
	e := newEdu(t, open(t, alone(t, eduID, false)))
	e.busMaster(true)
	size := uint64(8 << 20)
	if backend() == "noiommu" {
		size = 2 << 20 // more is in one piece by luck only
	}
	mem, iova := e.alloc(size)
	must.Hold(t, mem.PageSize() >= 2<<20, "pages of %d bytes", mem.PageSize())
	last := size - eduBufferSize
	fill(mem.Bytes()[:eduBufferSize], 0x3c)
	e.fetch(iova, eduBufferSize)
	e.store(iova+last, eduBufferSize)
	should.Hold(t, all(mem.Bytes()[last:], 0x3c) && all(mem.Bytes()[eduBufferSize:last], 0), "the last page is not what the first was, or others changed")
	t.Logf("%d bytes at IOVA %#x in pages of %d", size, iova, mem.PageSize())
}

// TestBusMaster: without it the device does no DMA, and nothing else tells.
func TestBusMaster(t *testing.T) {
	e := openEdu(t, alone(t, eduID, false))
	mem, iova := e.alloc(eduBufferSize)
	fill(mem.Bytes(), 0x5a)
	e.store(iova, 64)
	should.Hold(t, all(mem.Bytes(), 0x5a), "the device wrote although bus mastering is off")
	e.busMaster(true)
	e.store(iova, 64)
	should.Hold(t, !all(mem.Bytes()[:64], 0x5a), "the device did not write although bus mastering is on")
}

func fill(b []byte, v byte) {
	for i := range b {
		b[i] = v
	}
}

func all(b []byte, v byte) bool {
	for _, x := range b {
		if x != v {
			return false
		}
	}
	return true
}
