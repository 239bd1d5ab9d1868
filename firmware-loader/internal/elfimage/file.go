package elfimage

import (
	"debug/elf"
	"encoding/binary"
	"slices"

	"github.com/trapeze-nic/trapeze/internal/abi"
)

// Limits of a file. They are ours: far above what control programs need, debug
// information included.
const (
	// MaxFile is the size of a file in bytes.
	MaxFile     = 4 << 20
	maxSections = 128
	maxSymbols  = 4096
	maxName     = 255 // bytes of the name of a section or symbol
)

// Sizes of the parts of an ELF file (System V ABI, elf.h).
const (
	headerSize  = 64
	sectionSize = 64
	symbolSize  = 24
	relSize     = 16
)

// Section is a section of a file.
type Section struct {
	Name  string
	Type  elf.SectionType
	Flags elf.SectionFlag
	Link  uint32
	Info  uint32
	Align uint64
	// Entry is the size in bytes of an entry of a table.
	Entry uint64
	// Size in bytes; Data has as many, but none of a section without contents
	// (SHT_NOBITS).
	Size uint64
	Data []byte
}

// File is a file whose structure has been checked.
type File struct {
	// Sections by index; the first is the empty one that ELF asks for.
	Sections []Section
	names    int // index of the section with the names of sections
}

// Section returns the section of that name, or nil.
func (f *File) Section(name string) *Section {
	i := slices.IndexFunc(f.Sections, func(s Section) bool { return s.Name == name })
	if i < 0 {
		return nil
	}
	return &f.Sections[i]
}

// Read checks a file and returns its sections, which refer to b. Errors are
// *Error.
func Read(b []byte) (*File, error) {
	if len(b) > MaxFile {
		return nil, refuse(ErrLimit, "", "%d bytes; allowed: up to %d", len(b), MaxFile)
	}
	h, err := readHeader(b)
	if err != nil {
		return nil, err
	}
	f := &File{Sections: make([]Section, h.Shnum), names: int(h.Shstrndx)}
	raw := make([]elf.Section64, h.Shnum)
	if _, err := binary.Decode(b[h.Shoff:], binary.LittleEndian, raw); err != nil {
		return nil, refuse(ErrMalformed, "", "section headers: %v", err)
	}
	// Names first: they make the other errors readable.
	if err := f.readNames(b, raw); err != nil {
		return nil, err
	}
	for i, s := range raw {
		if err := f.readSection(i, s, b); err != nil {
			return nil, err
		}
	}
	if err := checkOverlaps(f, raw, h); err != nil {
		return nil, err
	}
	symbols, err := f.symbols()
	if err != nil {
		return nil, err
	}
	kinds, err := f.classify()
	if err != nil {
		return nil, err
	}
	if err := f.checkRelocations(kinds, symbols); err != nil {
		return nil, err
	}
	if err := f.checkFunctions(kinds, symbols); err != nil {
		return nil, err
	}
	if err := f.checkTypes(); err != nil {
		return nil, err
	}
	return f, nil
}

func readHeader(b []byte) (h elf.Header64, err error) {
	if len(b) < len(elf.ELFMAG) || string(b[:len(elf.ELFMAG)]) != elf.ELFMAG {
		return h, refuse(ErrFormat, "", "it does not start with %q", elf.ELFMAG)
	}
	if len(b) < headerSize {
		return h, refuse(ErrTruncated, "", "%d bytes, the ELF header alone has %d", len(b), headerSize)
	}
	if _, err := binary.Decode(b, binary.LittleEndian, &h); err != nil {
		return h, refuse(ErrMalformed, "", "ELF header: %v", err)
	}
	switch {
	case elf.Class(h.Ident[elf.EI_CLASS]) != elf.ELFCLASS64:
		return h, refuse(ErrFormat, "", "%v instead of %v", elf.Class(h.Ident[elf.EI_CLASS]), elf.ELFCLASS64)
	case elf.Data(h.Ident[elf.EI_DATA]) != elf.ELFDATA2LSB:
		return h, refuse(ErrFormat, "", "byte order %v instead of %v; clang makes that of -target bpfel", elf.Data(h.Ident[elf.EI_DATA]), elf.ELFDATA2LSB)
	case elf.Version(h.Ident[elf.EI_VERSION]) != elf.EV_CURRENT || elf.Version(h.Version) != elf.EV_CURRENT:
		return h, refuse(ErrFormat, "", "ELF version %d, %d", h.Ident[elf.EI_VERSION], h.Version)
	case elf.Machine(h.Machine) != elf.EM_BPF:
		return h, refuse(ErrMachine, "", "%v instead of %v; clang makes that of -target bpf", elf.Machine(h.Machine), elf.EM_BPF)
	case elf.Type(h.Type) != elf.ET_REL:
		return h, refuse(ErrFormat, "", "%v instead of %v, an object file", elf.Type(h.Type), elf.ET_REL)
	case h.Ehsize != headerSize || h.Shentsize != sectionSize || h.Phnum != 0:
		return h, refuse(ErrFormat, "", "header of %d bytes, section headers of %d, %d program headers", h.Ehsize, h.Shentsize, h.Phnum)
	case h.Shnum < 2:
		return h, refuse(ErrFormat, "", "no sections")
	case h.Shnum > maxSections:
		return h, refuse(ErrLimit, "", "%d sections; allowed: up to %d", h.Shnum, maxSections)
	case h.Shstrndx == 0 || h.Shstrndx >= h.Shnum:
		return h, refuse(ErrMalformed, "", "section %d of %d has the names", h.Shstrndx, h.Shnum)
	case h.Shoff < headerSize || !inside(h.Shoff, uint64(h.Shnum)*sectionSize, len(b)):
		return h, refuse(ErrTruncated, "", "%d section headers at %d, the file has %d bytes", h.Shnum, h.Shoff, len(b))
	}
	return h, nil
}

// inside reports whether size bytes at offset lie within n.
func inside(offset, size uint64, n int) bool {
	return offset <= uint64(n) && size <= uint64(n)-offset
}

// readNames checks the table of names and names the sections.
func (f *File) readNames(b []byte, raw []elf.Section64) error {
	table := raw[f.names]
	if elf.SectionType(table.Type) != elf.SHT_STRTAB {
		return refuse(ErrMalformed, "", "section %d with the names is %v", f.names, elf.SectionType(table.Type))
	}
	if !inside(table.Off, table.Size, len(b)) {
		return refuse(ErrTruncated, "", "names of sections: %d bytes at %d, the file has %d", table.Size, table.Off, len(b))
	}
	names := b[table.Off : table.Off+table.Size]
	seen := map[string]int{}
	for i, s := range raw {
		name, err := stringAt(names, s.Name, maxName)
		if err != nil {
			return refuse(ErrMalformed, "", "name of section %d: %v", i, err)
		}
		if other, ok := seen[name]; ok {
			return refuse(ErrMalformed, name, "sections %d and %d have this name", other, i)
		}
		seen[name] = i
		f.Sections[i].Name = name
	}
	if f.Sections[0].Name != "" {
		return refuse(ErrMalformed, f.Sections[0].Name, "section 0 has a name")
	}
	return nil
}

func (f *File) readSection(i int, s elf.Section64, b []byte) error {
	name := f.Sections[i].Name
	kind := elf.SectionType(s.Type)
	if i == 0 {
		if kind != elf.SHT_NULL || s.Size != 0 || s.Link != 0 {
			return refuse(ErrMalformed, "", "section 0 is not empty")
		}
		return nil
	}
	switch kind {
	case elf.SHT_NULL, elf.SHT_RELA, elf.SHT_DYNSYM, elf.SHT_DYNAMIC, elf.SHT_HASH, elf.SHT_SHLIB, elf.SHT_GROUP, elf.SHT_SYMTAB_SHNDX:
		return refuse(ErrUnsupported, name, "of type %v", kind)
	}
	if s.Flags&uint64(elf.SHF_COMPRESSED) != 0 {
		return refuse(ErrUnsupported, name, "compressed")
	}
	if s.Addralign&(s.Addralign-1) != 0 || s.Addralign > 4096 {
		return refuse(ErrMalformed, name, "alignment %d", s.Addralign)
	}
	sec := &f.Sections[i]
	*sec = Section{Name: name, Type: kind, Flags: elf.SectionFlag(s.Flags), Link: s.Link, Info: s.Info,
		Align: s.Addralign, Entry: s.Entsize, Size: s.Size}
	if kind == elf.SHT_NOBITS {
		if s.Size > abi.MaxValue {
			return refuse(ErrLimit, name, "%d bytes; allowed: up to %d", s.Size, abi.MaxValue)
		}
		return nil
	}
	if !inside(s.Off, s.Size, len(b)) {
		return refuse(ErrTruncated, name, "%d bytes at %d, the file has %d", s.Size, s.Off, len(b))
	}
	sec.Data = b[s.Off : s.Off+s.Size : s.Off+s.Size]
	return nil
}
