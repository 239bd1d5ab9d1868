package machine_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/checker"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/machine"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

const testSlot = 64 << 10

// inSlot is a slot with an image at its start and rubbish behind it.
const testDevice = 0x12347250

func inSlot(t testing.TB, img *flat.Image) []byte {
	t.Helper()
	image := must.Get(flat.Encode(img))(t)
	slot := bytes.Repeat([]byte{0xee}, testSlot)
	copy(slot, image)
	return slot
}

func countingImage(t testing.TB) *flat.Image {
	img := &flat.Image{ABI: abi.Version, Device: testDevice, Name: "counting", Version: "7", Maps: []abi.Map{
		countMap, {Name: ".rodata", Type: abi.MapArray, Key: 4, Value: 8, Entries: 2, Contents: []byte("contents"), Flags: abi.MapReadOnly},
	}}
	img.Programs[abi.FilterRx] = assemble(t, countProgram())
	img.Programs[abi.PulseRx] = assemble(t, amp())
	return img
}

// TestBoot: programs and maps are ready, and the image in the slot is as it was.
func TestBoot(t *testing.T) {
	slot := inSlot(t, countingImage(t))
	before := bytes.Clone(slot)
	img, err := machine.Boot(slot, testDevice, func() uint64 { return 0 })
	must.Hold(t, err == nil, "%v", err)
	should.Hold(t, img.Name == "counting" && img.Version == "7" && len(img.Maps) == 2, "%+v", img)
	for h, p := range img.Programs {
		used := abi.Hook(h) == abi.FilterRx || abi.Hook(h) == abi.PulseRx
		if (p != nil) != used || (img.WorstCase[h] > 0) != used {
			t.Errorf("%v: program %v, worst case %d", abi.Hook(h), p != nil, img.WorstCase[h])
		}
	}
	should.Be(t, string(must.Get(img.Maps[1].Lookup(make([]byte, 4)))(t)), "contents")
	frame := make([]byte, 64)
	for range 3 {
		must.Be(t, must.Get(img.Programs[abi.FilterRx].Filter(frame, 0))(t).Action, abi.FilterPass)
	}
	should.Be(t, must.Get(img.Maps[0].Lookup(make([]byte, 12)))(t)[0], 3)
	size := int(slot[8]) | int(slot[9])<<8
	should.Same(t, slot[:size], before[:size], "the image has changed")
	// Who writes into the slot now changes no program.
	clear(slot[:size])
	should.Be(t, must.Get(img.Programs[abi.FilterRx].Filter(frame, 0))(t).Action, abi.FilterPass)
}

// TestBootRefuses: errors say what is wrong, and nothing has been written.
func TestBootRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*flat.Image)
		spoil  func([]byte) []byte
		fault  datasheet.ProcessorFault
		reason error
		hook   abi.Hook
		at     uint32
	}{
		"short slot": {spoil: func(b []byte) []byte { return b[:100] }, fault: datasheet.ProcessorFaultImage, reason: flat.ErrMalformed},
		"no slot":    {spoil: func([]byte) []byte { return nil }, fault: datasheet.ProcessorFaultImage, reason: flat.ErrMalformed},
		"flipped":    {spoil: func(b []byte) []byte { b[300] ^= 4; return b }, fault: datasheet.ProcessorFaultDigest, reason: flat.ErrDigest},
		"newer ABI":  {spoil: func(b []byte) []byte { b[4]++; return b }, fault: datasheet.ProcessorFaultABI, reason: flat.ErrABI},
		"device":     {change: func(i *flat.Image) { i.Device++ }, fault: datasheet.ProcessorFaultDevice, reason: flat.ErrDevice},
		"SRAM":       {change: func(i *flat.Image) { i.Maps[0].Entries = 4096 }, fault: datasheet.ProcessorFaultSRAM, reason: flat.ErrSRAM},
		"uninitialised": {change: func(i *flat.Image) {
			i.Programs[abi.FilterTx] = asm.Instructions{asm.LoadImm(asm.R3, 0, asm.DWord), asm.Mov.Reg(asm.R0, asm.R7), asm.Return()}
		}, fault: datasheet.ProcessorFaultRefused, reason: checker.ErrUninitialized, hook: abi.FilterTx, at: 2},
	} {
		img := countingImage(t)
		if c.change != nil {
			c.change(img)
		}
		slot := inSlot(t, img)
		if c.spoil != nil {
			slot = c.spoil(slot)
		}
		before := bytes.Clone(slot)
		_, err := machine.Boot(slot, testDevice, func() uint64 { return 0 })
		var e *machine.BootError
		should.Hold(t, errors.As(err, &e) && e.Fault == c.fault && e.Hook == c.hook && e.Instruction == c.at && errors.Is(err, c.reason),
			"%s: %v", name, err)
		should.Same(t, slot, before, "%s: the slot has changed", name)
	}
}

func BenchmarkBoot(b *testing.B) {
	slot := inSlot(b, countingImage(b))
	b.ReportAllocs()
	for b.Loop() {
		_, err := machine.Boot(slot, testDevice, func() uint64 { return 0 })
		must.Hold(b, err == nil, "%v", err)
	}
}
