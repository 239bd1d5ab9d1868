package emulator_test

import (
	"bytes"
	"encoding/binary"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/vfio"
)

// blockOffsets walks the chain of blocks, as a driver does.
func blockOffsets(t testing.TB, d vfio.Device) map[uint32]uint64 {
	t.Helper()
	found := map[uint32]uint64{}
	for at, n := uint64(0), 0; ; n++ {
		kind, size := read32(t, d, at+descriptors.BlockRegType), read32(t, d, at+descriptors.BlockRegSize)
		if v := read32(t, d, at+descriptors.BlockRegVersion); v != descriptors.BlockVersion1 {
			t.Errorf("block %#x at %#x has version %#x", kind, at, v)
		}
		if size < descriptors.BlockHeaderSize || at+uint64(size) > descriptors.MSIXTableOffset {
			t.Errorf("block %#x at %#x has size %#x", kind, at, size)
		}
		if _, ok := found[kind]; ok || n > 16 {
			t.Fatalf("block %#x twice", kind)
		}
		found[kind] = at
		next := uint64(read32(t, d, at+descriptors.BlockRegNext))
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
		descriptors.BlockIdentity: descriptors.IdentityOffset, descriptors.BlockHealth: descriptors.HealthOffset,
		descriptors.BlockAdmin: descriptors.AdminOffset, descriptors.BlockClock: descriptors.ClockOffset,
		descriptors.BlockChannels: descriptors.ChannelsOffset,
		descriptors.BlockCounters: descriptors.CounterOffset, descriptors.BlockInterrupt: descriptors.InterruptOffset,
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
		for _, r := range descriptors.Registers() {
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
	if n := counter(t, d, descriptors.CounterBadRegisterAccesses); n != 0 {
		t.Errorf("reading every register counted %d bad accesses", n)
	}
	for reg := uint64(descriptors.RegSQBaseLow); reg <= descriptors.RegAdminVector; reg += 4 {
		write32(t, d, descriptors.AdminOffset+reg, 1)
	}
	read(t, d, vfio.RegionBAR0, 0, 1)
	resetByRegister(t, d)
	check("reset", 1)
}

func resetByRegister(t testing.TB, d vfio.Device) {
	t.Helper()
	write32(t, d, descriptors.HealthOffset+descriptors.RegControl, descriptors.ControlReset)
	for end := time.Now().Add(patience); time.Now().Before(end); {
		if deviceStatus(t, d)&descriptors.DeviceReady != 0 {
			return
		}
	}
	t.Fatal("the reset does not end")
}

func deviceStatus(t testing.TB, d vfio.Device) uint32 {
	t.Helper()
	return read32(t, d, descriptors.HealthOffset+descriptors.RegStatus)
}

func TestIdentity(t *testing.T) {
	d := newDevice(t, func(o *emulator.Options) {
		o.MAC = descriptors.MAC{0x02, 0x11, 0x22, 0x33, 0x44, 0x55}
		o.SRAM = 256 << 10
	})
	powerUp(t, d)
	for reg, want := range map[uint64]uint32{
		descriptors.RegMagic: descriptors.Magic, descriptors.RegMaxEndpoints: 16, descriptors.RegMaxCQs: 8,
		descriptors.RegMaxRegions: 64, descriptors.RegMaxPtags: 8, descriptors.RegMaxQueueLog2: 8,
		descriptors.RegMaxCQLog2: 8, descriptors.RegMaxSegments: 252, descriptors.RegMaxTransfer: 1 << 20,
		descriptors.RegMTU: 8192 + 64, descriptors.RegSRAMSize: 256 << 10,
		descriptors.RegMACLow: 0x33221102, descriptors.RegMACHigh: 0x5544, descriptors.RegPageSizeLog2: 12,
	} {
		if got := read32(t, d, descriptors.IdentityOffset+reg); got != want {
			t.Errorf("register %#x is %#x, want %#x", reg, got, want)
		}
	}
	if d.MAC() != (descriptors.MAC{0x02, 0x11, 0x22, 0x33, 0x44, 0x55}) {
		t.Errorf("MAC %v", d.MAC())
	}
	if n := read32(t, d, descriptors.InterruptOffset+descriptors.RegVectors); n != 16 {
		t.Errorf("%d vectors", n)
	}
}

// TestAccessTypes writes every register and looks at what it does with it.
func TestAccessTypes(t *testing.T) {
	d := newDevice(t, nil)
	powerUp(t, d)
	blocks := blockOffsets(t, d)
	// Registers that take some values only.
	values := map[string]uint32{"POLICY_TX": 2, "POLICY_RX": 2, "PROGRESS_LOW": 0x1240, "LOG_BASE_LOW": 0x1240, "LOG_LOG2": 12}
	for _, r := range descriptors.Registers() {
		at := blocks[r.Block] + uint64(r.Offset)
		if r.Name == "CONTROL" || r.Name == "ADMIN_CONTROL" || r.Name == "DMA_CONTROL" || r.Name == "LOG_CONSUMER" {
			continue // act when written
		}
		v, ok := values[r.Name]
		if !ok {
			v = 0x1234
		}
		before := counter(t, d, descriptors.CounterBadRegisterAccesses)
		was := read32(t, d, at)
		write32(t, d, at, v)
		bad := counter(t, d, descriptors.CounterBadRegisterAccesses) - before
		switch r.Access {
		case descriptors.RegisterRO:
			now := read32(t, d, at)
			if r.Fixed && r.Name != "BAD_REGISTER_ACCESSES_LOW" && now != was || bad != 1 {
				t.Errorf("%s is read only: was %#x, is %#x, %d bad accesses", r.Name, was, now, bad)
			}
		case descriptors.RegisterRW, descriptors.RegisterRWD:
			if now := read32(t, d, at); now != v || bad != 0 {
				t.Errorf("%s is %#x after a write, %d bad accesses", r.Name, now, bad)
			}
		}
	}
}

func TestRingRegistersLockedWhileEnabled(t *testing.T) {
	d := newDevice(t, nil)
	h := newAdminHost(t, d)
	before := counter(t, d, descriptors.CounterBadRegisterAccesses)
	for _, reg := range []uint32{descriptors.RegSQBaseLow, descriptors.RegSQBaseHigh, descriptors.RegACQBaseLow,
		descriptors.RegACQBaseHigh, descriptors.RegSQLog2, descriptors.RegACQLog2, descriptors.RegAdminVector} {
		was := h.read(reg)
		h.write(reg, ^was)
		if h.read(reg) != was {
			t.Errorf("register %#x changed while the queue runs", reg)
		}
	}
	if n := counter(t, d, descriptors.CounterBadRegisterAccesses) - before; n != 7 {
		t.Errorf("%d bad accesses counted, want 7", n)
	}
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
		{"hole in a block", descriptors.IdentityOffset + 0x5c, 4},
		{"hole between blocks", 0x80, 4},
		{"past the counters", uint64(descriptors.CounterOffset + descriptors.CountersSize), 4},
		{"byte of the MSI-X table", descriptors.MSIXTableOffset, 1},
		{"misaligned 64 bits of the MSI-X table", descriptors.MSIXTableOffset + 4, 8},
		{"past the MSI-X table", descriptors.MSIXTableOffset + 16*16, 4},
		{"past the pending bits", descriptors.MSIXPBAOffset + 8, 4},
		{"end of the BAR", descriptors.BAR0Size - 4, 4},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			before := counter(t, d, descriptors.CounterBadRegisterAccesses)
			if got := read(t, d, vfio.RegionBAR0, tt.offset, tt.size); !bytes.Equal(got, bytes.Repeat([]byte{0xff}, tt.size)) {
				t.Errorf("read % x", got)
			}
			write(t, d, vfio.RegionBAR0, tt.offset, make([]byte, tt.size))
			if n := counter(t, d, descriptors.CounterBadRegisterAccesses) - before; n != 2 {
				t.Errorf("%d bad accesses counted, want 2", n)
			}
		})
	}
	// A long access is cut into words.
	p := read(t, d, vfio.RegionBAR0, 0, 0x14)
	if binary.LittleEndian.Uint32(p) != descriptors.BlockIdentity || binary.LittleEndian.Uint32(p[0x10:]) != descriptors.Magic {
		t.Errorf("the identity block starts with % x", p)
	}
	if p = read(t, d, vfio.RegionBAR0, 0xe, 7); !bytes.Equal(p, []byte{0xff, 0xff, 'T', 'R', 'P', 'Z', 0xff}) {
		t.Errorf("seven bytes around the magic are % x", p)
	}
	write(t, d, vfio.RegionBAR0, descriptors.AdminOffset+descriptors.RegSQBaseLow, bytes.Repeat([]byte{0x40}, 12))
	if v := read32(t, d, descriptors.AdminOffset+descriptors.RegACQBaseLow); v != 0x40404040 {
		t.Errorf("the third of three words is %#x", v)
	}
}

func TestClock(t *testing.T) {
	now := 0x1_2345_6789 * 100 * time.Nanosecond
	d := newDevice(t, func(o *emulator.Options) { o.Clock = func() time.Duration { return now } })
	powerUp(t, d)
	low := read32(t, d, descriptors.ClockOffset+descriptors.RegClockLow)
	now += 500 * time.Second // beyond the next carry
	high := read32(t, d, descriptors.ClockOffset+descriptors.RegClockHigh)
	if low != 0x23456789 || high != 1 {
		t.Errorf("clock %#x, %#x: the halves do not agree", high, low)
	}
	read32(t, d, descriptors.ClockOffset+descriptors.RegClockLow)
	if high = read32(t, d, descriptors.ClockOffset+descriptors.RegClockHigh); high != 2 {
		t.Errorf("the high half is %#x after a new look", high)
	}
}

func TestHeartbeat(t *testing.T) {
	d := newDevice(t, nil)
	h := newAdminHost(t, d)
	beat := read32(t, d, descriptors.HealthOffset+descriptors.RegHeartbeat)
	if again := read32(t, d, descriptors.HealthOffset+descriptors.RegHeartbeat); again != beat {
		t.Error("the heart beats though nothing is done")
	}
	h.nop()
	if again := read32(t, d, descriptors.HealthOffset+descriptors.RegHeartbeat); again == beat {
		t.Error("the heart does not beat")
	}
}
