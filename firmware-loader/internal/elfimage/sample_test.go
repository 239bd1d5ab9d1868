package elfimage_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"os"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
)

// object returns what clang made of everything.c.
func object(t testing.TB) []byte {
	t.Helper()
	return must.Get(os.ReadFile("../../testdata/everything.o"))(t)
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
	must.Get(binary.Decode(f.b[at:], binary.LittleEndian, v))(f.t)
}

func (f *file) encode(at uint64, v any) {
	f.t.Helper()
	must.Get(binary.Encode(f.b[at:], binary.LittleEndian, v))(f.t)
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
		must.Get(binary.Decode(table[at:], binary.LittleEndian, &s))(f.t)
		text := names[s.Name:]
		if string(text[:bytes.IndexByte(text, 0)]) == name {
			change(&s)
			must.Get(binary.Encode(table[at:], binary.LittleEndian, s))(f.t)
			return
		}
	}
	f.t.Fatalf("no symbol %s", name)
}
