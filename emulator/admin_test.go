package emulator

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// fakeEngine keeps the commands that it is given until the test answers.
type fakeEngine struct {
	inside   bool // in Exclusive
	got      []datasheet.Command
	counters [datasheet.CounterCount]uint64
	execute  func(c *datasheet.Command) // if set, called at once
}

func (f *fakeEngine) Execute(c *datasheet.Command) {
	f.got = append(f.got, *c)
	if f.execute != nil {
		f.execute(c)
	}
}

func (f *fakeEngine) Exclusive(do func()) {
	if f.inside {
		panic("Exclusive inside Exclusive")
	}
	f.inside = true
	defer func() { f.inside = false }()
	do()
}

func (f *fakeEngine) AddCounter(c datasheet.Counter, n uint64) { f.counters[c] += n }

// adminBench is an admin queue with its rings on two pages of bus memory.
type adminBench struct {
	*adminQueue
	engine *fakeEngine
	mmu    *iommu
	sq     []byte
	acq    []byte
	raised []uint16
	failed int
}

const (
	benchSQ  = 0x10000
	benchACQ = 0x20000
)

// newBench makes a queue of 4 commands and 1<<acqLog2 entries, enabled.
func newBench(t testing.TB, acqLog2 uint32) *adminBench {
	t.Helper()
	mem := testMemory(t, 2)
	b := &adminBench{engine: &fakeEngine{}, mmu: &iommu{master: true}, sq: mem[:testPage], acq: mem[testPage:]}
	for _, m := range []struct {
		iova uint64
		mem  []byte
	}{{benchSQ, b.sq}, {benchACQ, b.acq}} {
		must.OK(t, b.mmu.add(m.mem, m.iova, 3))
	}
	b.adminQueue = newAdminQueue(b.engine, b.mmu, func(v uint16) { b.raised = append(b.raised, v) }, func() { b.failed++ })
	b.regs = adminRegisters{sqBase: benchSQ, acqBase: benchACQ, sqLog2: 2, acqLog2: acqLog2, vector: 5}
	b.setControl(datasheet.AdminEnable)
	must.Be(t, b.status.Load(), datasheet.AdminEnabled, "status after enable")
	return b
}

// post writes a command with an ID into slot number index of the ring.
func (b *adminBench) post(index uint32, id uint16) {
	*datasheet.CommandAt(b.sq[index%4*datasheet.AdminEntrySize:]) = datasheet.Command{Opcode: datasheet.OpNop, ID: id}
}

func (b *adminBench) reply(id uint16) {
	b.entry(&datasheet.AdminEntry{Kind: datasheet.EntryReply, ID: id, Payload: [14]uint64{7}})
}

func (b *adminBench) event() { b.entry(&datasheet.AdminEntry{Kind: datasheet.EntryEvent}) }

// at returns entry number index of the completion ring if it has been written.
func (b *adminBench) at(index uint32) *datasheet.AdminEntry {
	log2 := b.regs.acqLog2
	e := datasheet.AdminEntryAt(b.acq[index%(1<<log2)*datasheet.AdminEntrySize:])
	if e.LoadFlags() != datasheet.PhaseOf(index, uint8(log2)) {
		return nil
	}
	return e
}

func (b *adminBench) wantFault(t *testing.T, code, detail uint32) {
	t.Helper()
	if b.fault.Load() != code || b.faultDetail.Load() != detail || b.status.Load() != datasheet.AdminError || b.failed != 1 {
		t.Errorf("fault %d, detail %#x, status %#x, %d times; want fault %d, detail %#x",
			b.fault.Load(), b.faultDetail.Load(), b.status.Load(), b.failed, code, detail)
	}
	// Only a reset helps.
	given := len(b.engine.got)
	b.setControl(0)
	b.setControl(datasheet.AdminEnable)
	b.ring(1)
	if b.status.Load() != datasheet.AdminError || len(b.engine.got) != given {
		t.Error("the queue runs again without a reset")
	}
	b.reset()
	if b.fault.Load() != 0 || b.status.Load() != 0 || b.regs != (adminRegisters{}) {
		t.Error("the reset left something behind")
	}
}

func TestAdminRepliesAlwaysHaveRoom(t *testing.T) {
	b := newBench(t, 1) // two entries
	for i := range uint32(4) {
		b.post(i, uint16(i))
	}
	b.ring(4)
	must.Be(t, len(b.engine.got), 2, "commands fetched, the completion ring has room for two")
	b.event()
	b.event()
	if b.lost.Load() != 2 || b.written != 0 {
		t.Errorf("%d events lost, %d entries written: events took the room of replies", b.lost.Load(), b.written)
	}
	b.reply(1)
	b.reply(0)
	should.Be(t, len(b.engine.got), 2, "a command was fetched though nobody took the entries")
	b.acknowledge(1)
	should.Be(t, len(b.engine.got), 3, "commands fetched after one entry was taken")
	b.acknowledge(2)
	b.reply(3)
	b.reply(2)
	b.event()
	b.acknowledge(4)
	b.event()
	if b.lost.Load() != 3 || b.at(4) == nil || b.at(4).Kind != datasheet.EntryEvent {
		t.Errorf("%d events lost, entry 4 is %+v", b.lost.Load(), b.at(4))
	}
}

func TestAdminEnableChecks(t *testing.T) {
	good := adminRegisters{sqBase: benchSQ, acqBase: benchACQ, sqLog2: 1, acqLog2: datasheet.MaxAdminLog2}
	tests := map[string]func(r *adminRegisters){
		"sq misaligned":  func(r *adminRegisters) { r.sqBase += 64 },
		"acq misaligned": func(r *adminRegisters) { r.acqBase++ },
		"sq too small":   func(r *adminRegisters) { r.sqLog2 = 0 },
		"acq too small":  func(r *adminRegisters) { r.acqLog2 = 0 },
		"sq too large":   func(r *adminRegisters) { r.sqLog2 = datasheet.MaxAdminLog2 + 1 },
		"acq too large":  func(r *adminRegisters) { r.acqLog2 = 0xffffffff },
	}
	for name, change := range tests {
		b := newBench(t, 1)
		b.setControl(0)
		b.regs = good
		change(&b.regs)
		b.setControl(datasheet.AdminEnable)
		if b.status.Load() != datasheet.AdminError || b.fault.Load() != 0 || !b.writable() {
			t.Errorf("%s: status %#x, fault %d", name, b.status.Load(), b.fault.Load())
		}
		b.regs = good
		b.setControl(datasheet.AdminEnable)
		should.Be(t, b.status.Load(), datasheet.AdminEnabled, "%s: status after the registers were put right", name)
	}
}

func TestAdminFaults(t *testing.T) {
	for name, c := range map[string]struct {
		do           func(b *adminBench)
		code, detail uint32
	}{
		"producer too far": {func(b *adminBench) { b.ring(5) }, datasheet.FaultAdminIndex, 5},
		"producer goes back": {func(b *adminBench) {
			for i := range uint32(4) {
				b.post(i, uint16(i))
			}
			b.ring(4) // two of them wait
			b.ring(3)
		}, datasheet.FaultAdminIndex, 3},
		"taken more than written": {func(b *adminBench) { b.acknowledge(1) }, datasheet.FaultAdminIndex, 1},
		"taken goes back": {func(b *adminBench) {
			b.event()
			b.acknowledge(1)
			b.acknowledge(0)
		}, datasheet.FaultAdminIndex, 0},
		"commands not mapped": {func(b *adminBench) {
			_ = b.mmu.remove(benchSQ, testPage)
			b.ring(1)
		}, datasheet.FaultAdminDMA, benchSQ},
		"commands not to be read": {func(b *adminBench) {
			_ = b.mmu.remove(benchSQ, testPage)
			_ = b.mmu.add(b.sq, benchSQ, vfio.DMAWrite)
			b.ring(1)
		}, datasheet.FaultAdminDMA, benchSQ},
		"entries not mapped": {func(b *adminBench) {
			b.post(0, 1)
			b.ring(1)
			_ = b.mmu.remove(benchACQ, testPage)
			b.reply(1)
		}, datasheet.FaultAdminDMA, benchACQ},
		"bus mastering off": {func(b *adminBench) {
			b.mmu.setMaster(false)
			b.ring(1)
		}, datasheet.FaultAdminDMA, benchSQ},
		"ring at the end of the address space": {func(b *adminBench) {
			b.setControl(0)
			b.regs.sqBase = ^uint64(0) - 127
			b.setControl(datasheet.AdminEnable)
			b.ring(1)
		}, datasheet.FaultAdminDMA, 0xffffff80},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t, 1)
			c.do(b)
			if n := b.engine.counters[datasheet.CounterDMAFaults]; (n == 1) != (c.code == datasheet.FaultAdminDMA) {
				t.Errorf("%d DMA faults were counted", n)
			}
			b.wantFault(t, c.code, c.detail)
		})
	}
}

func TestAdminRefusesIDsInUse(t *testing.T) {
	b := newBench(t, 2)
	b.post(0, 9)
	b.post(1, 9)
	b.ring(2)
	must.Be(t, len(b.engine.got), 1, "commands executed")
	e := b.at(0)
	if e == nil || e.ID != 9 || e.Result != datasheet.ResultInvalidParameter || e.Field != 2 {
		t.Errorf("the reply is %+v", e)
	}
	b.reply(9)
	b.reply(9) // an answer to nothing
	if b.at(1) == nil || b.at(2) != nil {
		t.Error("the first command has no reply of its own, or two")
	}
}

func TestAdminDisableDropsReplies(t *testing.T) {
	b := newBench(t, 1)
	b.post(0, 1)
	b.ring(1)
	b.setControl(0)
	if b.status.Load() != 0 || !b.writable() {
		t.Errorf("status %#x after disable", b.status.Load())
	}
	b.ring(2)
	b.acknowledge(77)
	b.event()
	if b.fault.Load() != 0 || len(b.engine.got) != 1 {
		t.Error("a queue that is off took something")
	}
	b.setControl(datasheet.AdminEnable)
	b.reply(1) // late
	should.Be(t, b.written, 0, "a reply to a command of before was delivered")
	b.post(0, 1)
	b.ring(1)
	b.reply(1)
	if len(b.engine.got) != 2 || b.written != 1 {
		t.Errorf("%d commands, %d entries after enabling again", len(b.engine.got), b.written)
	}
}

// TestAdminCopiesOnce has a host change a command while it is executed.
func TestAdminCopiesOnce(t *testing.T) {
	b := newBench(t, 1)
	b.post(0, 3)
	b.engine.execute = func(c *datasheet.Command) {
		clear(b.sq)
		should.Be(t, c.ID, 3, "the command changed under the device's eyes")
	}
	b.ring(1)
	b.reply(3)
	if b.at(0) == nil || b.at(0).ID != 3 {
		t.Error("the reply went to what the host wrote later")
	}
}

// FuzzAdmin plays a host that writes anything to its rings and registers, and
// an engine that answers in any order.
func FuzzAdmin(f *testing.F) {
	f.Add([]byte{0, 1, 1, 0, 2, 0, 3, 1})
	f.Add([]byte{5, 0, 5, 1, 0, 1, 4, 0, 1, 9})
	f.Fuzz(func(t *testing.T, script []byte) {
		b := newBench(t, 1)
		for i := 0; i+1 < len(script); i += 2 {
			v := script[i+1]
			switch script[i] % 8 {
			case 0:
				b.ring(b.regs.producer + uint32(int8(v)))
			case 1:
				b.acknowledge(b.regs.taken + uint32(int8(v)))
			case 2:
				b.reply(uint16(v))
			case 3:
				b.event()
			case 4:
				b.sq[int(v)*16] ^= v
			case 5:
				b.setControl(uint32(v))
			case 6:
				if b.writable() {
					b.regs.sqBase, b.regs.acqLog2 = uint64(v)<<9, uint32(v%16)
				}
			case 7:
				if len(b.engine.got) > 0 {
					b.reply(b.engine.got[int(v)%len(b.engine.got)].ID)
				}
			}
			if b.running {
				if unread := b.written - b.taken; unread+uint32(len(b.outstanding)) > 1<<b.regs.acqLog2 {
					t.Fatalf("%d entries and %d outstanding commands in a ring of %d", unread, len(b.outstanding), 1<<b.regs.acqLog2)
				}
				if b.producer-b.consumer > 1<<b.regs.sqLog2 {
					t.Fatalf("commands %d to %d in a ring of %d", b.consumer, b.producer, 1<<b.regs.sqLog2)
				}
			}
			if b.running != (b.status.Load() == datasheet.AdminEnabled) {
				t.Fatalf("running %v, status %#x", b.running, b.status.Load())
			}
		}
	})
}
