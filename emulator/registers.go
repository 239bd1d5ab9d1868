package emulator

import (
	"encoding/binary"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// deviceVersion is major<<16 | minor<<8 | patch of this device: 1.0.0.
const deviceVersion = 1 << 16

// block is a register block as this device lays it out; they are chained in
// this order.
type block struct {
	kind, offset, size uint32
}

var blocks = [...]block{
	{datasheet.BlockIdentity, datasheet.IdentityOffset, datasheet.IdentitySize},
	{datasheet.BlockHealth, datasheet.HealthOffset, datasheet.HealthSize},
	{datasheet.BlockAdmin, datasheet.AdminOffset, datasheet.AdminSize},
	{datasheet.BlockClock, datasheet.ClockOffset, datasheet.ClockSize},
	{datasheet.BlockChannels, datasheet.ChannelsOffset, datasheet.ChannelsSize},
	{datasheet.BlockCounters, datasheet.CounterOffset, uint32(datasheet.CountersSize)},
	{datasheet.BlockInterrupt, datasheet.InterruptOffset, datasheet.InterruptSize},
	{datasheet.BlockDMA, datasheet.DMAOffset, datasheet.DMASize},
	{datasheet.BlockProcessor, datasheet.ProcessorOffset, datasheet.ProcessorSize},
}

// register is a 32-bit register of BAR0. Its functions run with Device.mu held;
// write is nil for registers that are read only, and locked is nil for those that can be
// written at any time.
type register struct {
	access datasheet.RegisterAccess
	locked func(d *Device) bool
	read   func(d *Device) uint32
	write  func(d *Device, v uint32)
}

// registers is BAR0 by offset, without the MSI-X tables.
var registers = layRegisters()

// layRegisters puts every register of the data sheet at its place.
func layRegisters() map[uint64]register {
	all := map[uint64]register{}
	start := map[uint32]uint32{}
	for i, b := range blocks {
		next := uint32(0)
		if i+1 < len(blocks) {
			next = blocks[i+1].offset
		}
		start[b.kind] = b.offset
		for reg, v := range map[uint32]uint32{
			datasheet.BlockRegType: b.kind, datasheet.BlockRegVersion: datasheet.BlockVersion1,
			datasheet.BlockRegNext: next, datasheet.BlockRegSize: b.size,
		} {
			all[uint64(b.offset+reg)] = register{access: datasheet.RegisterRO, read: func(*Device) uint32 { return v }}
		}
	}
	behaviours := registerBehaviours()
	for _, r := range append(datasheet.Registers(), datasheet.ProcessorRegisters()...) {
		b := behaviours[registerKey{r.Block, r.Offset}]
		b.access = r.Access
		if b.read == nil {
			// What is fixed and has no behaviour of its own reads its reset value.
			reset := r.Reset
			b.read = func(*Device) uint32 { return reset }
		}
		all[uint64(start[r.Block]+r.Offset)] = b
	}
	return all
}

// readRegisters is one read of BAR0. mu is held.
func (d *Device) readRegisters(offset uint64, p []byte) {
	if d.msix.at(offset, len(p)) {
		for i := 0; i < len(p); i += 4 {
			binary.LittleEndian.PutUint32(p[i:], d.msix.read(offset+uint64(i)))
		}
		return
	}
	r, ok := registers[offset]
	if !ok || len(p) != 4 {
		d.badAccess()
		setOnes(p)
		return
	}
	binary.LittleEndian.PutUint32(p, r.read(d))
}

// writeRegisters is one write of BAR0. mu is held.
func (d *Device) writeRegisters(offset uint64, p []byte) {
	if d.msix.at(offset, len(p)) {
		for i := 0; i < len(p); i += 4 {
			if !d.msix.write(offset+uint64(i), binary.LittleEndian.Uint32(p[i:])) {
				d.badAccess()
			}
		}
		return
	}
	r, ok := registers[offset]
	if !ok || len(p) != 4 || r.access == datasheet.RegisterRO || d.resetting() ||
		r.locked != nil && r.locked(d) {
		d.badAccess()
		return
	}
	r.write(d, binary.LittleEndian.Uint32(p))
}

func (d *Device) badAccess() { d.engine.AddCounter(datasheet.CounterBadRegisterAccesses, 1) }

// resetting reports whether a reset is under way. mu is held.
func (d *Device) resetting() bool {
	if d.readyAt.IsZero() {
		return false
	}
	if time.Now().Before(d.readyAt) {
		return true
	}
	d.readyAt = time.Time{}
	return false
}

// deviceStatus is the status register. mu is held.
func (d *Device) deviceStatus() uint32 {
	s := datasheet.DeviceReady
	if d.resetting() {
		s = datasheet.DeviceResetting
	}
	if d.admin.fault.Load() != datasheet.FaultNone {
		s |= datasheet.DeviceFatal
	}
	if d.processor.Stopped() {
		s |= datasheet.DeviceProgramStopped
	}
	if d.wire.LinkUp() {
		s |= datasheet.DeviceLinkUp
	}
	return s
}

// heartbeat is the value of HEARTBEAT: the number of commands, frames, completions and
// interrupts so far.
func (d *Device) heartbeat() uint32 {
	n := uint64(d.admin.fetched.Load())
	for _, c := range []datasheet.Counter{datasheet.CounterFramesSent, datasheet.CounterFramesReceived,
		datasheet.CounterCompletions, datasheet.CounterInterrupts} {
		n += d.engine.Counter(c)
	}
	return uint32(n)
}

// ticks is the clock block's time.
func (d *Device) ticks() uint64 { return uint64(d.clock() / datasheet.ClockResolution) }
