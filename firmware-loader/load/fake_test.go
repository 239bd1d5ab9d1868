package load_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

const (
	fakeDevice = 0x12347250
	fakeBase   = 0x1000
	fakeSize   = 64 << 10
	fakeBox    = fakeBase + 2*fakeSize
)

// fakeNIC is a NIC processor reduced to what a loader sees of it. before, if not
// nil, is asked ahead of each access and may do what happens to NICs.
type fakeNIC struct {
	sram             []byte
	state            datasheet.ProcessorState
	fault            datasheet.ProcessorFault
	entry            uint32
	active, previous uint32
	image            *flat.Image
	result           datasheet.MailboxResult
	values           map[string][]byte

	before   func(n int) error
	accesses int
	// lies replaces what registers read.
	lies map[uint32]uint32
	// mute: RUN has no effect.
	mute bool
	// wrong: RUN starts the image but reports another version.
	wrong bool
	// flip damages what is read back from SRAM.
	flip bool
}

func newFakeNIC() *fakeNIC {
	return &fakeNIC{sram: make([]byte, fakeBox+4096), active: datasheet.NoSlot, previous: datasheet.NoSlot, values: map[string][]byte{}}
}

var errBus = errors.New("the bus says no")

func (f *fakeNIC) access() error {
	n := f.accesses
	f.accesses++
	if f.before != nil {
		return f.before(n)
	}
	return nil
}

// powerLoss is what the NIC is like when power has come back.
func (f *fakeNIC) powerLoss() {
	for i := range f.sram {
		f.sram[i] = byte(i * 7)
	}
	f.state, f.fault, f.entry, f.image = datasheet.ProcessorBuiltIn, 0, 0, nil
	f.active, f.previous = datasheet.NoSlot, datasheet.NoSlot
}

func (f *fakeNIC) ReadSRAM(offset uint64, p []byte) error {
	if err := f.access(); err != nil {
		return err
	}
	copy(p, f.sram[offset:])
	if f.flip {
		p[len(p)/2] ^= 0x10
	}
	return nil
}

func (f *fakeNIC) WriteSRAM(offset uint64, p []byte) error {
	if err := f.access(); err != nil {
		return err
	}
	if f.image != nil && offset < fakeBox {
		start := uint64(fakeBase + f.active*fakeSize)
		if offset < start+fakeSize && offset+uint64(len(p)) > start && f.state == datasheet.ProcessorRunning {
			return fmt.Errorf("write to %#x, inside of the image that runs", offset)
		}
	}
	copy(f.sram[offset:], p)
	return nil
}

func (f *fakeNIC) ReadProcessor(register uint32) (uint32, error) {
	if err := f.access(); err != nil {
		if errors.Is(err, errUnplugged) {
			return 0xffffffff, nil
		}
		return 0, err
	}
	if v, ok := f.lies[register]; ok {
		return v, nil
	}
	var name [32]byte
	var version [16]byte
	var build [20]byte
	var digest [32]byte
	ready := uint32(0)
	if f.image != nil && f.state == datasheet.ProcessorRunning {
		copy(name[:], f.image.Name)
		copy(version[:], f.image.Version)
		build, digest, ready = f.image.BuildID, f.image.Digest, datasheet.ProcessorReady
		if f.wrong {
			version[0] ^= 1
		}
	}
	for _, bytes := range []struct {
		at uint32
		b  []byte
	}{
		{datasheet.RegProcessorName, name[:]}, {datasheet.RegProcessorVersion, version[:]},
		{datasheet.RegProcessorBuildID, build[:]}, {datasheet.RegProcessorDigest, digest[:]},
	} {
		if register >= bytes.at && register < bytes.at+uint32(len(bytes.b)) {
			return binary.LittleEndian.Uint32(bytes.b[register-bytes.at:]), nil
		}
	}
	return map[uint32]uint32{
		datasheet.RegProcessorStatus: uint32(f.state), datasheet.RegProcessorFault: uint32(f.fault),
		datasheet.RegProcessorEntry: f.entry, datasheet.RegProcessorReady: ready,
		datasheet.RegProcessorABI: abi.Version, datasheet.RegProcessorDevice: fakeDevice,
		datasheet.RegSlotCount: 2, datasheet.RegSlotBase: fakeBase, datasheet.RegSlotSize: fakeSize,
		datasheet.RegActiveSlot: f.active, datasheet.RegPreviousSlot: f.previous,
		datasheet.RegMailboxOffset: fakeBox, datasheet.RegMailboxSize: 4096,
		datasheet.RegMailboxResult: uint32(f.result),
	}[register], nil
}

func (f *fakeNIC) WriteProcessor(register, v uint32) error {
	if err := f.access(); err != nil {
		if errors.Is(err, errUnplugged) {
			return nil // writes to nobody are lost
		}
		return err
	}
	switch {
	case register == datasheet.RegProcessorEntry:
		f.entry = v
	case register == datasheet.RegMailboxCommand:
		f.mailbox(v)
	case register == datasheet.RegProcessorControl && v == datasheet.ProcessorHalt:
		if f.state == datasheet.ProcessorRunning {
			f.state = datasheet.ProcessorHalted
		}
	case register == datasheet.RegProcessorControl && v == datasheet.ProcessorUseBuiltIn:
		f.state, f.image, f.fault = datasheet.ProcessorBuiltIn, nil, 0
		f.active = datasheet.NoSlot
	case register == datasheet.RegProcessorControl && v == datasheet.ProcessorRun:
		f.run()
	}
	return nil
}

func (f *fakeNIC) run() {
	if f.mute {
		f.state = datasheet.ProcessorStarting
		return
	}
	img, err := flat.Decode(f.sram[f.entry:])
	if err != nil {
		f.state, f.fault, f.image = datasheet.ProcessorFaulted, datasheet.ProcessorFaultDigest, nil
		return
	}
	if slot := (f.entry - fakeBase) / fakeSize; slot != f.active {
		f.previous, f.active = f.active, slot
	}
	f.state, f.fault, f.image = datasheet.ProcessorRunning, 0, img
}

// mailbox is one map with keys of 4 and values of 8 bytes.
func (f *fakeNIC) mailbox(v uint32) {
	op, _, index := datasheet.SplitMailbox(v)
	key := string(f.sram[fakeBox : fakeBox+4])
	value := f.sram[fakeBox+8 : fakeBox+16]
	old, there := f.values[key]
	f.result = datasheet.MailboxOK
	switch {
	case f.image == nil:
		f.result = datasheet.MailboxNoProgram
	case index != 0:
		f.result = datasheet.MailboxBad
	case op == datasheet.MailboxUpdate:
		f.values[key] = bytes.Clone(value)
	case !there:
		f.result = datasheet.MailboxNoEntry
	case op == datasheet.MailboxLookup:
		copy(value, old)
	case op == datasheet.MailboxDelete:
		delete(f.values, key)
	}
}

var errUnplugged = errors.New("unplugged")

// flatImage is an image whose only program answers with n.
func flatImage(t testing.TB, name, version string, n int32) []byte {
	t.Helper()
	img := flat.Image{ABI: abi.Version, Device: fakeDevice, Name: name, Version: version}
	img.Programs[abi.PulseTx] = asm.Instructions{asm.Mov.Imm(asm.R0, n), asm.Return()}
	img.Maps = []abi.Map{{Name: "box", Type: abi.MapHash, Key: 4, Value: 8, Entries: 16}}
	return must.Get(flat.Encode(&img))(t)
}

func image(t testing.TB, name, version string, n int32) load.Image {
	t.Helper()
	return must.Get(load.Flat(flatImage(t, name, version, n)))(t)
}

func mustLoad(t testing.TB, nic *fakeNIC, img load.Image) {
	t.Helper()
	must.Get(load.Load(context.Background(), nic, img, load.Options{}))(t)
}
