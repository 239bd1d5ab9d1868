package elfimage_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"testing"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/elfimage"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// sample is an image with a bit of everything.
func sample() flat.Image {
	img := flat.Image{Name: "sample", Version: "1.0", Device: 0x12347250, BuildID: [20]byte{1, 2, 3}}
	img.Programs[abi.PulseTx] = asm.Instructions{
		asm.LoadMapPtr(asm.R1, 0).WithReference("flows").WithSource(asm.Comment("who is it")),
		asm.LoadMapValue(asm.R2, 0, 4).WithReference(".data"),
		asm.LoadMapValue(asm.R3, 0, 2).WithReference(".rodata"),
		asm.Mov.Imm(asm.R0, -1),
		asm.JEq.Imm(asm.R0, 3, "out"),
		asm.Mov.Imm(asm.R0, 1).WithSource(asm.Comment("nobody")),
		asm.Return().WithSymbol("out"),
	}
	img.Programs[abi.FilterRx] = asm.Instructions{asm.LoadMapValue(asm.R2, 0, 0).WithReference(".bss"), asm.Mov.Imm(asm.R0, 2), asm.Return()}
	img.Maps = []abi.Map{
		{Name: "flows", Type: abi.MapHash, Key: 12, Value: 8, Entries: 100},
		{Name: ".data", Type: abi.MapArray, Key: 4, Value: 12, Entries: 1, Contents: []byte{1, 2, 3}},
		{Name: "table", Type: abi.MapArray, Key: 4, Value: 24, Entries: 4, Flags: abi.MapReadOnly},
		{Name: ".rodata", Type: abi.MapArray, Key: 4, Value: 3, Entries: 1, Flags: abi.MapReadOnly, Contents: []byte{7, 8, 9}},
		{Name: ".bss", Type: abi.MapArray, Key: 4, Value: 16, Entries: 1},
	}
	return img
}

func build(t testing.TB, img flat.Image) []byte {
	t.Helper()
	b, err := elfimage.Build(img)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// file is the bytes of an ELF file, to be spoiled.
type file struct {
	t testing.TB
	b []byte
}

func (f *file) header() (h elf.Header64) {
	f.decode(0, &h)
	return h
}

func (f *file) decode(at uint64, v any) {
	f.t.Helper()
	if _, err := binary.Decode(f.b[at:], binary.LittleEndian, v); err != nil {
		f.t.Fatal(err)
	}
}

func (f *file) encode(at uint64, v any) {
	f.t.Helper()
	if _, err := binary.Encode(f.b[at:], binary.LittleEndian, v); err != nil {
		f.t.Fatal(err)
	}
}

// section calls change with the header of a section, which it may change.
func (f *file) section(name string, change func(s *elf.Section64)) {
	f.t.Helper()
	h := f.header()
	for i := range uint64(h.Shnum) {
		var s, names elf.Section64
		f.decode(h.Shoff+64*i, &s)
		f.decode(h.Shoff+64*uint64(h.Shstrndx), &names)
		text := f.b[names.Off+uint64(s.Name):]
		if string(text[:bytes.IndexByte(text, 0)]) == name {
			change(&s)
			f.encode(h.Shoff+64*i, s)
			return
		}
	}
	f.t.Fatalf("no section %s", name)
}

// contents returns the bytes of a section.
func (f *file) contents(name string) (b []byte) {
	f.t.Helper()
	f.section(name, func(s *elf.Section64) { b = f.b[s.Off : s.Off+s.Size] })
	return b
}

// symbol calls change with a symbol, which it may change.
func (f *file) symbol(name string, change func(s *elf.Sym64)) {
	f.t.Helper()
	table, names := f.contents(".symtab"), f.contents(".strtab")
	for at := 0; at < len(table); at += 24 {
		var s elf.Sym64
		if _, err := binary.Decode(table[at:], binary.LittleEndian, &s); err != nil {
			f.t.Fatal(err)
		}
		text := names[s.Name:]
		if string(text[:bytes.IndexByte(text, 0)]) == name {
			change(&s)
			if _, err := binary.Encode(table[at:], binary.LittleEndian, s); err != nil {
				f.t.Fatal(err)
			}
			return
		}
	}
	f.t.Fatalf("no symbol %s", name)
}
