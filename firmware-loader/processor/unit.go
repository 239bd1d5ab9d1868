// Package processor is the NIC processor as the host sees it (descriptors/SPEC.md 2.10): registers,
// slots and mailbox, between a device and its engine. It runs control programs
// (internal/machine) against what the engine does.
package processor

import (
	"time"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/machine"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Engine has the methods of an engine.Engine that a Unit needs.
type Engine interface {
	Exclusive(f func())
	SetProcessor(p engine.Processor, at, writes engine.HookSet)
	Suspend(limit time.Duration)
	Wake()
}

// Config of a Unit.
type Config struct {
	Engine Engine
	// SRAM is the device's, MinSRAM bytes or more, which the host can write at any
	// time.
	SRAM []byte
	// Device is PCI vendor<<16 | device.
	Device uint32
	// Clock is the device's.
	Clock func() time.Duration
}

// Unit is the NIC processor as its host sees it: the registers of the processor
// block (SPEC.md 2.10), the slots and the mailbox. One goroutine at a time calls its
// methods, except SetMinimum and Stopped.
type Unit struct {
	engine Engine
	sram   []byte
	layout layout
	device uint32
	clock  func() uint64

	entry     uint32
	holdLimit uint32 // microseconds
	command   uint32 // of the mailbox
	result    datasheet.MailboxResult
	latched   [abi.Hooks]struct{ runs, faults uint32 } // high halves
	// active is the slot of the image that runs or is halted, ran that of the one
	// that ran last, previous that of the one before it.
	active, ran, previous uint32

	runner runner // engine's lock
}

// New makes a processor without a program.
func New(c Config) *Unit {
	return &Unit{
		engine: c.Engine, sram: c.SRAM, layout: layOut(len(c.SRAM)), device: c.Device,
		clock:     func() uint64 { return uint64(c.Clock()) },
		holdLimit: datasheet.HoldLimitReset,
		active:    datasheet.NoSlot, ran: datasheet.NoSlot, previous: datasheet.NoSlot,
	}
}

// Kept is the part of SRAM, from its start, that a reset keeps, in bytes.
func (u *Unit) Kept() uint32 { return Slots * u.layout.slotSize }

// Used is the processor's part of SRAM, from its start, in bytes.
func (u *Unit) Used() uint32 { return u.layout.mailbox + mailboxSize }

// SetMinimum tells what MINPULSE of a direction is. It may be called at any time.
func (u *Unit) SetMinimum(d engine.Direction, bytes uint32) { u.runner.minimum[d].Store(bytes) }

// Control is a write to PROC_CONTROL. It returns false for what is no command.
func (u *Unit) Control(v uint32) bool {
	switch v {
	case datasheet.ProcessorHalt:
		u.halt()
	case datasheet.ProcessorRun:
		u.run(nil)
	case datasheet.ProcessorUseBuiltIn:
		u.useBuiltIn()
	default:
		return false
	}
	u.engine.Wake()
	return true
}

func (u *Unit) halt() {
	u.engine.Exclusive(func() {
		r := &u.runner
		if r.state != datasheet.ProcessorHalted {
			u.engine.Suspend(time.Duration(u.holdLimit) * time.Microsecond)
			r.setState(datasheet.ProcessorHalted)
		}
	})
}

// run starts the image at PROC_ENTRY. While it is being checked, what the old image
// would be asked about waits. If it is the one that past is of, it goes on with the
// maps of that.
func (u *Unit) run(past *past) {
	u.halt()
	u.engine.Exclusive(func() { u.runner.setState(datasheet.ProcessorStarting) })
	slot, img, err := u.boot()
	if err == nil && past != nil && past.digest == img.Digest {
		for i, m := range img.Maps {
			m.Restore(past.maps[i])
		}
	}
	u.engine.Exclusive(func() {
		if err != nil {
			u.drop()
			u.runner.fail(err)
			return
		}
		if u.ran != slot && u.ran != datasheet.NoSlot {
			u.previous = u.ran
		} else if u.previous == slot {
			u.previous = datasheet.NoSlot
		}
		u.active, u.ran = slot, slot
		u.runner.install(u.engine, img)
	})
}

func (u *Unit) boot() (slot uint32, _ *machine.Image, err *machine.BootError) {
	slot, ok := u.layout.slotAt(u.entry)
	if !ok {
		return slot, nil, &machine.BootError{Fault: datasheet.ProcessorFaultSRAM, Err: errEntry}
	}
	img, err := machine.Boot(u.slot(slot), u.device, u.clock)
	return slot, img, err
}

func (u *Unit) slot(n uint32) []byte {
	at := u.layout.offset(n)
	return u.sram[at : at+u.layout.slotSize : at+u.layout.slotSize]
}

// useBuiltIn forgets the program. It can be rolled back to.
func (u *Unit) useBuiltIn() {
	u.engine.Exclusive(u.drop)
	if u.ran != datasheet.NoSlot {
		u.previous, u.ran = u.ran, datasheet.NoSlot
	}
}

// drop goes back to built-in behaviour. It runs in Exclusive.
func (u *Unit) drop() {
	u.active = datasheet.NoSlot
	u.runner.image, u.runner.installed = nil, 0
	u.runner.setState(datasheet.ProcessorBuiltIn)
	u.engine.SetProcessor(nil, 0, 0)
}

// past has the content of an image's maps.
type past struct {
	digest [32]byte
	maps   [][]byte
}

// remember copies what the maps hold, as they stand where the image's next start
// makes new ones. It runs in Exclusive.
func (u *Unit) remember() *past {
	img := u.runner.image
	if img == nil {
		return nil
	}
	p := &past{digest: img.Digest}
	for _, m := range img.Maps {
		p.maps = append(p.maps, m.Contents())
	}
	return p
}

// Reset is a reset of the device. It is called after that of the engine: the image
// in the active slot is started again, and keeps what its maps hold.
func (u *Unit) Reset() {
	u.entry, u.command, u.result, u.holdLimit = 0, 0, datasheet.MailboxOK, datasheet.HoldLimitReset
	clear(u.latched[:])
	active := u.active
	var maps *past
	u.engine.Exclusive(func() {
		maps = u.remember()
		u.drop()
		u.runner.runs, u.runner.faults = [abi.Hooks]uint64{}, [abi.Hooks]uint64{}
	})
	if active == datasheet.NoSlot {
		return
	}
	u.entry = u.layout.offset(active)
	u.run(maps)
}

// Move is a Reset with other SRAM, to which what is kept was copied.
func (u *Unit) Move(sram []byte) {
	u.engine.Exclusive(func() { u.sram = sram })
	u.Reset()
}

// layout says what is where in SRAM. Slots are at its start.
type layout struct {
	slotSize uint32 // bytes
	mailbox  uint32 // offset, bytes
}

const (
	// Slots is the number of images that SRAM has room for: one that runs, and another.
	Slots = 2
	// mailboxSize in bytes: room for the largest key and value, in whole pages of
	// 64 KiB, the largest that a host may have.
	mailboxSize = 128 << 10
	// MinSRAM is the least that a processor works with, in bytes.
	MinSRAM = 2 * mailboxSize
	// slotShare is the part of SRAM that a slot has where that is more than minSlot bytes,
	// which it has where half of SRAM has room for all: the rest of large SRAM is for
	// endpoints.
	slotShare = 32
	minSlot   = 256 << 10
)

const _ = uint(mailboxSize - abi.MaxKey - abi.MaxValue)

// layOut lays out SRAM of MinSRAM bytes or more: slots in the first half at most, then
// the mailbox. The rest is the engine's.
func layOut(sram int) layout {
	const align = 64
	size := uint32(min(sram/2/Slots, max(sram/slotShare, minSlot))) &^ (align - 1)
	return layout{slotSize: size, mailbox: Slots * size}
}

// slotAt returns the number of the slot that starts at an offset.
func (l *layout) slotAt(offset uint32) (slot uint32, ok bool) {
	slot = offset / l.slotSize
	return slot, slot < Slots && l.offset(slot) == offset
}

// offset returns where a slot starts.
func (l *layout) offset(slot uint32) uint32 { return slot * l.slotSize }
