package qtest_test

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/qemutest"
	"github.com/trapeze-nic/trapeze/ci/kit/qtest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

// Registers of igb (Linux, drivers/net/ethernet/intel/igb/e1000_regs.h), and bits.
const (
	igbSTATUS = 0x0008
	igbTCTL   = 0x0400
	igbRAL    = 0x5400
	igbTX     = 0xe000 // queue 0, from here on: address, length, tail, control
	ringLow   = 0x00
	ringHigh  = 0x04
	ringSize  = 0x08
	ringTail  = 0x18
	ringCtl   = 0x28

	enable  = 1 << 1
	queueOn = 1 << 25
)

// sender is as much of a driver of igb as these tests need: a send ring of eight descriptors at base.
type sender struct {
	*qtest.Device
	t    testing.TB
	ring []byte
	base uint64
	sent uint32
}

func newSender(t testing.TB, d *qtest.Device) *sender {
	t.Helper()
	ranges, err := d.IOVARanges()
	must.Hold(t, err == nil && len(ranges) == 1, "%+v %+v", ranges, err)
	base := (ranges[0].First + 0x10000) &^ 0xffff
	s := &sender{Device: d, t: t, base: base, ring: memory(t, d, 0x1000, base)}
	must.OK(t, d.WriteRegion(vfio.RegionConfig, vfio.ConfigCommand, []byte{byte(vfio.CommandMemory | vfio.CommandBusMaster), 0}))
	for register, v := range map[uint64]uint32{igbTX + ringLow: uint32(base), igbTX + ringHigh: uint32(base >> 32), igbTX + ringSize: 0x80, igbTCTL: enable} {
		write32(t, d, 0, register, v)
	}
	write32(t, d, 0, igbTX+ringCtl, queueOn)
	return s
}

// send sends a frame at an address, and waits until the device has said in RAM that it is done.
func (s *sender) send(address uint64, n int) {
	s.t.Helper()
	at := 16 * (s.sent % 8)
	binary.LittleEndian.PutUint64(s.ring[at:], address)
	binary.LittleEndian.PutUint32(s.ring[at+8:], uint32(n)|3<<20|1<<24|1<<25|1<<27|1<<29)
	binary.LittleEndian.PutUint32(s.ring[at+12:], uint32(n)<<14)
	s.sent++
	write32(s.t, s, 0, igbTX+ringTail, s.sent%8)
	if s.ring[at+12]&1 == 0 {
		s.t.Fatalf("the descriptor is not written back: % x", s.ring[at:at+16])
	}
}

// TestFaults: what is not mapped, or not so, the device cannot reach, and that is told. The tests of all
// drivers rely on it.
func TestFaults(t *testing.T) {
	m := qemutest.Start(t, "igb")
	s := newSender(t, open(t, m, 0))
	must.OK(t, m.Fault())
	mem := must.Get(vfio.AllocMemory(0x1000, vfio.MemoryOptions{}))(t)
	defer mem.Close()
	at := s.base + 0x100000
	faults := func(why string) {
		t.Helper()
		s.send(at, 60)
		var fault *qtest.FaultError
		err := m.Fault()
		should.Hold(t, errors.As(err, &fault) && fault.Device == 0 && fault.Address == at && !fault.Write, "%s: %v", why, err)
		should.OK(t, m.Fault(), "told again")
	}
	faults("not mapped")
	must.OK(t, s.MapDMA(mem, at, vfio.DMAWrite))
	faults("mapped to be written")
	// What was read once may be in the IOMMU's cache: unmapping takes it out.
	must.OK(t, s.UnmapDMA(at, mem.Size()))
	must.OK(t, s.MapDMA(mem, at, vfio.DMARead))
	s.send(at, 60)
	should.OK(t, m.Fault())
	must.OK(t, s.UnmapDMA(at, mem.Size()))
	faults("unmapped")
}
