package pciconfig_test

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator/internal/pciconfig"
)

var function = pciconfig.Function{
	Vendor: 0x1234, Device: 0x7250, SubsystemVendor: 0x1234, Subsystem: 0x7250, Revision: 1, Class: 0x028000,
	BARs: []pciconfig.BAR{
		{Index: 0, Size: 0x4000, Address: 0xe0000000},
		{Index: 2, Size: 1 << 33, Address: 1 << 40},
		{Index: 4, Size: 0x40000, Address: 0x3_8000_0000, Prefetchable: true},
	},
	Vectors: 64, TableOffset: 0x2000, PBAOffset: 0x3000, SerialNumber: [8]byte{1, 2, 3, 4, 5, 6, 7, 8},
}

func newSpace(t *testing.T) *pciconfig.Space {
	t.Helper()
	s := must.Get(pciconfig.New(function))(t)
	return s
}

func read32(s *pciconfig.Space, at uint64) uint32 {
	var p [4]byte
	s.Read(at, p[:])
	return binary.LittleEndian.Uint32(p[:])
}

func write32(s *pciconfig.Space, at uint64, v uint32) bool {
	return s.Write(at, binary.LittleEndian.AppendUint32(nil, v))
}

func TestNewRefuses(t *testing.T) {
	tests := map[string]func(f *pciconfig.Function){
		"no vectors":         func(f *pciconfig.Function) { f.Vectors = 0 },
		"too many vectors":   func(f *pciconfig.Function) { f.Vectors = 2049 },
		"table misaligned":   func(f *pciconfig.Function) { f.TableOffset = 4 },
		"PBA misaligned":     func(f *pciconfig.Function) { f.PBAOffset = 12 },
		"table BAR":          func(f *pciconfig.Function) { f.MSIXBAR = 8 },
		"odd BAR":            func(f *pciconfig.Function) { f.BARs = []pciconfig.BAR{{Index: 1, Size: 4096}} },
		"BAR beyond the end": func(f *pciconfig.Function) { f.BARs = []pciconfig.BAR{{Index: 6, Size: 4096}} },
		"BAR too small":      func(f *pciconfig.Function) { f.BARs = []pciconfig.BAR{{Size: 8}} },
		"BAR not a power":    func(f *pciconfig.Function) { f.BARs = []pciconfig.BAR{{Size: 48}} },
		"BAR misplaced":      func(f *pciconfig.Function) { f.BARs = []pciconfig.BAR{{Size: 4096, Address: 16}} },
	}
	for name, change := range tests {
		f := function
		change(&f)
		should.Refuse(pciconfig.New(f))(t, pciconfig.ErrFunction, "%s: error", name)
	}
}

func TestBARSizing(t *testing.T) {
	s := newSpace(t)
	for _, b := range function.BARs {
		at := uint64(0x10 + 4*b.Index)
		low, high := read32(s, at), read32(s, at+4)
		should.Be(t, uint64(high)<<32|uint64(low&^0xf), b.Address, "BAR %d", b.Index)
		if want := uint32(4); b.Prefetchable && low&0xf != want|8 || !b.Prefetchable && low&0xf != want {
			t.Errorf("BAR %d has flags %#x", b.Index, low&0xf)
		}
		write32(s, at, 0xffffffff)
		write32(s, at+4, 0xffffffff)
		mask := uint64(read32(s, at+4))<<32 | uint64(read32(s, at)&^0xf)
		should.Be(t, b.Size, -mask, "BAR %d has size", b.Index)
		should.Be(t, read32(s, at)&0xf, low&0xf, "BAR %d: sizing changed the flags", b.Index)
	}
}

// TestReadOnly writes every bit both ways: only those that PCI lets software
// write may change.
func TestReadOnly(t *testing.T) {
	writable := map[int]byte{
		0x04: 0x46, 0x05: 0x05, // command
		0x0c: 0xff, 0x3c: 0xff, // cache line size, interrupt line
		0x44: 0x03,             // power state
		0x58: 0xff, 0x59: 0x79, // device control
		0x60: 0xc8,             // link control
		0x78: 0x10, 0x80: 0x0f, // device control 2, link control 2
		0x93: 0xc0, // MSI-X enable and mask
	}
	for i, b := range []byte{0, 0xc0, 0xff, 0xff, 0, 0, 0, 0} { // BAR 0
		if i < 4 {
			writable[0x10+i] = b
		} else {
			writable[0x10+i] = 0xff
		}
	}
	for i, b := range []byte{0, 0, 0, 0, 0xfe, 0xff, 0xff, 0xff} { // BAR 2
		writable[0x18+i] = b
	}
	for i, b := range []byte{0, 0, 0xfc, 0xff, 0xff, 0xff, 0xff, 0xff} { // BAR 4
		writable[0x20+i] = b
	}
	s := newSpace(t)
	var zeros, ones, fresh [pciconfig.Size]byte
	s.Read(0, fresh[:])
	s.Write(0, zeros[:])
	s.Read(0, zeros[:])
	s.Write(0, bytes.Repeat([]byte{0xff}, pciconfig.Size))
	s.Read(0, ones[:])
	for at := range fresh {
		should.Be(t, zeros[at]^ones[at], writable[at], "offset %#x: bits are writable", at)
		if keep := ^writable[at]; fresh[at]&keep != ones[at]&keep {
			t.Errorf("offset %#x: read-only bits changed from %#02x to %#02x", at, fresh[at], ones[at])
		}
	}
	s.Reset()
	s.Read(0, ones[:])
	should.Same(t, ones[:], fresh[:], "Reset does not bring the first state back")
}

func TestPowerStates(t *testing.T) {
	s := newSpace(t)
	s.Write(0x04, []byte{0x06})
	if !s.MemoryEnabled() || !s.BusMaster() {
		t.Fatal("memory and bus mastering are not on")
	}
	for _, step := range []struct{ write, state int }{{1, pciconfig.D0}, {2, pciconfig.D0}, {3, pciconfig.D3hot}, {1, pciconfig.D3hot}} {
		s.Write(0x44, []byte{byte(step.write)})
		should.Be(t, int(read32(s, 0x44)&3), step.state, "after a write of %d the state", step.write)
	}
	if s.MemoryEnabled() || s.BusMaster() {
		t.Error("a function in D3hot answers")
	}
	s.Write(0x44, []byte{0})
	if !s.MemoryEnabled() || !s.BusMaster() {
		t.Error("a function that came back to D0 does not answer")
	}
}

func TestFunctionReset(t *testing.T) {
	s := newSpace(t)
	if write32(s, 0x58, 0x2810) {
		t.Error("a reset that nobody asked for")
	}
	if !write32(s, 0x58, 0xa810) {
		t.Error("no reset")
	}
	if !s.Write(0x59, []byte{0x80}) {
		t.Error("no reset by a write of one byte")
	}
	should.Be(t, read32(s, 0x58)&0x8000, 0, "the reset bit reads as one")
}

func TestMSIX(t *testing.T) {
	s := newSpace(t)
	s.Write(0x93, []byte{0x40})
	if on, masked := s.MSIX(); on || !masked {
		t.Errorf("enabled %v, masked %v", on, masked)
	}
	s.SetMSIX(true)
	if on, masked := s.MSIX(); !on || masked {
		t.Errorf("enabled %v, masked %v", on, masked)
	}
	if v := read32(s, 0x90); v>>16&0x7ff != 63 {
		t.Errorf("MSI-X header %#x: table size", v)
	}
	s.SetMSIX(false)
	if on, _ := s.MSIX(); on {
		t.Error("still enabled")
	}
}

func TestOutside(t *testing.T) {
	s := newSpace(t)
	for _, at := range []uint64{pciconfig.Size - 2, pciconfig.Size, 1 << 40, ^uint64(0)} {
		p := make([]byte, 8)
		s.Read(at, p)
		should.Same(t, p[4:], []byte{0xff, 0xff, 0xff, 0xff}, "read at %#x: % x", at, p)
		s.Write(at, p)
	}
}

func FuzzSpace(f *testing.F) {
	f.Add(uint64(0x04), []byte{0xff, 0xff, 0xff, 0xff})
	f.Add(uint64(0x58), []byte{0xff, 0xff})
	f.Add(uint64(0xffe), []byte{1, 2, 3, 4})
	f.Fuzz(func(t *testing.T, at uint64, p []byte) {
		s := must.Get(pciconfig.New(function))(t)
		s.Write(at, p)
		should.Be(t, read32(s, 0), 0x72501234, "a write of % x at %#x changed the identity", p, at)
		if st := read32(s, 0x44) & 3; st != pciconfig.D0 && st != pciconfig.D3hot {
			t.Errorf("power state %d", st)
		}
	})
}
