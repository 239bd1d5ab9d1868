package elfimage

import (
	"debug/elf"
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf/asm"
)

type symbol struct {
	elf.Sym64
	name string
}

func (s *symbol) kind() elf.SymType       { return elf.ST_TYPE(s.Info) }
func (s *symbol) binding() elf.SymBind    { return elf.ST_BIND(s.Info) }
func (s *symbol) index() elf.SectionIndex { return elf.SectionIndex(s.Shndx) }

// table returns the only section of a type and its index.
func (f *File) table(t elf.SectionType) (*Section, int, error) {
	found := 0
	for i := range f.Sections {
		if f.Sections[i].Type != t {
			continue
		}
		if found != 0 {
			return nil, 0, refuse(ErrMalformed, f.Sections[i].Name, "a second section of type %v", t)
		}
		found = i
	}
	if found == 0 {
		return nil, 0, refuse(ErrMalformed, "", "no section of type %v", t)
	}
	return &f.Sections[found], found, nil
}

func (f *File) symbols() ([]symbol, error) {
	tab, _, err := f.table(elf.SHT_SYMTAB)
	if err != nil {
		return nil, err
	}
	if tab.Entry != symbolSize || tab.Size%symbolSize != 0 || tab.Size == 0 {
		return nil, refuse(ErrMalformed, tab.Name, "%d bytes in entries of %d", tab.Size, tab.Entry)
	}
	n := tab.Size / symbolSize
	if n > maxSymbols {
		return nil, refuse(ErrLimit, tab.Name, "%d symbols; allowed: up to %d", n, maxSymbols)
	}
	if tab.Link == 0 || uint64(tab.Link) >= uint64(len(f.Sections)) || f.Sections[tab.Link].Type != elf.SHT_STRTAB {
		return nil, refuse(ErrMalformed, tab.Name, "its names are in section %d, which has none", tab.Link)
	}
	raw := make([]elf.Sym64, n)
	if _, err := binary.Decode(tab.Data, binary.LittleEndian, raw); err != nil {
		return nil, refuse(ErrMalformed, tab.Name, "%v", err)
	}
	all := make([]symbol, n)
	for i, r := range raw {
		name, err := stringAt(f.Sections[tab.Link].Data, r.Name, maxName)
		if err != nil {
			return nil, refuse(ErrMalformed, tab.Name, "name of symbol %d: %v", i, err)
		}
		all[i] = symbol{r, name}
		switch in := all[i].index(); {
		case in == elf.SHN_UNDEF, in == elf.SHN_ABS:
		case uint64(in) >= uint64(len(f.Sections)):
			return nil, refuse(ErrMalformed, tab.Name, "symbol %d (%s) is in %v", i, name, in)
		case !inside(r.Value, r.Size, int(f.Sections[in].Size)):
			return nil, refuse(ErrMalformed, f.Sections[in].Name, "symbol %s: %d bytes at %d, the section has %d", name, r.Size, r.Value, f.Sections[in].Size)
		}
	}
	return all, nil
}

// Types of relocations (llvm/BinaryFormat/ELFRelocs/BPF.def).
const (
	relocate64 = 1  // R_BPF_64_64: the immediate of a 64-bit load
	relocate32 = 10 // R_BPF_64_32: the target of a call
)

// checkRelocations checks the relocations of what is loaded: those of programs
// only, and only of loads of addresses.
func (f *File) checkRelocations(kinds []kind, symbols []symbol) error {
	_, symtab, err := f.table(elf.SHT_SYMTAB)
	if err != nil {
		return err
	}
	seen := map[uint32]bool{}
	for i := range f.Sections {
		s := &f.Sections[i]
		if s.Type != elf.SHT_REL {
			continue
		}
		switch {
		case int(s.Link) != symtab:
			return refuse(ErrMalformed, s.Name, "its symbols are in section %d, not %d", s.Link, symtab)
		case s.Info == 0 || uint64(s.Info) >= uint64(len(f.Sections)):
			return refuse(ErrMalformed, s.Name, "it is for section %d of %d", s.Info, len(f.Sections))
		case s.Entry != relSize || s.Size%relSize != 0:
			return refuse(ErrMalformed, s.Name, "%d bytes in entries of %d", s.Size, s.Entry)
		case seen[s.Info]:
			return refuse(ErrMalformed, s.Name, "another section has relocations of %s too", f.Sections[s.Info].Name)
		}
		seen[s.Info] = true
		if err := f.checkRelocationsOf(s, kinds, symbols); err != nil {
			return err
		}
	}
	return nil
}

func (f *File) checkRelocationsOf(s *Section, kinds []kind, symbols []symbol) error {
	target := &f.Sections[s.Info]
	if kinds[s.Info] == kindOther || s.Size == 0 {
		return nil
	}
	if kinds[s.Info] != kindProgram {
		return refuse(ErrUnsupported, target.Name, "addresses in initial contents (%s)", s.Name)
	}
	seen := map[uint64]bool{}
	for at := uint64(0); at < s.Size; at += relSize {
		offset, info := binary.LittleEndian.Uint64(s.Data[at:]), binary.LittleEndian.Uint64(s.Data[at+8:])
		number, kind := elf.R_SYM64(info), elf.R_TYPE64(info)
		bad := func(reason error, format string, args ...any) error {
			return refuse(reason, target.Name, "relocation at %#x: %s", offset, fmt.Sprintf(format, args...))
		}
		if offset%asm.InstructionSize != 0 || !inside(offset, asm.InstructionSize, int(target.Size)) {
			return bad(ErrMalformed, "there is no instruction, the section has %d bytes", target.Size)
		}
		if number == 0 || uint64(number) >= uint64(len(symbols)) {
			return bad(ErrMalformed, "symbol %d of %d", number, len(symbols))
		}
		if seen[offset] {
			return bad(ErrMalformed, "a second one")
		}
		seen[offset] = true
		sym := &symbols[number]
		opcode := asm.OpCode(target.Data[offset])
		switch {
		case sym.index() == elf.SHN_UNDEF:
			return bad(ErrUnsupported, "%s is not defined", sym.name)
		case kind == relocate32:
			return bad(ErrUnsupported, "a call of function %s; mark it static __always_inline", f.nameOf(sym))
		case kind != relocate64:
			return bad(ErrUnsupported, "type %d; allowed: %d", kind, relocate64)
		case opcode != asm.LoadImmOp(asm.DWord) || !inside(offset, 2*asm.InstructionSize, int(target.Size)):
			return bad(ErrMalformed, "the instruction is no 64-bit load")
		case uint64(sym.index()) >= uint64(len(kinds)), kinds[sym.index()] != kindMaps && kinds[sym.index()] != kindData:
			return bad(ErrUnsupported, "%s is neither a map nor a global variable", f.nameOf(sym))
		}
	}
	return nil
}

// nameOf names a symbol; those of sections have no name of their own.
func (f *File) nameOf(s *symbol) string {
	if s.name == "" && int(s.index()) < len(f.Sections) {
		return f.Sections[s.index()].Name
	}
	return s.name
}

// checkFunctions checks that each section of a program is one function.
func (f *File) checkFunctions(kinds []kind, symbols []symbol) error {
	for i, k := range kinds {
		if k != kindProgram {
			continue
		}
		s := &f.Sections[i]
		functions := 0
		for j := range symbols {
			sym := &symbols[j]
			if int(sym.index()) != i || sym.name == "" {
				continue
			}
			// Labels are local symbols without a type; all others that a loader
			// takes for a function must be the program.
			if sym.kind() != elf.STT_FUNC && (sym.kind() != elf.STT_NOTYPE || sym.binding() == elf.STB_LOCAL) {
				continue
			}
			if sym.Value != 0 || sym.Size != s.Size {
				return refuse(ErrUnsupported, s.Name, "function %s has bytes %d to %d of %d; allowed: one function a section", sym.name, sym.Value, sym.Value+sym.Size, s.Size)
			}
			functions++
		}
		if functions != 1 {
			return refuse(ErrMalformed, s.Name, "%d functions start it; allowed: 1", functions)
		}
	}
	return nil
}
