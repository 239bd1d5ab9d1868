package emulator_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// blockOffsets walks the chain of blocks, as a driver does.
func blockOffsets(t testing.TB, d vfio.Device) map[uint32]uint64 {
	t.Helper()
	found := map[uint32]uint64{}
	for at, n := uint64(0), 0; ; n++ {
		kind, size := read32(t, d, at+datasheet.BlockRegType), read32(t, d, at+datasheet.BlockRegSize)
		should.Be(t, read32(t, d, at+datasheet.BlockRegVersion), datasheet.BlockVersion1, "block %#x at %#x has version", kind, at)
		if size < datasheet.BlockHeaderSize || at+uint64(size) > datasheet.MSIXTableOffset {
			t.Errorf("block %#x at %#x has size %#x", kind, at, size)
		}
		if _, ok := found[kind]; ok || n > 16 {
			t.Fatalf("block %#x twice", kind)
		}
		found[kind] = at
		next := uint64(read32(t, d, at+datasheet.BlockRegNext))
		if next == 0 {
			return found
		}
		if next < at+uint64(size) {
			t.Errorf("block at %#x overlaps the one at %#x", at, next)
		}
		at = next
	}
}

func TestBlocks(t *testing.T) {
	d := newDevice(t, nil)
	powerUp(t, d)
	found := blockOffsets(t, d)
	for kind, at := range map[uint32]uint64{
		datasheet.BlockIdentity: datasheet.IdentityOffset, datasheet.BlockHealth: datasheet.HealthOffset,
		datasheet.BlockAdmin: datasheet.AdminOffset, datasheet.BlockClock: datasheet.ClockOffset,
		datasheet.BlockChannels: datasheet.ChannelsOffset,
		datasheet.BlockCounters: datasheet.CounterOffset, datasheet.BlockInterrupt: datasheet.InterruptOffset,
	} {
		if got, ok := found[kind]; !ok || got != at {
			t.Errorf("block %#x is at %#x (%v), want %#x", kind, got, ok, at)
		}
	}
}

// TestResetValues reads every register of the data sheet, after power-on and
// after a reset.
func TestResetValues(t *testing.T) {
	d := newDevice(t, nil)
	powerUp(t, d)
	check := func(when string, resets uint32) {
		blocks := blockOffsets(t, d)
		for _, r := range datasheet.Registers() {
			want := r.Reset
			if r.Name == "RESET_COUNT" {
				want = resets
			}
			got := read32(t, d, blocks[r.Block]+uint64(r.Offset))
			if r.Fixed && got != want {
				t.Errorf("%s: %s is %#x, want %#x", when, r.Name, got, want)
			}
			if got == 0xffffffff {
				t.Errorf("%s: %s reads all ones", when, r.Name)
			}
		}
	}
	check("power-on", 0)
	should.Be(t, counter(t, d, datasheet.CounterBadRegisterAccesses), 0, "reading every register counted bad accesses")
	for reg := uint64(datasheet.RegSQBaseLow); reg <= datasheet.RegAdminVector; reg += 4 {
		write32(t, d, datasheet.AdminOffset+reg, 1)
	}
	read(t, d, vfio.RegionBAR0, 0, 1)
	resetByRegister(t, d)
	check("reset", 1)
}

func resetByRegister(t testing.TB, d vfio.Device) {
	t.Helper()
	write32(t, d, datasheet.HealthOffset+datasheet.RegControl, datasheet.ControlReset)
	for end := time.Now().Add(timeout); time.Now().Before(end); {
		if deviceStatus(t, d)&datasheet.DeviceReady != 0 {
			return
		}
	}
	t.Fatal("the reset does not end")
}

func deviceStatus(t testing.TB, d vfio.Device) uint32 {
	t.Helper()
	return read32(t, d, datasheet.HealthOffset+datasheet.RegStatus)
}

func TestIdentity(t *testing.T) {
	d := newDevice(t, func(o *emulator.Options) {
		o.MAC = datasheet.MAC{0x02, 0x11, 0x22, 0x33, 0x44, 0x55}
		o.SRAM = 256 << 10
	})
	powerUp(t, d)
	for reg, want := range map[uint64]uint32{
		datasheet.RegMagic: datasheet.Magic, datasheet.RegMaxEndpoints: 16, datasheet.RegMaxCQs: 8,
		datasheet.RegMaxRegions: 64, datasheet.RegMaxPtags: 8, datasheet.RegMaxQueueLog2: 8,
		datasheet.RegMaxCQLog2: 8, datasheet.RegMaxSegments: 252, datasheet.RegMaxTransfer: 1 << 20,
		datasheet.RegMTU: 8192 + 128 + 64, datasheet.RegSRAMSize: 256 << 10,
		datasheet.RegMACLow: 0x33221102, datasheet.RegMACHigh: 0x5544, datasheet.RegPageSizeLog2: 12,
	} {
		should.Be(t, read32(t, d, datasheet.IdentityOffset+reg), want, "register %#x", reg)
	}
	should.Be(t, d.MAC(), datasheet.MAC{0x02, 0x11, 0x22, 0x33, 0x44, 0x55}, "MAC")
	should.Be(t, read32(t, d, datasheet.InterruptOffset+datasheet.RegVectors), 16, "vectors")
}

// TestAccessTypes writes every register and looks at what it does with it.
func TestAccessTypes(t *testing.T) {
	d := newDevice(t, nil)
	powerUp(t, d)
	blocks := blockOffsets(t, d)
	// Registers that take some values only.
	values := map[string]uint32{"POLICY_TX": 2, "POLICY_RX": 2, "PROGRESS_LOW": 0x1240, "LOG_BASE_LOW": 0x1240, "LOG_LOG2": 12}
	for _, r := range datasheet.Registers() {
		at := blocks[r.Block] + uint64(r.Offset)
		if r.Name == "CONTROL" || r.Name == "ADMIN_CONTROL" || r.Name == "DMA_CONTROL" || r.Name == "LOG_CONSUMER" {
			continue // act when written
		}
		v, ok := values[r.Name]
		if !ok {
			v = 0x1234
		}
		before := counter(t, d, datasheet.CounterBadRegisterAccesses)
		was := read32(t, d, at)
		write32(t, d, at, v)
		bad := counter(t, d, datasheet.CounterBadRegisterAccesses) - before
		switch r.Access {
		case datasheet.RegisterRO:
			now := read32(t, d, at)
			if r.Fixed && r.Name != "BAD_REGISTER_ACCESSES_LOW" && now != was || bad != 1 {
				t.Errorf("%s is read only: was %#x, is %#x, %d bad accesses", r.Name, was, now, bad)
			}
		case datasheet.RegisterRW, datasheet.RegisterRWD:
			if now := read32(t, d, at); now != v || bad != 0 {
				t.Errorf("%s is %#x after a write, %d bad accesses", r.Name, now, bad)
			}
		}
	}
}

func TestRingRegistersLockedWhileEnabled(t *testing.T) {
	d := newDevice(t, nil)
	h := newAdminHost(t, d)
	before := counter(t, d, datasheet.CounterBadRegisterAccesses)
	for _, reg := range []uint32{datasheet.RegSQBaseLow, datasheet.RegSQBaseHigh, datasheet.RegACQBaseLow,
		datasheet.RegACQBaseHigh, datasheet.RegSQLog2, datasheet.RegACQLog2, datasheet.RegAdminVector} {
		was := h.read(reg)
		h.write(reg, ^was)
		should.Be(t, h.read(reg), was, "register %#x changed while the queue runs", reg)
	}
	should.Be(t, counter(t, d, datasheet.CounterBadRegisterAccesses)-before, 7, "bad accesses counted")
	h.nop()
}

func TestBadAccesses(t *testing.T) {
	d := newDevice(t, nil)
	powerUp(t, d)
	tests := []struct {
		name   string
		offset uint64
		size   int
	}{
		{"byte", 0, 1},
		{"half", 0, 2},
		{"64 bits of registers", 0, 8},
		{"misaligned word", 2, 4},
		{"hole in a block", datasheet.IdentityOffset + 0x5c, 4},
		{"hole between blocks", 0x80, 4},
		{"past the counters", uint64(datasheet.CounterOffset + datasheet.CountersSize), 4},
		{"byte of the MSI-X table", datasheet.MSIXTableOffset, 1},
		{"misaligned 64 bits of the MSI-X table", datasheet.MSIXTableOffset + 4, 8},
		{"past the MSI-X table", datasheet.MSIXTableOffset + 16*16, 4},
		{"past the pending bits", datasheet.MSIXPBAOffset + 8, 4},
		{"end of the BAR", datasheet.BAR0Size - 4, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := counter(t, d, datasheet.CounterBadRegisterAccesses)
			should.Same(t, read(t, d, vfio.RegionBAR0, tt.offset, tt.size), bytes.Repeat([]byte{0xff}, tt.size))
			write(t, d, vfio.RegionBAR0, tt.offset, make([]byte, tt.size))
			should.Be(t, counter(t, d, datasheet.CounterBadRegisterAccesses)-before, 2, "bad accesses counted")
		})
	}
	// A long access is cut into words.
	p := read(t, d, vfio.RegionBAR0, 0, 0x14)
	if binary.LittleEndian.Uint32(p) != datasheet.BlockIdentity || binary.LittleEndian.Uint32(p[0x10:]) != datasheet.Magic {
		t.Errorf("the identity block starts with % x", p)
	}
	if p = read(t, d, vfio.RegionBAR0, 0xe, 7); !bytes.Equal(p, []byte{0xff, 0xff, 'T', 'R', 'P', 'Z', 0xff}) {
		t.Errorf("seven bytes around the magic are % x", p)
	}
	write(t, d, vfio.RegionBAR0, datasheet.AdminOffset+datasheet.RegSQBaseLow, bytes.Repeat([]byte{0x40}, 12))
	should.Be(t, read32(t, d, datasheet.AdminOffset+datasheet.RegACQBaseLow), 0x40404040, "the third of three words")
}

func TestClock(t *testing.T) {
	now := 0x1_2345_6789 * 100 * time.Nanosecond
	d := newDevice(t, func(o *emulator.Options) { o.Clock = func() time.Duration { return now } })
	powerUp(t, d)
	low := read32(t, d, datasheet.ClockOffset+datasheet.RegClockLow)
	now += 500 * time.Second // beyond the next carry
	high := read32(t, d, datasheet.ClockOffset+datasheet.RegClockHigh)
	if low != 0x23456789 || high != 1 {
		t.Errorf("clock %#x, %#x: the halves do not agree", high, low)
	}
	read32(t, d, datasheet.ClockOffset+datasheet.RegClockLow)
	should.Be(t, read32(t, d, datasheet.ClockOffset+datasheet.RegClockHigh), 2, "the high half after a new look")
}

func TestHeartbeat(t *testing.T) {
	d := newDevice(t, nil)
	h := newAdminHost(t, d)
	beat := read32(t, d, datasheet.HealthOffset+datasheet.RegHeartbeat)
	should.Be(t, read32(t, d, datasheet.HealthOffset+datasheet.RegHeartbeat), beat, "the heart beats though nothing is done")
	h.nop()
	if again := read32(t, d, datasheet.HealthOffset+datasheet.RegHeartbeat); again == beat {
		t.Error("the heart does not beat")
	}
}
