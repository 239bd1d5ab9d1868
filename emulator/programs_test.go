package emulator_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"strings"
	"testing"
	"time"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/emulator"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// constant is a program that answers with a constant.
func constant(v int32) asm.Instructions {
	return asm.Instructions{asm.Mov.Imm(asm.R0, v), asm.Return()}
}

// filter is the content of an image with one filter/rx program.
func filter(name string, code asm.Instructions, maps ...abi.Map) *firmware.Image {
	img := &firmware.Image{ABI: abi.Version, Name: name, Version: "1.2", Maps: maps}
	img.BuildID[3] = 0xb1
	img.Programs[abi.FilterRx] = code
	return img
}

func encode(t testing.TB, img *firmware.Image) []byte {
	t.Helper()
	b := must.Get(firmware.Encode(img))(t)
	return b
}

// nicProcessor is the NIC processor of a device as a loader sees it.
type nicProcessor struct {
	t testing.TB
	d vfio.Device
}

func (p nicProcessor) read(register uint32) uint32 {
	p.t.Helper()
	return read32(p.t, p.d, datasheet.ProcessorOffset+uint64(register))
}

func (p nicProcessor) write(register, v uint32) {
	p.t.Helper()
	write32(p.t, p.d, datasheet.ProcessorOffset+uint64(register), v)
}

func (p nicProcessor) hook(h abi.Hook, register uint32) uint32 {
	p.t.Helper()
	return p.read(datasheet.ProcessorHookBase + uint32(h)*datasheet.ProcessorHookSize + register)
}

func (p nicProcessor) slot(n uint32) uint32 {
	return p.read(datasheet.RegSlotBase) + n*p.read(datasheet.RegSlotSize)
}

// run writes an image into a slot and starts it.
func (p nicProcessor) run(slot uint32, image []byte) {
	p.t.Helper()
	write(p.t, p.d, vfio.RegionBAR4, uint64(p.slot(slot)), image)
	p.start(slot)
}

func (p nicProcessor) start(slot uint32) {
	p.t.Helper()
	p.write(datasheet.RegProcessorEntry, p.slot(slot))
	p.write(datasheet.RegProcessorControl, datasheet.ProcessorRun)
}

func (p nicProcessor) text(register uint32, n int) string {
	p.t.Helper()
	var b []byte
	for i := range n / 4 {
		b = binary.LittleEndian.AppendUint32(b, p.read(register+4*uint32(i)))
	}
	return strings.TrimRight(string(b), "\x00")
}

// is checks what the processor says of itself. name is that of the image that runs.
func (p nicProcessor) is(state datasheet.ProcessorState, fault datasheet.ProcessorFault, name string, active, previous uint32) {
	p.t.Helper()
	ready := uint32(0)
	if state == datasheet.ProcessorRunning {
		ready = datasheet.ProcessorReady
	}
	for _, r := range []struct {
		name           string
		register, want uint32
	}{
		{"PROC_STATUS", datasheet.RegProcessorStatus, uint32(state)}, {"PROC_FAULT", datasheet.RegProcessorFault, uint32(fault)},
		{"PROC_READY", datasheet.RegProcessorReady, ready}, {"ACTIVE_SLOT", datasheet.RegActiveSlot, active},
		{"PREVIOUS_SLOT", datasheet.RegPreviousSlot, previous},
	} {
		should.Be(p.t, p.read(r.register), r.want, "%s", r.name)
	}
	should.Be(p.t, p.text(datasheet.RegProcessorName, abi.MaxNameLength), name, "PROC_NAME")
	if stopped := deviceStatus(p.t, p.d)&datasheet.DeviceProgramStopped != 0; stopped != (state == datasheet.ProcessorFaulted) {
		p.t.Errorf("DeviceProgramStopped: %v", stopped)
	}
}

const noSlot = datasheet.NoSlot

func newProcessor(t testing.TB, d vfio.Device) nicProcessor {
	powerUp(t, d)
	return nicProcessor{t, d}
}

// TestProgramRuns starts images and looks at what the device says about them.
func TestProgramRuns(t *testing.T) {
	p := newProcessor(t, newDevice(t, nil))
	p.is(datasheet.ProcessorBuiltIn, 0, "", noSlot, noSlot)
	for register, want := range map[uint32]uint32{
		datasheet.RegProcessorABI: abi.Version, datasheet.RegProcessorDevice: 0x12347250, datasheet.RegSlotCount: 2,
		datasheet.RegSlotBase: 0, datasheet.RegSlotSize: 256 << 10, datasheet.RegMailboxOffset: 512 << 10,
		datasheet.RegMailboxSize: 128 << 10, datasheet.RegHoldLimit: 100_000,
	} {
		should.Be(t, p.read(register), want, "register %#x", register)
	}

	img := filter("first", constant(abi.FilterPass))
	img.Programs[abi.PulseTx] = constant(0)
	image := encode(t, img)
	p.run(0, image)
	p.is(datasheet.ProcessorRunning, 0, "first", 0, noSlot)
	decoded := must.Get(load.Flat(image))(t)
	if got := p.text(datasheet.RegProcessorDigest, 32); got != strings.TrimRight(string(decoded.Digest[:]), "\x00") {
		t.Errorf("digest %x, want %x", got, decoded.Digest)
	}
	should.Be(t, p.text(datasheet.RegProcessorVersion, 16), "1.2", "version")
	should.Be(t, p.text(datasheet.RegProcessorBuildID, 20), "\x00\x00\x00\xb1", "build ID")
	for h := range abi.Hooks {
		installed, worst := uint32(0), uint32(0)
		if h == abi.FilterRx || h == abi.PulseTx {
			installed, worst = 1, 2
		}
		should.Be(t, p.hook(h, datasheet.HookRegInstalled), installed, "%v: installed", h)
		should.Be(t, p.hook(h, datasheet.HookRegWorstCase), worst, "%v: worst case", h)
	}

	p.run(1, encode(t, filter("second", constant(abi.FilterPass))))
	p.is(datasheet.ProcessorRunning, 0, "second", 1, 0)
	p.start(1) // again
	p.is(datasheet.ProcessorRunning, 0, "second", 1, 0)
	p.write(datasheet.RegProcessorControl, datasheet.ProcessorHalt)
	p.is(datasheet.ProcessorHalted, 0, "", 1, 0)
	should.Be(t, p.hook(abi.FilterRx, datasheet.HookRegInstalled), 0, "a halted program decides")
	p.start(0) // back
	p.is(datasheet.ProcessorRunning, 0, "first", 0, 1)
	p.write(datasheet.RegProcessorControl, datasheet.ProcessorUseBuiltIn)
	p.is(datasheet.ProcessorBuiltIn, 0, "", noSlot, 0)
	p.write(datasheet.RegProcessorControl, datasheet.ProcessorHalt)
	p.is(datasheet.ProcessorHalted, 0, "", noSlot, 0)
	p.start(1)
	p.is(datasheet.ProcessorRunning, 0, "second", 1, 0)
}

// TestImagesThatAreRefused: one for each fault. What ran before is gone, and can be
// put back.
func TestImagesThatAreRefused(t *testing.T) {
	good := encode(t, filter("good", constant(abi.FilterPass)))
	spoiled := func(at int) []byte {
		b := bytes.Clone(good)
		b[at] ^= 1
		return b
	}
	// changed is an image that was changed before its digest was made.
	changed := func(change func(*firmware.Image)) []byte {
		img := filter("bad", constant(abi.FilterPass))
		change(img)
		return encode(t, img)
	}
	array := abi.Map{Name: "m", Type: abi.MapArray, Key: 4, Value: 64 << 10, Entries: 4}
	for name, c := range map[string]struct {
		image  []byte
		entry  uint32 // added to the slot's start
		fault  datasheet.ProcessorFault
		detail uint32
	}{
		"nothing":        {make([]byte, 4096), 0, datasheet.ProcessorFaultImage, 0},
		"magic":          {spoiled(0), 0, datasheet.ProcessorFaultImage, 0},
		"size":           {spoiled(9), 0, datasheet.ProcessorFaultImage, 0},
		"digest":         {spoiled(0x70), 0, datasheet.ProcessorFaultDigest, 0},
		"program":        {spoiled(len(good) - 8), 0, datasheet.ProcessorFaultDigest, 0},
		"ABI":            {spoiled(6), 0, datasheet.ProcessorFaultABI, 0},
		"device":         {changed(func(i *firmware.Image) { i.Device = 0x80861521 }), 0, datasheet.ProcessorFaultDevice, 0},
		"too much SRAM":  {changed(func(i *firmware.Image) { i.Maps = []abi.Map{array} }), 0, datasheet.ProcessorFaultSRAM, 0},
		"beside a slot":  {good, 8, datasheet.ProcessorFaultSRAM, 0},
		"behind slots":   {good, 256 << 10, datasheet.ProcessorFaultSRAM, 0},
		"behind SRAM":    {good, 1 << 31, datasheet.ProcessorFaultSRAM, 0},
		"never ends":     {changed(func(i *firmware.Image) { i.Programs[abi.PulseRx] = endless() }), 0, datasheet.ProcessorFaultRefused, 1<<24 | 1},
		"no such helper": {changed(func(i *firmware.Image) { i.Programs[abi.FilterTx] = foreign() }), 0, datasheet.ProcessorFaultRefused, 3<<24 | 2},
	} {
		t.Run(name, func(t *testing.T) {
			p := newProcessor(t, newDevice(t, nil))
			p.run(0, good)
			write(t, p.d, vfio.RegionBAR4, uint64(p.slot(1)), c.image)
			p.write(datasheet.RegProcessorEntry, p.slot(1)+c.entry)
			p.write(datasheet.RegProcessorControl, datasheet.ProcessorRun)
			p.is(datasheet.ProcessorFaulted, c.fault, "", noSlot, noSlot)
			should.Be(t, p.read(datasheet.RegProcessorFaultDetail), c.detail, "detail")
			p.start(0)
			p.is(datasheet.ProcessorRunning, 0, "good", 0, noSlot)
			should.Be(t, p.read(datasheet.RegProcessorFaultDetail), 0, "detail of no fault")
		})
	}
}

func endless() asm.Instructions {
	loop := asm.Ja.Label("x").WithReference("")
	loop.Offset = -1
	return asm.Instructions{asm.Mov.Imm(asm.R0, 0), loop}
}

func foreign() asm.Instructions {
	return asm.Instructions{asm.LoadImm(asm.R6, 1, asm.DWord), asm.FnGetPrandomU32.Call(), asm.Return()}
}

// TestProgramSurvivesResets: the image is started again, as it was written, and
// keeps what its maps hold, but for those that it cannot write.
func TestProgramSurvivesResets(t *testing.T) {
	counts := abi.Map{Name: "counts", Type: abi.MapArray, Key: 4, Value: 8, Entries: 1, Contents: []byte{7}}
	fixed := abi.Map{Name: "fixed", Type: abi.MapArray, Key: 4, Value: 8, Entries: 1, Flags: abi.MapReadOnly, Contents: []byte{5}}
	image := encode(t, filter("keeps", constant(abi.FilterPass), counts, fixed))
	for name, reset := range map[string]func(t *testing.T, d *emulator.Device){
		"by register": func(t *testing.T, d *emulator.Device) { resetByRegister(t, d) },
		"by function": func(t *testing.T, d *emulator.Device) {
			must.OK(t, d.Reset(context.Background()))
			powerUp(t, d)
		},
	} {
		t.Run(name, func(t *testing.T) {
			d := newDevice(t, nil)
			p := newProcessor(t, d)
			p.run(1, encode(t, filter("old", constant(abi.FilterPass))))
			p.run(0, image)
			box := mailbox{p}
			box.put(0, []byte{0, 0, 0, 0}, []byte{9, 9, 9, 9, 9, 9, 9, 9})
			must.Be(t, box.do(datasheet.MailboxUpdate, 0, 0), datasheet.MailboxOK)
			p.write(datasheet.RegHoldLimit, 5)
			write(t, d, vfio.RegionBAR4, defaultSRAM-16, []byte("rest"))
			reset(t, d)
			p.is(datasheet.ProcessorRunning, 0, "keeps", 0, 1)
			should.Be(t, p.read(datasheet.RegHoldLimit), datasheet.HoldLimitReset, "HOLD_LIMIT")
			should.Same(t, read(t, d, vfio.RegionBAR4, uint64(p.slot(0)), len(image)), image, "the slot has changed")
			should.Same(t, read(t, d, vfio.RegionBAR4, defaultSRAM-16, 4), make([]byte, 4), "behind the slots there is still")
			box.put(0, []byte{0, 0, 0, 0}, make([]byte, 8))
			must.Be(t, box.do(datasheet.MailboxLookup, 0, 0), datasheet.MailboxOK)
			should.Same(t, box.get(8, 8), []byte{9, 9, 9, 9, 9, 9, 9, 9}, "the map")
			must.Be(t, box.do(datasheet.MailboxLookup, 0, 1), datasheet.MailboxOK)
			should.Same(t, box.get(8, 8), []byte{5, 0, 0, 0, 0, 0, 0, 0}, "the read-only map")

			p.write(datasheet.RegProcessorControl, datasheet.ProcessorHalt)
			reset(t, d)
			p.is(datasheet.ProcessorRunning, 0, "keeps", 0, 1)

			// What is no image any more is not started.
			write(t, d, vfio.RegionBAR4, uint64(p.slot(0))+0x20, []byte("other"))
			p.is(datasheet.ProcessorRunning, 0, "keeps", 0, 1)
			reset(t, d)
			p.is(datasheet.ProcessorFaulted, datasheet.ProcessorFaultDigest, "", noSlot, 1)
			reset(t, d)
			p.is(datasheet.ProcessorBuiltIn, 0, "", noSlot, 1)
			p.start(1)
			p.is(datasheet.ProcessorRunning, 0, "old", 1, 0)
			p.write(datasheet.RegProcessorControl, datasheet.ProcessorUseBuiltIn)
			reset(t, d)
			p.is(datasheet.ProcessorBuiltIn, 0, "", noSlot, 1)
		})
	}
}

// TestProgramDecides: a program that drops everything keeps a connection from
// coming, and one that passes counts its runs.
func TestProgramDecides(t *testing.T) {
	for name, threads := range map[string]bool{"inline": false, "threads": true} {
		t.Run(name, func(t *testing.T) {
			a, b := newHosts(t, threads, emulator.PairOptions{})
			p := nicProcessor{t, b.d}
			p.run(0, encode(t, filter("deaf", constant(abi.FilterDrop))))
			client, waiting := a.createVI(), b.listen("door")
			a.dial(client, b.mac(), "door")
			waittest.Until(t, "the program is asked", func() bool {
				a.poll()
				b.poll()
				return p.hook(abi.FilterRx, datasheet.HookRegRunsLow) >= 3
			})
			if _, ok := b.next(); ok {
				t.Fatal("a frame has passed")
			}
			if runs, dropped := p.hook(abi.FilterRx, datasheet.HookRegRunsLow), counter(t, b.d, datasheet.CounterFramesDropped); runs == 0 || runs > dropped {
				t.Errorf("%d runs, %d frames dropped", runs, dropped)
			}
			p.run(1, encode(t, filter("open", constant(abi.FilterPass))))
			b.wait(waiting) // the request is repeated
			should.Be(t, p.hook(abi.FilterRx, datasheet.HookRegRunsHigh), 0, "high half of the runs")
		})
	}
}

// TestHaltedProgramHolds: what comes meanwhile is there afterwards.
func TestHaltedProgramHolds(t *testing.T) {
	for name, end := range map[string]func(p nicProcessor){
		"run":      func(p nicProcessor) { p.start(0) },
		"another":  func(p nicProcessor) { p.run(1, encode(p.t, filter("next", constant(abi.FilterPass)))) },
		"refused":  func(p nicProcessor) { p.start(1) },
		"built-in": func(p nicProcessor) { p.write(datasheet.RegProcessorControl, datasheet.ProcessorUseBuiltIn) },
		"limit":    nil,
	} {
		t.Run(name, func(t *testing.T) {
			now := time.Second
			a, b := newHosts(t, false, emulator.PairOptions{Clock: func() time.Duration { return now }})
			p := nicProcessor{t, b.d}
			p.run(0, encode(t, filter("holds", constant(abi.FilterPass))))
			p.write(datasheet.RegHoldLimit, 3000)
			p.write(datasheet.RegProcessorControl, datasheet.ProcessorHalt)
			client, waiting := a.createVI(), b.listen("door")
			a.dial(client, b.mac(), "door")
			for range 200 {
				a.poll()
				b.poll()
			}
			if _, ok := b.next(); ok {
				t.Fatal("a frame has passed while the program was halted")
			}
			should.Be(t, counter(t, b.d, datasheet.CounterFramesDropped)+counter(t, b.d, datasheet.CounterFramesReceived), 0, "frames received or dropped")
			if end == nil {
				now += 4 * time.Millisecond
			} else {
				end(p)
			}
			b.wait(waiting)
			should.Be(t, counter(t, b.d, datasheet.CounterFramesReceived), 1, "frames received, want the one that was held")
		})
	}
}

// TestProcessorMisuse: writes that mean nothing are counted and change nothing.
func TestProcessorMisuse(t *testing.T) {
	p := newProcessor(t, newDevice(t, nil))
	p.run(0, encode(t, filter("good", constant(abi.FilterPass))))
	before := counter(t, p.d, datasheet.CounterBadRegisterAccesses)
	bad := []uint32{0, 3, 5, 6, 7, 8, 0x10, 0xffffffff, 0x80000001}
	for _, v := range bad {
		p.write(datasheet.RegProcessorControl, v)
	}
	should.Be(t, counter(t, p.d, datasheet.CounterBadRegisterAccesses)-before, uint32(len(bad)), "bad accesses, want %d", len(bad))
	p.is(datasheet.ProcessorRunning, 0, "good", 0, noSlot)
	for range 3 { // again and again
		p.write(datasheet.RegProcessorControl, datasheet.ProcessorHalt)
		p.is(datasheet.ProcessorHalted, 0, "", 0, noSlot)
	}
	for range 3 {
		p.write(datasheet.RegProcessorControl, datasheet.ProcessorUseBuiltIn)
		p.is(datasheet.ProcessorBuiltIn, 0, "", noSlot, 0)
	}
}
