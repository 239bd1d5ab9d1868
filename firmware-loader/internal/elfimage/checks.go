package elfimage

import (
	"bytes"
	"cmp"
	"debug/elf"
	"fmt"
	"slices"
	"unicode"
	"unicode/utf8"
)

// stringAt returns the string at an offset of a string table: at most limit
// bytes of printable text.
func stringAt(table []byte, offset uint32, limit int) (string, error) {
	b, err := textAt(table, offset, limit)
	return string(b), err
}

// textAt is stringAt without a copy.
func textAt(table []byte, offset uint32, limit int) ([]byte, error) {
	if uint64(offset) >= uint64(len(table)) {
		return nil, fmt.Errorf("offset %d is outside of the table's %d bytes", offset, len(table))
	}
	b := table[offset:]
	b = b[:min(len(b), limit+1)]
	end := bytes.IndexByte(b, 0)
	if end < 0 {
		return nil, fmt.Errorf("more than %d bytes, or not terminated", limit)
	}
	b = b[:end]
	if !utf8.Valid(b) || bytes.ContainsFunc(b, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return nil, fmt.Errorf("%+q is not printable", b)
	}
	return b, nil
}

// checkOverlaps checks that no byte of the file belongs to two sections, or to a
// section and a header.
func checkOverlaps(f *File, raw []elf.Section64, h elf.Header64) error {
	type span struct {
		name       string
		start, end uint64
	}
	spans := []span{
		{"the ELF header", 0, headerSize},
		{"the section headers", h.Shoff, h.Shoff + uint64(h.Shnum)*sectionSize},
	}
	for i, s := range raw {
		if elf.SectionType(s.Type) != elf.SHT_NOBITS && s.Size > 0 {
			spans = append(spans, span{f.Sections[i].Name, s.Off, s.Off + s.Size})
		}
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end)) })
	for i := 1; i < len(spans); i++ {
		if a, b := spans[i-1], spans[i]; b.start < a.end {
			return refuse(ErrMalformed, b.name, "starts at %d, inside of %s", b.start, a.name)
		}
	}
	return nil
}
