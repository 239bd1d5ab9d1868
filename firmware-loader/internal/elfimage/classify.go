package elfimage

import (
	"debug/elf"
	"slices"
	"strings"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/internal/abi"
)

// Names of sections besides those of hooks.
const (
	// NoteSection holds the note: who the image is, and its signature.
	NoteSection = ".note.trapeze"
	mapsSection = ".maps"
	// oldMapsSection is where objects without type information have their maps.
	oldMapsSection = "maps"
	typesSection   = ".BTF"
	linesSection   = ".BTF.ext"
)

type kind int

const (
	kindOther   kind = iota // not loaded: tables, debug information
	kindProgram             // of a hook
	kindMaps
	kindData // global variables
	kindNote // the note, and the license that the kernel asks for
)

func dataName(name string) bool {
	return name == ".bss" || strings.HasPrefix(name, ".data") || strings.HasPrefix(name, ".rodata")
}

// classify says what each section is. What would be part of a program, and is
// nothing that we know, is refused: it would be missing when the program runs.
func (f *File) classify() ([]kind, error) {
	kinds := make([]kind, len(f.Sections))
	programs, data := 0, 0
	for i := range f.Sections {
		k, err := f.Sections[i].classify()
		if err != nil {
			return nil, err
		}
		kinds[i] = k
		switch k {
		case kindProgram:
			programs++
		case kindData:
			data++
		}
	}
	if programs == 0 {
		return nil, refuse(ErrUnsupported, "", "no program: none of its sections is named %s", hookNames())
	}
	if data > abi.MaxMaps {
		return nil, refuse(ErrLimit, "", "%d sections of global variables; allowed: up to %d", data, abi.MaxMaps)
	}
	return kinds, nil
}

// Role says what a section of a file that was read is; empty for tables and debug information.
func (s *Section) Role() string {
	switch k, _ := s.classify(); {
	case k == kindData && s.Flags&elf.SHF_WRITE == 0:
		return "read-only data"
	case s.Name == typesSection, s.Name == linesSection:
		return "types and source lines"
	case s.Name == "license":
		return "license"
	default:
		return [...]string{kindProgram: "program", kindMaps: "map definitions", kindData: "data", kindNote: "note"}[k]
	}
}

func hookNames() string {
	var names []string
	for h := range abi.Hooks {
		names = append(names, h.String())
	}
	return strings.Join(names, ", ")
}

func (s *Section) classify() (kind, error) {
	_, hook := abi.ParseHook(s.Name)
	switch {
	case hook:
		return kindProgram, s.checkProgram()
	case s.Flags&elf.SHF_EXECINSTR != 0:
		if s.Name == ".text" && s.Size == 0 {
			return kindOther, nil
		}
		if s.Name == ".text" {
			return kindOther, refuse(ErrUnsupported, s.Name, "functions that are not inlined; mark them static __always_inline")
		}
		return kindOther, refuse(ErrUnsupported, s.Name, "no hook has this name; hooks are %s", hookNames())
	case s.Name == NoteSection:
		return kindNote, s.expect(uint64(maxNote), elf.SHT_NOTE, elf.SHT_PROGBITS)
	case s.Name == "license":
		return kindNote, s.expect(maxName, elf.SHT_PROGBITS)
	case s.Name == mapsSection, s.Name == oldMapsSection:
		return kindMaps, s.expect(abi.MaxValue, elf.SHT_PROGBITS)
	case s.Name == ".bss":
		return kindData, s.expect(abi.MaxValue, elf.SHT_NOBITS)
	case dataName(s.Name):
		return kindData, s.expect(abi.MaxValue, elf.SHT_PROGBITS)
	case s.Name == typesSection, s.Name == linesSection:
		return kindOther, s.expect(maxTypes, elf.SHT_PROGBITS)
	case s.Name == ".eh_frame": // of unwinders, which BPF does not have
		return kindOther, nil
	case s.Flags&elf.SHF_ALLOC != 0, strings.HasPrefix(s.Name, "license"), strings.HasPrefix(s.Name, "version"),
		strings.HasPrefix(s.Name, "maps"), strings.HasPrefix(s.Name, ".struct_ops"):
		return kindOther, refuse(ErrUnsupported, s.Name, "a control program has no such section")
	}
	return kindOther, nil
}

func (s *Section) expect(limit uint64, types ...elf.SectionType) error {
	if !slices.Contains(types, s.Type) {
		return refuse(ErrMalformed, s.Name, "of type %v instead of %v", s.Type, types[0])
	}
	if s.Size > limit {
		return refuse(ErrLimit, s.Name, "%d bytes; allowed: up to %d", s.Size, limit)
	}
	return nil
}

func (s *Section) checkProgram() error {
	if err := s.expect(abi.MaxInstructions*asm.InstructionSize, elf.SHT_PROGBITS); err != nil {
		return err
	}
	if s.Flags&elf.SHF_EXECINSTR == 0 || s.Flags&elf.SHF_ALLOC == 0 {
		return refuse(ErrMalformed, s.Name, "it is not executable: %v", s.Flags)
	}
	if s.Size == 0 || s.Size%asm.InstructionSize != 0 {
		return refuse(ErrMalformed, s.Name, "%d bytes; instructions have %d each", s.Size, asm.InstructionSize)
	}
	return nil
}
