package firmware_test

import (
	"bytes"
	"debug/elf"
	"os"
	"testing"

	"github.com/cilium/ebpf/asm"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// small is an image with one of each: program, map, variables, source line.
func small() flat.Image {
	img := flat.Image{Name: "small", Version: "1.0", Device: 0x12347250}
	img.Programs[abi.PulseTx] = asm.Instructions{
		asm.Mov.Imm(asm.R0, 0).WithSource(asm.Comment("wait")),
		asm.StoreMem(asm.R10, -8, asm.R0, asm.DWord),
		asm.Mov.Reg(asm.R2, asm.R10), asm.Add.Imm(asm.R2, -8),
		asm.LoadMapPtr(asm.R1, 0).WithReference("flows").WithSource(asm.Comment("who is it")),
		asm.FnMapLookupElem.Call(),
		asm.JEq.Imm(asm.R0, 0, "out"),
		asm.LoadMapValue(asm.R1, 0, 4).WithReference(".data"),
		asm.LoadMem(asm.R0, asm.R1, 0, asm.Word),
		asm.Return().WithSymbol("out"),
	}
	img.Maps = []abi.Map{
		{Name: "flows", Type: abi.MapHash, Key: 8, Value: 8, Entries: 4},
		{Name: ".data", Type: abi.MapArray, Key: 4, Value: 8, Entries: 1, Contents: []byte{1, 2, 3, 4, 5}},
	}
	return img
}

func makeImage(t testing.TB, img flat.Image) *firmware.Spec {
	t.Helper()
	s, err := firmware.Make(img)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func parse(t testing.TB, b []byte) *firmware.Spec {
	t.Helper()
	s, err := firmware.Parse(b)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// object is what clang made of testdata/everything.c.
func object(t testing.TB) []byte {
	t.Helper()
	b, err := os.ReadFile("testdata/everything.o")
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// contents returns the bytes of a section, in place.
func contents(t testing.TB, b []byte, section string) []byte {
	t.Helper()
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	s := f.Section(section)
	if s == nil {
		t.Fatalf("no section %s", section)
	}
	return b[s.Offset : s.Offset+s.Size]
}

// same says how two images differ in what would run; empty if they do not.
func same(t testing.TB, a, b *firmware.Spec) string {
	t.Helper()
	switch {
	case a.Digest != b.Digest:
		return "digest"
	case !bytes.Equal(a.Link(), b.Link()):
		return "flat image"
	case a.Name != b.Name || a.Version != b.Version || a.BuildID != b.BuildID:
		return "name, version or build ID"
	case a.ABI != b.ABI || a.Device != b.Device || a.SRAM != b.SRAM:
		return "ABI, device or SRAM"
	}
	for h := range abi.Hooks {
		x, err1 := flat.EncodeInstructions(a.Programs[h])
		y, err2 := flat.EncodeInstructions(b.Programs[h])
		if err1 != nil || err2 != nil || !bytes.Equal(x, y) {
			return "program " + h.String()
		}
	}
	return ""
}
