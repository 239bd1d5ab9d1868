package elfimage

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"slices"
)

// Set gives the section of that name other contents, or adds one behind the
// others, which keep their indices. It does not check what it is given: what
// Bytes returns is for Read.
func (f *File) Set(name string, kind elf.SectionType, flags elf.SectionFlag, align uint64, data []byte) {
	s := f.Section(name)
	if s == nil {
		f.Sections = append(f.Sections, Section{Name: name})
		s = &f.Sections[len(f.Sections)-1]
	}
	*s = Section{Name: name, Type: kind, Flags: flags, Link: s.Link, Info: s.Info, Align: align, Entry: s.Entry,
		Size: uint64(len(data)), Data: data}
}

// Bytes returns the file. Names that are missing in the table of names are added
// to it.
func (f *File) Bytes() []byte {
	sections := slices.Clone(f.Sections)
	names := slices.Clone(sections[f.names].Data)
	headers := make([]elf.Section64, len(sections))
	for i := 1; i < len(sections); i++ {
		names, headers[i].Name = addString(names, sections[i].Name)
	}
	sections[f.names].Data, sections[f.names].Size = names, uint64(len(names))

	b := make([]byte, headerSize)
	for i := 1; i < len(sections); i++ {
		s := &sections[i]
		b = padTo(b, max(s.Align, 1))
		h := &headers[i]
		h.Type, h.Flags, h.Link, h.Info = uint32(s.Type), uint64(s.Flags), s.Link, s.Info
		h.Addralign, h.Entsize, h.Size, h.Off = s.Align, s.Entry, s.Size, uint64(len(b))
		b = append(b, s.Data...)
	}
	b = padTo(b, 8)
	header := elf.Header64{
		Type: uint16(elf.ET_REL), Machine: uint16(elf.EM_BPF), Version: uint32(elf.EV_CURRENT),
		Shoff: uint64(len(b)), Ehsize: headerSize, Shentsize: sectionSize, Shnum: uint16(len(headers)), Shstrndx: uint16(f.names),
	}
	copy(header.Ident[:], elf.ELFMAG)
	header.Ident[elf.EI_CLASS], header.Ident[elf.EI_DATA] = byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB)
	header.Ident[elf.EI_VERSION] = byte(elf.EV_CURRENT)
	copy(b, encoded(header))
	return append(b, encoded(headers)...)
}

// addString returns the table with s in it, and where.
func addString(table []byte, s string) ([]byte, uint32) {
	wanted := append([]byte(s), 0)
	if at := bytes.Index(table, wanted); at >= 0 {
		return table, uint32(at)
	}
	return append(table, wanted...), uint32(len(table))
}

func padTo(b []byte, align uint64) []byte {
	if over := uint64(len(b)) % align; over != 0 {
		b = append(b, make([]byte, align-over)...)
	}
	return b
}

// encoded returns the little-endian bytes of structs of fixed size.
func encoded(v any) []byte {
	var b bytes.Buffer
	// A buffer takes everything, and v has a fixed size.
	_ = binary.Write(&b, binary.LittleEndian, v)
	return b.Bytes()
}
