package qtest_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/qemutest"
	"github.com/trapeze-nic/trapeze/ci/kit/qtest"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/vfio"
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
	ringHigh  = 0x04
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
	i.set(at+ringHigh, uint32(address>>32))
	i.set(at+ringSize, 0x80)
	i.set(at+ringCtl, queueOn)
}

// linkUp restarts autonegotiation and waits for the link.
func (i *igb) linkUp() {
	i.t.Helper()
	i.set(igbMDIC, 1<<26|1<<21|0x1200)
	waittest.Until(i.t, "the link is up", func() bool { return i.get(igbSTATUS)&linkUp != 0 })
}

// send sends a frame.
func (i *igb) send(frame []byte) {
	i.t.Helper()
	copy(i.ram[0x1000:], frame)
	i.sendAt(i.base+0x1000, len(frame))
}

// sendAt sends a frame and waits until the device has said in RAM that it is done.
func (i *igb) sendAt(address uint64, n int) {
	i.t.Helper()
	at := 16 * (i.sent % 8)
	binary.LittleEndian.PutUint64(i.ram[at:], address)
	binary.LittleEndian.PutUint32(i.ram[at+8:], uint32(n)|3<<20|1<<24|1<<25|1<<27|1<<29)
	binary.LittleEndian.PutUint32(i.ram[at+12:], uint32(n)<<14)
	i.sent++
	i.set(igbTX+ringTail, i.sent%8)
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

// TestFrames: a frame goes out over our UDP wire, and one comes in; both ends read and
// write the same memory.
func TestFrames(t *testing.T) {
	leaktest.Check(t)
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
	waittest.Until(t, "a frame comes out", func() bool { got = u.Receive(); return got != nil })
	if !bytes.Equal(got, out) {
		t.Errorf("% x came out of % x", got, out)
	}
	u.Release()

	i.linkUp()
	in := frameOf("in")
	copy(u.Reserve(len(in)), in)
	u.Commit()
	waittest.Until(t, "a frame comes in", func() bool { return i.received() != 0 })
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
	waittest.Until(t, "the link is up again", func() bool { return i.get(igbSTATUS)&linkUp != 0 })
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
	waittest.Until(t, "the frame arrives", func() bool { return b.received() != 0 })
	if !bytes.Equal(b.ram[0x2000:][:len(f)], f) || a.received() != 0 {
		t.Errorf("% x arrived", b.ram[0x2000:][:len(f)])
	}
}
