package driver_test

import (
	"bytes"
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// newEagerFake is a device that says it has eager regions.
func newEagerFake(t *testing.T) *fakeDevice {
	d := newFake(t)
	d.mapSRAM = true
	d.set(datasheet.IdentityOffset+datasheet.RegFeaturesLow, uint32(datasheet.FeatureEager))
	return d
}

// TestEagerBadDevice: a device that says that blocks are where it has no memory, or of
// another size than was asked for, has failed, and nothing is written there.
func TestEagerBadDevice(t *testing.T) {
	const wide = datasheet.EagerWideLog2
	for name, where := range map[string]datasheet.RegionReply{
		"beyond the memory":        {Handle: 1, Blocks: fakeSRAM, Status: 64, BlockLog2: datasheet.EagerLog2},
		"half beyond it":           {Handle: 1, Blocks: fakeSRAM - 64, Status: 64, BlockLog2: datasheet.EagerLog2},
		"far beyond it":            {Handle: 1, Blocks: 0xffffffc0, Status: 64, BlockLog2: datasheet.EagerLog2},
		"status beyond the memory": {Handle: 1, Blocks: 64, Status: fakeSRAM, BlockLog2: datasheet.EagerLog2},
		"not at a block":           {Handle: 1, Blocks: 32, Status: 64, BlockLog2: datasheet.EagerLog2},
		"status not at a word":     {Handle: 1, Blocks: 64, Status: 65, BlockLog2: datasheet.EagerLog2},
		"other blocks":             {Handle: 1, Blocks: 128, Status: 64, BlockLog2: wide},
		"blocks of all ones":       {Handle: 1, Blocks: 64, Status: 64, BlockLog2: 0xff},
	} {
		t.Run(name, func(t *testing.T) {
			d := newEagerFake(t)
			n := openFake(t, d)
			p := mustPtag(t, n)
			d.with(func() {
				d.tamper = func(e *datasheet.AdminEntry) { *datasheet.Reply[datasheet.RegionReply](e) = where }
			})
			_, err := n.AllocMemory(contextFor(t), 1000, driver.MemoryAttributes{Ptag: p, Eager: written})
			d.with(func() { d.tamper = nil })
			if !errors.Is(err, driver.ErrProtocol) {
				t.Errorf("got %v", err)
			}
			if !bytes.Equal(d.sram.Bytes(), make([]byte, fakeSRAM)) {
				t.Error("something was written to the device's memory")
			}
		})
	}
}

// TestEagerTokensBadDevice: the same of the blocks of a VI's tokens.
func TestEagerTokensBadDevice(t *testing.T) {
	for name, where := range map[string]datasheet.EndpointCreated{
		"send beyond the memory":      {Endpoint: 1, Send: fakeSRAM, Recv: 64},
		"far beyond it":               {Endpoint: 1, Send: 0xffffffc0, Recv: 64},
		"status beyond the memory":    {Endpoint: 1, Send: fakeSRAM - 256, Recv: 64},
		"not at a block":              {Endpoint: 1, Send: 32, Recv: 256},
		"receives beyond the memory":  {Endpoint: 1, Send: 64, Recv: fakeSRAM},
		"receives on top of the ends": {Endpoint: 1, Send: 64, Recv: 128},
	} {
		t.Run(name, func(t *testing.T) {
			d := newEagerFake(t)
			n := openFake(t, d)
			p := mustPtag(t, n)
			d.with(func() {
				d.tamper = func(e *datasheet.AdminEntry) { *datasheet.Reply[datasheet.EndpointCreated](e) = where }
			})
			_, err := n.CreateVI(contextFor(t), driver.VIAttributes{Reliability: datasheet.ReliableDelivery, MaxTransfer: 4096, Ptag: p,
				SendDepth: 16, RecvDepth: 16, EagerTokens: true}, nil, nil)
			d.with(func() { d.tamper = nil })
			if !errors.Is(err, driver.ErrProtocol) {
				t.Errorf("got %v", err)
			}
			if !bytes.Equal(d.sram.Bytes(), make([]byte, fakeSRAM)) {
				t.Error("something was written to the device's memory")
			}
		})
	}
}

// TestEagerNotThere: without the feature, or where the memory cannot be mapped, memory is
// ordinary or is refused.
func TestEagerNotThere(t *testing.T) {
	for name, change := range map[string]func(d *fakeDevice){
		"no feature": func(d *fakeDevice) { d.set(datasheet.IdentityOffset+datasheet.RegFeaturesLow, 0) },
		"trapped":    func(d *fakeDevice) { d.mapSRAM = false },
	} {
		t.Run(name, func(t *testing.T) {
			d := newEagerFake(t)
			change(d)
			n := openFake(t, d)
			a := driver.MemoryAttributes{Ptag: mustPtag(t, n), Eager: written}
			for _, room := range []driver.NoRoom{driver.NoRoomFails, driver.NoRoomWaits} {
				a.Eager.NoRoom = room
				if _, err := n.AllocMemory(contextFor(t), 1000, a); !errors.Is(err, descriptors.ErrNotSupported) {
					t.Errorf("%d: %v", room, err)
				}
			}
			a.Eager.NoRoom = driver.NoRoomOrdinary
			m, err := n.AllocMemory(contextFor(t), 1000, a)
			if err != nil || m.IsEager() || n.EagerStats().FellBack != 1 {
				t.Errorf("%v, %+v", err, n.EagerStats())
			}
		})
	}
}
