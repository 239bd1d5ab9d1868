package emulator

import (
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// commander is the part of an engine that the admin queue calls.
type commander interface {
	Execute(cmd *datasheet.Command)
	Exclusive(f func())
	AddCounter(c datasheet.Counter, n uint64)
}

// adminQueue fetches commands from host memory and writes replies and events to
// it (SPEC.md 7). The host is not trusted: each command is copied once, and
// only the copy counts.
//
// Registers are written with Device.mu held. Methods whose comment says
// "locked" run with the engine's lock held, the others take it.
type adminQueue struct {
	engine commander
	memory engine.Memory
	raise  func(vector uint16)
	// failed is called once when the queue stops with a fault.
	failed func()

	regs adminRegisters

	// What follows belongs to the engine's lock.
	running     bool
	producer    uint32 // commands that the host has written
	consumer    uint32 // commands fetched
	written     uint32 // entries written
	taken       uint32 // entries that the host has taken
	outstanding map[uint16]struct{}
	// orphans are commands that were outstanding when the queue was disabled.
	// Their replies are dropped.
	orphans map[uint16]struct{}

	// Copies for registers.
	status, fetched, lost, fault, faultDetail atomic.Uint32
}

// adminRegisters are written by the host only. All but the control register and the two
// indexes can be written only while the queue is disabled.
type adminRegisters struct {
	sqBase, acqBase uint64
	sqLog2, acqLog2 uint32
	vector          uint32
	control         uint32
	producer, taken uint32 // as written last
}

func (r *adminRegisters) sound() bool {
	inRange := func(log2 uint32) bool {
		return log2 >= datasheet.MinAdminLog2 && log2 <= datasheet.MaxAdminLog2
	}
	return r.sqBase%datasheet.AdminEntrySize == 0 && r.acqBase%datasheet.AdminEntrySize == 0 &&
		inRange(r.sqLog2) && inRange(r.acqLog2)
}

func newAdminQueue(e commander, m engine.Memory, raise func(uint16), failed func()) *adminQueue {
	return &adminQueue{engine: e, memory: m, raise: raise, failed: failed,
		outstanding: map[uint16]struct{}{}, orphans: map[uint16]struct{}{}}
}

// reset makes everything new.
func (a *adminQueue) reset() {
	a.engine.Exclusive(func() {
		a.running = false
		a.regs = adminRegisters{}
		a.producer, a.consumer, a.written, a.taken = 0, 0, 0, 0
		clear(a.outstanding)
		clear(a.orphans)
		a.status.Store(0)
		a.fetched.Store(0)
		a.lost.Store(0)
		a.fault.Store(datasheet.FaultNone)
		a.faultDetail.Store(0)
	})
}

// setControl enables or disables the queue.
func (a *adminQueue) setControl(v uint32) {
	a.regs.control = v & datasheet.AdminEnable
	a.engine.Exclusive(func() {
		switch {
		case a.regs.control == 0:
			a.disable()
		case !a.running:
			a.enable()
		}
	})
}

// writable reports whether base addresses, sizes and vector can be written.
// While they cannot, they may be read with the engine's lock.
func (a *adminQueue) writable() bool { return a.status.Load()&datasheet.AdminEnabled == 0 }

// enable is called locked. A queue that has failed stays so until a reset.
func (a *adminQueue) enable() {
	if !a.regs.sound() || a.fault.Load() != datasheet.FaultNone {
		a.status.Store(datasheet.AdminError)
		return
	}
	a.producer, a.consumer, a.written, a.taken = 0, 0, 0, 0
	a.regs.producer, a.regs.taken = 0, 0
	a.fetched.Store(0)
	a.running = true
	a.status.Store(datasheet.AdminEnabled)
}

// disable is called locked.
func (a *adminQueue) disable() {
	a.running = false
	for id := range a.outstanding {
		a.orphans[id] = struct{}{}
	}
	clear(a.outstanding)
	a.status.Store(0)
}

// ring takes the host's new producer index and fetches commands.
func (a *adminQueue) ring(producer uint32) {
	a.regs.producer = producer
	a.engine.Exclusive(func() {
		switch size := uint32(1) << a.regs.sqLog2; {
		case !a.running:
		case producer-a.consumer > size, int32(producer-a.producer) < 0:
			a.fail(datasheet.FaultAdminIndex, producer)
		default:
			a.producer = producer
		}
	})
	a.fetch()
}

// acknowledge takes the number of entries that the host has taken, which makes
// room for replies.
func (a *adminQueue) acknowledge(taken uint32) {
	a.regs.taken = taken
	a.engine.Exclusive(func() {
		switch {
		case !a.running:
		case taken-a.taken > a.written-a.taken:
			a.fail(datasheet.FaultAdminIndex, taken)
		default:
			a.taken = taken
		}
	})
	a.fetch()
}

// fetch executes commands while there are any and their replies have room.
func (a *adminQueue) fetch() {
	var cmd datasheet.Command
	for {
		var execute, more bool
		a.engine.Exclusive(func() { execute, more = a.next(&cmd) })
		if execute {
			a.engine.Execute(&cmd)
		}
		if !more {
			return
		}
	}
}

// next copies the next command, locked. It reports whether there is one to
// execute, and whether there may be more.
func (a *adminQueue) next(cmd *datasheet.Command) (execute, more bool) {
	if !a.running || int32(a.producer-a.consumer) <= 0 || a.room() == 0 {
		return false, false
	}
	b := a.slot(a.regs.sqBase, a.regs.sqLog2, a.consumer, false)
	if b == nil {
		return false, false
	}
	*cmd = *datasheet.CommandAt(b)
	a.consumer++
	a.fetched.Store(a.consumer)
	if a.known(cmd.ID) {
		const fieldID = 2 // offset of Command.ID
		a.write(&datasheet.AdminEntry{Kind: datasheet.EntryReply, ID: cmd.ID,
			Result: datasheet.ResultInvalidParameter, Field: fieldID})
		return false, true
	}
	a.outstanding[cmd.ID] = struct{}{}
	return true, true
}

// known reports whether a command of that ID is outstanding.
func (a *adminQueue) known(id uint16) bool {
	_, mine := a.outstanding[id]
	_, orphan := a.orphans[id]
	return mine || orphan
}

// room returns how many more entries the completion ring can take, after a
// reply to each outstanding command.
func (a *adminQueue) room() uint32 {
	return 1<<a.regs.acqLog2 - (a.written - a.taken) - uint32(len(a.outstanding))
}

// entry takes a reply or an event from the engine, locked.
func (a *adminQueue) entry(e *datasheet.AdminEntry) {
	if e.Kind == datasheet.EntryReply {
		if _, ok := a.orphans[e.ID]; ok {
			delete(a.orphans, e.ID)
			return
		}
		if _, ok := a.outstanding[e.ID]; !ok {
			return
		}
		delete(a.outstanding, e.ID)
		if a.running {
			a.write(e)
		}
		return
	}
	switch {
	case !a.running:
	case a.room() == 0:
		a.lost.Add(1)
	default:
		a.write(e)
	}
}

// write appends an entry to the completion ring, which has room, locked.
func (a *adminQueue) write(e *datasheet.AdminEntry) {
	b := a.slot(a.regs.acqBase, a.regs.acqLog2, a.written, true)
	if b == nil {
		return
	}
	to := datasheet.AdminEntryAt(b)
	to.Kind, to.ID, to.Result, to.Field, to.Payload = e.Kind, e.ID, e.Result, e.Field, e.Payload
	to.Publish(datasheet.PhaseOf(a.written, uint8(a.regs.acqLog2)))
	a.written++
	if v := uint16(a.regs.vector); v != datasheet.NoVector {
		a.raise(v)
	}
}

// slot finds an entry of a ring in host memory, locked. Nil stops the queue.
func (a *adminQueue) slot(base uint64, log2, index uint32, write bool) []byte {
	at := base + uint64(index&(1<<log2-1))*datasheet.AdminEntrySize
	b, err := a.memory.Window(at, datasheet.AdminEntrySize, write)
	if err != nil || len(b) < datasheet.AdminEntrySize {
		a.engine.AddCounter(datasheet.CounterDMAFaults, 1)
		a.fail(datasheet.FaultAdminDMA, uint32(at))
		return nil
	}
	return b
}

// fail stops the queue until a reset, locked.
func (a *adminQueue) fail(code, detail uint32) {
	a.running = false
	a.status.Store(datasheet.AdminError)
	a.fault.Store(code)
	a.faultDetail.Store(detail)
	a.failed()
}
