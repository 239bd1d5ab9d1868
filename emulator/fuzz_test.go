package emulator_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// FuzzRegisters makes accesses of any width anywhere in a device, by a script
// of 8-byte steps: region, offset, width and value. Whatever happens, the
// device keeps its identity, and works again after a reset.
func FuzzRegisters(f *testing.F) {
	f.Add([]byte{0, 0x10, 0, 4, 1, 2, 3, 4})
	f.Add([]byte{0x87, 4, 0, 2, 6, 0, 0, 0, 0x80, 0x2c, 2, 4, 1, 0, 0, 0, 0x80, 0x34, 2, 4, 3, 0, 0, 0})
	f.Add([]byte{0x80, 0x0c, 0x20, 4, 0, 0, 0, 0, 0x87, 0x92, 0, 2, 0, 0xc0, 0, 0, 0x82, 0, 0x10, 4, 9, 0, 0, 0})
	f.Add([]byte{0x87, 0x59, 0, 1, 0x80, 0, 0, 0, 0x80, 0x10, 1, 4, 1, 0, 0, 0})
	// The DMA block: a log, pulses, a policy.
	f.Add([]byte{0x80, 0x44, 7, 4, 0, 0x10, 0x10, 0, 0x80, 0x4c, 7, 4, 5, 0, 0, 0, 0x80, 0x14, 7, 4, 4, 0, 0, 0, 0x80, 0x50, 7, 4, 1, 0, 0, 0})
	f.Add([]byte{0x80, 0x28, 7, 4, 0x40, 0, 0, 0, 0x80, 0x14, 7, 4, 3, 0, 0, 0, 0x80, 0x30, 7, 4, 9, 0, 0, 0, 0x80, 0x18, 7, 4, 6, 0, 0, 0, 0, 0x70, 7, 4, 0, 0, 0, 0})
	f.Fuzz(func(t *testing.T, script []byte) {
		d := newDevice(t, func(o *emulator.Options) { o.Doorbells = emulator.DoorbellsTrapped })
		h := newAdminHost(t, d)
		for ; len(script) >= 8; script = script[8:] {
			index := int(script[0] & 7)
			offset := uint64(binary.LittleEndian.Uint16(script[1:])) % (1 << 15)
			width := int(script[3]) % 20
			info, err := d.Region(index)
			must.OK(t, err)
			inside := offset+uint64(width) <= info.Size
			if script[0]&0x80 != 0 {
				err = d.WriteRegion(index, offset, bytes.Repeat(script[4:8], 5)[:width])
			} else {
				err = d.ReadRegion(index, offset, make([]byte, width))
			}
			must.Be(t, inside, err == nil, "region %d, %d bytes at %#x of %#x: error %v", index, width, offset, info.Size, err)
			d.Poll()
		}
		powerUp(t, d)
		writeConfig16(t, d, configPower, 0)
		resetByRegister(t, d)
		should.Be(t, read32(t, d, datasheet.RegMagic), datasheet.Magic, "magic")
		h.enable(0)
		h.nop()
		should.OK(t, d.SetIRQs(vfio.IRQMSIX, 0, []int{-1}))
	})
}
