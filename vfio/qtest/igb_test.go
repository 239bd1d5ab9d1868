package qtest_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"net/netip"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/internal/vfio/qemutest"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/vfio/qtest"
	"github.com/trapeze-nic/trapeze/wire"
)

// Registers of igb (Linux, drivers/net/ethernet/intel/igb/e1000_regs.h and
// e1000_defines.h), and bits.
const (
	igbSTATUS = 0x0008
	igbMDIC   = 0x0020
	igbRCTL   = 0x0100
	igbTCTL   = 0x0400
	igbGPIE   = 0x1514
	igbEICS   = 0x1520
	igbEIMS   = 0x1524
	igbEIAC   = 0x152c
	igbRAL    = 0x5400
	igbRX     = 0xc000 // queue 0: address, length, head, tail, control
	igbTX     = 0xe000
	ringLow   = 0x00
	ringSize  = 0x08
	ringTail  = 0x18
	ringCtl   = 0x28
	srrctl    = 0x0c

	linkUp    = 1 << 1
	enable    = 1 << 1
	queueOn   = 1 << 25
	promisc   = 3 << 3 // unicast and multicast
	broadcast = 1 << 15
)

// igb is as much of a driver as these tests need: one ring each way, with four
// descriptors of 16 bytes, at base and at base+0x100, and frames behind.
type igb struct {
	*qtest.Device
	t    testing.TB
	ram  []byte
	base uint64
	sent uint32
}

func newIGB(t testing.TB, d *qtest.Device) *igb {
	ranges, err := d.IOVARanges()
	if err != nil || len(ranges) != 1 {
		t.Fatal(ranges, err)
	}
	base := (ranges[0].First + 0x10000) &^ 0xffff
	i := &igb{Device: d, t: t, base: base, ram: memory(t, d, 0x4000, base)}
	if err := d.WriteRegion(vfio.RegionConfig, vfio.ConfigCommand, []byte{byte(vfio.CommandMemory | vfio.CommandBusMaster), 0}); err != nil {
		t.Fatal(err)
	}
	i.ring(igbTX, base)
	i.set(igbTCTL, enable)
	i.set(igbRX+srrctl, 1|1<<25) // buffers of 1 KiB, advanced descriptors
	i.ring(igbRX, base+0x100)
	for n := range uint64(3) {
		binary.LittleEndian.PutUint64(i.ram[0x100+16*n:], base+0x2000+0x400*n)
	}
	i.set(igbRX+ringTail, 3)
	i.set(igbRCTL, enable|promisc|broadcast)
	return i
}

func (i *igb) get(register uint64) uint32    { return read32(i.t, i, 0, register) }
func (i *igb) set(register uint64, v uint32) { write32(i.t, i, 0, register, v) }

func (i *igb) ring(at uint64, address uint64) {
	i.set(at+ringLow, uint32(address))
	i.set(at+ringSize, 0x80)
	i.set(at+ringCtl, queueOn)
}

// linkUp restarts autonegotiation and waits for the link.
func (i *igb) linkUp() {
	i.t.Helper()
	i.set(igbMDIC, 1<<26|1<<21|0x1200)
	eventually(i.t, "the link is up", func() bool { return i.get(igbSTATUS)&linkUp != 0 })
}

// send sends a frame and waits until the device has said in RAM that it is done.
func (i *igb) send(frame []byte) {
	i.t.Helper()
	at := 16 * (i.sent % 8)
	copy(i.ram[0x1000:], frame)
	binary.LittleEndian.PutUint64(i.ram[at:], i.base+0x1000)
	binary.LittleEndian.PutUint32(i.ram[at+8:], uint32(len(frame))|3<<20|1<<24|1<<25|1<<27|1<<29)
	binary.LittleEndian.PutUint32(i.ram[at+12:], uint32(len(frame))<<14)
	i.sent++
	i.set(igbTX+ringTail, i.sent%8)
	i.get(igbSTATUS) // what was posted is done
	if i.ram[at+12]&1 == 0 {
		i.t.Fatalf("the descriptor is not written back: % x", i.ram[at:at+16])
	}
}

// received returns the length of the first frame that has come, or 0.
func (i *igb) received() int {
	if i.ram[0x108]&1 == 0 {
		return 0
	}
	return int(binary.LittleEndian.Uint16(i.ram[0x10c:]))
}

func frameOf(text string) []byte {
	f := append([]byte("\xff\xff\xff\xff\xff\xff\x02\x00\x00\x00\x00\x07\x88\xb5"), text...)
	return append(f, make([]byte, max(0, 60-len(f)))...)
}

func TestRegisters(t *testing.T) {
	d := open(t, qemutest.Start(t, "e1000e"), 0)
	for _, v := range []uint32{0, 0x12345678, 0xffffffff} {
		write32(t, d, 0, igbRAL, v)
		if got := read32(t, d, 0, igbRAL); got != v {
			t.Errorf("read %#x, want %#x", got, v)
		}
	}
	// BAR2 is a window in I/O ports: the register's number, then its value.
	write32(t, d, 2, 0, igbRAL)
	if got := read32(t, d, 2, 4); got != 0xffffffff {
		t.Errorf("read %#x through I/O ports", got)
	}
	for region, size := range map[int]uint64{0: 0x20000, 2: 0x20, vfio.RegionConfig: 4096, vfio.RegionROM: 0} {
		var b [8]byte
		if err := d.ReadRegion(region, size-min(size, 4), b[:]); !errors.Is(err, vfio.ErrOutOfRange) {
			t.Errorf("beyond region %d: %v", region, err)
		}
		if err := d.WriteRegion(region, ^uint64(0)-3, b[:4]); !errors.Is(err, vfio.ErrOutOfRange) {
			t.Errorf("beyond region %d: %v", region, err)
		}
	}
	for _, region := range []int{-1, 9} {
		if err := d.ReadRegion(region, 0, nil); !errors.Is(err, vfio.ErrNoSuchRegion) {
			t.Error(err)
		}
	}
	if _, err := d.MapRegion(0, 0, 4096); !errors.Is(err, vfio.ErrNotMappable) {
		t.Error(err)
	}
	// What the back end keeps for itself stays.
	before := read32(t, d, vfio.RegionConfig, 0x10)
	write32(t, d, vfio.RegionConfig, 0x10, 0xffffffff)
	if got := read32(t, d, vfio.RegionConfig, 0x10); got != before {
		t.Errorf("BAR0 is %#x, was %#x", got, before)
	}
	if got := read32(t, d, 3, 0); got != 0xffffffff {
		t.Errorf("the MSI-X table reads %#x", got)
	}
}

// TestReset: the registers are as at the beginning, and still there.
func TestReset(t *testing.T) {
	machine := qemutest.Start(t, "igb", "vmxnet3")
	for n, register := range []uint64{igbRAL, 0x10} { // of vmxnet3, the low address of its shared area
		d := open(t, machine, n)
		bar := n // 0, and 1 of vmxnet3
		before := read32(t, d, bar, register)
		write32(t, d, bar, register, before^0xff00)
		command := read32(t, d, vfio.RegionConfig, vfio.ConfigCommand) | uint32(vfio.CommandBusMaster)
		write32(t, d, vfio.RegionConfig, vfio.ConfigCommand, command)
		if err := d.Reset(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := read32(t, d, bar, register); got == before^0xff00 && before != got {
			t.Errorf("device %d: register %#x is still %#x after the reset, was %#x", n, register, got, before)
		}
		if got := read32(t, d, vfio.RegionConfig, vfio.ConfigCommand); got != command {
			t.Errorf("device %d: command register is %#x, was %#x", n, got, command)
		}
	}
}

// TestFrames: a frame goes out over our UDP wire, and one comes in; both ends read and
// write the same memory.
func TestFrames(t *testing.T) {
	checkLeaks(t)
	m := qemutest.Start(t, "igb")
	i := newIGB(t, open(t, m, 0))
	u, err := wire.NewUDP(t.Context(), wire.UDPOptions{Local: "127.0.0.1:0", Peers: []string{m.NetAddr(0).String()}})
	if err != nil {
		t.Fatal(err)
	}
	defer u.Close()
	if err := m.Connect(0, u.LocalAddr()); err != nil {
		t.Fatal(err)
	}
	out := frameOf("out")
	i.send(out)
	var got []byte
	eventually(t, "a frame comes out", func() bool { got = u.Receive(); return got != nil })
	if !bytes.Equal(got, out) {
		t.Errorf("% x came out of % x", got, out)
	}
	u.Release()

	i.linkUp()
	in := frameOf("in")
	copy(u.Reserve(len(in)), in)
	u.Commit()
	eventually(t, "a frame comes in", func() bool { return i.received() != 0 })
	if n := i.received(); n != len(in)+4 || !bytes.Equal(i.ram[0x2000:][:len(in)], in) { // with a check sequence
		t.Errorf("%d bytes came in: % x", n, i.ram[0x2000:][:n])
	}

	if err := m.SetLink(t.Context(), 0, false); err != nil {
		t.Fatal(err)
	}
	if i.get(igbSTATUS)&linkUp != 0 {
		t.Error("the link is still up")
	}
	if err := m.SetLink(t.Context(), 0, true); err != nil {
		t.Fatal(err)
	}
	eventually(t, "the link is up again", func() bool { return i.get(igbSTATUS)&linkUp != 0 })
}

// TestTwoDevices: they are cabled to each other, and have memory of their own.
func TestTwoDevices(t *testing.T) {
	m := qemutest.Start(t, "igb", "igb")
	a, b := newIGB(t, open(t, m, 0)), newIGB(t, open(t, m, 1))
	for n := range 2 {
		if err := m.Connect(n, m.NetAddr(1-n)); err != nil {
			t.Fatal(err)
		}
	}
	b.linkUp()
	f := frameOf("from a to b")
	a.send(f)
	eventually(t, "the frame arrives", func() bool { return b.received() != 0 })
	if !bytes.Equal(b.ram[0x2000:][:len(f)], f) || a.received() != 0 {
		t.Errorf("% x arrived", b.ram[0x2000:][:len(f)])
	}
}

func TestInterrupts(t *testing.T) {
	checkLeaks(t)
	m := qemutest.Start(t, "igb")
	d := open(t, m, 0)
	i := newIGB(t, d)
	var events [3]*vfio.Eventfd
	var fds []int
	for n := range events {
		e, err := vfio.NewEventfd()
		if err != nil {
			t.Fatal(err)
		}
		defer e.Close()
		events[n] = e
		fds = append(fds, e.FD())
	}
	signalled := func(n int, within time.Duration) bool {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		defer cancel()
		return events[n].Wait(ctx) == nil
	}
	const first = 2
	if err := d.SetIRQs(vfio.IRQMSIX, first, fds); err != nil {
		t.Fatal(err)
	}
	i.set(igbGPIE, 1<<4)     // a vector for each cause
	i.set(igbEIAC, 7<<first) // which its message clears
	i.set(igbEIMS, 7<<first)
	for round := range 20 {
		n := round % len(events)
		i.set(igbEIMS, 7<<first)
		i.set(igbEICS, 1<<(first+n))
		if !signalled(n, patience) {
			t.Fatalf("round %d: no message of vector %d", round, first+n)
		}
	}
	quiet := func(n int, why string) {
		t.Helper()
		i.set(igbEIMS, 7<<first)
		i.set(igbEICS, 1<<(first+n))
		if signalled(n, 20*time.Millisecond) {
			t.Error("a message of a vector " + why)
		}
	}
	if err := d.SetIRQs(vfio.IRQMSIX, first+1, []int{-1}); err != nil {
		t.Fatal(err)
	}
	quiet(1, "that is disconnected")
	if err := d.DisableIRQs(vfio.IRQMSIX); err != nil {
		t.Fatal(err)
	}
	quiet(0, "that is disabled")
	if err := d.SetIRQs(vfio.IRQMSIX, first, fds[:1]); err != nil {
		t.Fatal(err)
	}
	eventually(t, "an interrupt after they were disabled", func() bool {
		i.set(igbEIMS, 1<<first)
		i.set(igbEICS, 1<<first)
		return signalled(0, 50*time.Millisecond)
	})
	if err := d.Reset(t.Context()); err != nil {
		t.Fatal(err)
	}
	quiet(0, "that a reset has disconnected")
	for _, c := range []struct{ index, start, n int }{{vfio.IRQMSIX, -1, 1}, {vfio.IRQMSIX, 9, 2}, {vfio.IRQMSIX, 11, 0}, {vfio.IRQMSI, 0, 1}, {5, 0, 1}, {-1, 0, 0}} {
		if err := d.SetIRQs(c.index, c.start, fds[:c.n]); !errors.Is(err, vfio.ErrNoSuchIRQ) {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestDMA(t *testing.T) {
	checkLeaks(t)
	d := open(t, qemutest.Start(t, "igb"), 0)
	r, err := d.IOVARanges()
	if err != nil {
		t.Fatal(err)
	}
	at := (r[0].First + 0x3fffff) &^ 0x1fffff
	mem, err := vfio.AllocMemory(0x2000, vfio.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	b := mem.Bytes()
	b[0], b[0x1fff] = 1, 2
	const both = vfio.DMARead | vfio.DMAWrite
	if err := d.MapDMA(mem, at, both); err != nil {
		t.Fatal(err)
	}
	if b[0] != 1 || b[0x1fff] != 2 {
		t.Errorf("content is %d, %d after mapping", b[0], b[0x1fff])
	}
	b[1] = 3
	other, err := vfio.AllocMemory(0x2000, vfio.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	for _, c := range []struct {
		iova uint64
		want error
	}{
		{at + 0x1000, vfio.ErrIOVAInUse}, {at - 0x1000, vfio.ErrIOVAInUse}, {at + 0x10800, vfio.ErrMisaligned},
		{r[0].Last - 0xfff, vfio.ErrIOVARange}, {0, vfio.ErrIOVARange}, {^uint64(0) - 0xfff, vfio.ErrIOVARange},
	} {
		if err := d.MapDMA(other, c.iova, both); !errors.Is(err, c.want) {
			t.Errorf("map at %#x: %v, want %v", c.iova, err, c.want)
		}
	}
	for _, c := range [][2]uint64{{at, 0x1000}, {at + 0x1000, 0x1000}, {at, 0}} {
		if err := d.UnmapDMA(c[0], c[1]); !errors.Is(err, vfio.ErrNotMapped) {
			t.Errorf("unmap %#x: %v", c, err)
		}
	}
	if err := d.UnmapDMA(at, 0x2000); err != nil {
		t.Fatal(err)
	}
	if b[0] != 1 || b[1] != 3 || b[0x1fff] != 2 {
		t.Errorf("content is %d, %d, %d after unmapping", b[0], b[1], b[0x1fff])
	}
	if err := d.MapDMA(other, at, both); err != nil {
		t.Error(err)
	}
	// A device that is closed gives its memory back, as it was.
	other.Bytes()[7] = 7
	if err := d.Close(); err != nil {
		t.Error(err)
	}
	if other.Bytes()[7] != 7 {
		t.Error("content is lost by closing")
	}
}

// TestKilled: what dies is noticed, by all at once, and leaves the memory.
func TestKilled(t *testing.T) {
	checkLeaks(t)
	m := qemutest.Start(t, "igb")
	d := open(t, m, 0)
	mem, err := vfio.AllocMemory(0x1000, vfio.MemoryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer mem.Close()
	r, err := d.IOVARanges()
	if err != nil {
		t.Fatal(err)
	}
	if err := d.MapDMA(mem, (r[0].First+0xfff)&^0xfff, vfio.DMARead); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(m.PID(), syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case <-d.Lost():
	case <-time.After(patience):
		t.Fatal("nobody tells of the end")
	}
	mem.Bytes()[0] = 1
	var b [4]byte
	for op, err := range map[string]error{
		"read": d.ReadRegion(0, 0, b[:]), "write": d.WriteRegion(0, 0, b[:]), "config": d.ReadRegion(vfio.RegionConfig, 0, b[:]),
		"reset": d.Reset(t.Context()), "link": m.SetLink(t.Context(), 0, true), "interrupts": d.SetIRQs(vfio.IRQMSIX, 0, []int{1}),
		"unplug": m.Unplug(t.Context(), 0),
	} {
		var exit *qtest.ExitError
		if !errors.Is(err, vfio.ErrDeviceGone) || !errors.As(err, &exit) {
			t.Errorf("%s: %v", op, err)
		}
	}
	if err := m.Close(); err != nil {
		t.Error(err)
	}
	if err := d.ReadRegion(0, 0, b[:]); !errors.Is(err, vfio.ErrClosed) {
		t.Error(err)
	}
	if mem.Bytes()[0] != 1 {
		t.Error("the memory is lost")
	}
}

// TestStopped: QEMU stands still for a while; an access that was given up does not
// disturb those that follow. One that stands still for too long is lost.
func TestStopped(t *testing.T) {
	checkLeaks(t)
	m, err := qtest.Start(t.Context(), qtest.Options{Devices: []string{"igb"}, QEMU: qemutest.Command(t), Patience: 2 * time.Second})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	d := open(t, m, 0)
	write32(t, d, 0, igbRAL, 0x1234)
	read32(t, d, 0, igbRAL)
	send := func(s syscall.Signal) {
		t.Helper()
		if err := syscall.Kill(m.PID(), s); err != nil {
			t.Fatal(err)
		}
	}
	send(syscall.SIGSTOP)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	var b [4]byte
	if err := d.ReadRegionContext(ctx, 0, igbRAL, b[:]); !errors.Is(err, context.DeadlineExceeded) {
		t.Error(err)
	}
	send(syscall.SIGCONT)
	if got := read32(t, d, 0, igbSTATUS); got == 0x1234 {
		t.Error("the answer is that of an access before")
	}
	if got := read32(t, d, 0, igbRAL); got != 0x1234 {
		t.Errorf("read %#x", got)
	}
	send(syscall.SIGSTOP)
	if err := d.ReadRegion(0, igbRAL, b[:]); !errors.Is(err, os.ErrDeadlineExceeded) || !errors.Is(err, vfio.ErrDeviceGone) {
		t.Error(err)
	}
}

func TestUnplug(t *testing.T) {
	m := qemutest.Start(t, "igb")
	d := open(t, m, 0)
	if err := m.Unplug(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	for _, region := range []int{0, 2, 3, vfio.RegionConfig} {
		if got := read32(t, d, region, 0); got != 0xffffffff {
			t.Errorf("region %d reads %#x", region, got)
		}
	}
	write32(t, d, 0, igbRAL, 1)
	if _, err := vfio.ReadConfig(d); !errors.Is(err, vfio.ErrDeviceGone) {
		t.Error(err)
	}
	if err := d.Reset(t.Context()); !errors.Is(err, vfio.ErrDeviceGone) {
		t.Error(err)
	}
}

// TestOpen: one at a time has a device, and it is reset in between.
func TestOpen(t *testing.T) {
	checkLeaks(t)
	m := qemutest.Start(t, "igb")
	d := open(t, m, 0)
	if _, err := m.Open(t.Context(), 0); !errors.Is(err, qtest.ErrBusy) {
		t.Error(err)
	}
	for _, n := range []int{-1, 1} {
		if _, err := m.Open(t.Context(), n); err == nil {
			t.Errorf("there is a device %d", n)
		}
		if m.Connect(n, netip.MustParseAddrPort("127.0.0.1:1")) == nil || m.SetLink(t.Context(), n, true) == nil || m.NetAddr(n).IsValid() {
			t.Errorf("device %d has a network side", n)
		}
	}
	if err := m.Connect(0, netip.MustParseAddrPort("192.0.2.1:1")); err == nil {
		t.Error("frames can leave this machine")
	}
	write32(t, d, 0, igbRAL, 0x4321)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	var b [4]byte
	if err := d.ReadRegion(0, 0, b[:]); !errors.Is(err, vfio.ErrClosed) {
		t.Error(err)
	}
	if err := d.Reset(t.Context()); !errors.Is(err, vfio.ErrClosed) {
		t.Error(err)
	}
	again := open(t, m, 0)
	if got := read32(t, again, 0, igbRAL); got == 0x4321 {
		t.Error("the device was not reset")
	}
}

func BenchmarkRead(b *testing.B) {
	d := open(b, qemutest.Start(b, "igb"), 0)
	var p [4]byte
	for b.Loop() {
		if err := d.ReadRegion(0, igbSTATUS, p[:]); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkWrite(b *testing.B) {
	d := open(b, qemutest.Start(b, "igb"), 0)
	var p [4]byte
	for b.Loop() {
		if err := d.WriteRegion(0, igbRAL, p[:]); err != nil {
			b.Fatal(err)
		}
	}
}
