package elfimage

import (
	"bytes"
	"encoding/binary"
	"fmt"
)

// Limits of type information. Source lines are among its strings.
const (
	maxTypes      = 1 << 20 // bytes of .BTF and of .BTF.ext
	maxTypeCount  = 8192
	maxTypeName   = 256
	maxTypeString = 4096
	maxExtParts   = 64 // sections with functions or lines
)

// Header of .BTF and kinds of types (linux/btf.h).
const (
	btfMagic      = 0xeb9f
	btfHeaderSize = 24
	btfExtSize    = 32 // of .BTF.ext with CO-RE fields, as clang writes it

	btfDatasec = 15 // a section with variables

	// Bytes of a record of .BTF.ext: which function, which line.
	funcRecord = 8
	lineRecord = 16
)

// btfTail says what follows the 12 bytes of a type, by kind (enum BTF_KIND_ of
// linux/btf.h): fixed bytes, and so many for each of its vlen members. named:
// members start with the offset of a name.
var btfTail = [...]struct {
	fixed, member uint64
	named         bool
}{
	1:          {fixed: 4},                // int
	3:          {fixed: 12},               // array
	4:          {member: 12, named: true}, // struct
	5:          {member: 12, named: true}, // union
	6:          {member: 8, named: true},  // enum
	13:         {member: 8, named: true},  // function prototype
	14:         {fixed: 4},                // variable
	btfDatasec: {member: 12},
	17:         {fixed: 4},                // declaration tag
	19:         {member: 12, named: true}, // enum of 64 bits
}

func (f *File) checkTypes() error {
	types := f.Section(typesSection)
	if types == nil {
		return nil
	}
	strings, err := types.checkBTF()
	if err != nil {
		return err
	}
	if lines := f.Section(linesSection); lines != nil {
		return lines.checkBTFExt(strings)
	}
	return nil
}

func (s *Section) malformed(format string, args ...any) error {
	return refuse(ErrMalformed, s.Name, format, args...)
}

// word reads 32 bits at an offset that has been checked.
func (s *Section) word(at uint64) uint32 { return binary.LittleEndian.Uint32(s.Data[at:]) }

// checkPrefix checks what both sections start with: magic, version, flags and
// the header's size.
func (s *Section) checkPrefix(size uint64) error {
	if s.Size < size {
		return refuse(ErrTruncated, s.Name, "%d bytes, its header has %d", s.Size, size)
	}
	if magic := binary.LittleEndian.Uint16(s.Data); magic != btfMagic || s.Data[2] != 1 || s.Data[3] != 0 || uint64(s.word(4)) != size {
		return s.malformed("header % x; allowed: magic %#x, version 1, no flags, %d bytes", s.Data[:8], btfMagic, size)
	}
	return nil
}

// checkBTF checks .BTF and returns its strings.
func (s *Section) checkBTF() ([]byte, error) {
	if err := s.checkPrefix(btfHeaderSize); err != nil {
		return nil, err
	}
	body := s.Data[btfHeaderSize:]
	typeOff, typeLen := uint64(s.word(8)), uint64(s.word(12))
	stringOff, stringLen := uint64(s.word(16)), uint64(s.word(20))
	if !inside(typeOff, typeLen, len(body)) || !inside(stringOff, stringLen, len(body)) {
		return nil, refuse(ErrTruncated, s.Name, "types of %d bytes at %d, strings of %d at %d, the section has %d behind its header", typeLen, typeOff, stringLen, stringOff, len(body))
	}
	strings := body[stringOff : stringOff+stringLen]
	if stringLen == 0 || strings[0] != 0 || strings[stringLen-1] != 0 {
		return nil, s.malformed("its strings do not start and end with a zero byte")
	}
	for rest := strings; len(rest) > 0; {
		n := bytes.IndexByte(rest, 0)
		if n > maxTypeString {
			return nil, refuse(ErrLimit, s.Name, "a string of %d bytes; allowed: up to %d", n, maxTypeString)
		}
		rest = rest[n+1:]
	}
	return strings, s.checkTypeList(body[typeOff:typeOff+typeLen], strings)
}

func (s *Section) checkTypeList(types, strings []byte) error {
	for count, at := 1, uint64(0); at < uint64(len(types)); count++ {
		if count > maxTypeCount {
			return refuse(ErrLimit, s.Name, "more than %d types", maxTypeCount)
		}
		if !inside(at, 12, len(types)) {
			return refuse(ErrTruncated, s.Name, "type %d", count)
		}
		name, info := binary.LittleEndian.Uint32(types[at:]), binary.LittleEndian.Uint32(types[at+4:])
		kind, members := info>>24&0x1f, uint64(info&0xffff)
		if kind == 0 || int(kind) >= len(btfTail) {
			return s.malformed("type %d is of kind %d", count, kind)
		}
		tail := btfTail[kind]
		at += 12
		if size := tail.fixed + members*tail.member; !inside(at, size, len(types)) {
			return refuse(ErrTruncated, s.Name, "type %d: %d bytes at %d of %d", count, size, at, len(types))
		}
		text, err := typeName(strings, name)
		if err != nil {
			return s.malformed("name of type %d: %v", count, err)
		}
		if kind == btfDatasec && (string(text) == ".ksyms" || string(text) == ".kconfig") {
			return refuse(ErrUnsupported, s.Name, "variables and functions of the Linux kernel (%s)", text)
		}
		if tail.named {
			for m := range members {
				if _, err := typeName(strings, binary.LittleEndian.Uint32(types[at+m*tail.member:])); err != nil {
					return s.malformed("name of member %d of type %d: %v", m, count, err)
				}
			}
		}
		at += tail.fixed + members*tail.member
	}
	return nil
}

// typeName returns a string of .BTF that is a name.
func typeName(strings []byte, offset uint32) ([]byte, error) {
	if offset > 0 && uint64(offset) < uint64(len(strings)) && strings[offset-1] != 0 {
		return nil, fmt.Errorf("offset %d is in the middle of a string", offset)
	}
	return textAt(strings, offset, maxTypeName)
}

// checkBTFExt checks .BTF.ext: for each program, which function and which source
// lines its instructions belong to.
func (s *Section) checkBTFExt(strings []byte) error {
	if err := s.checkPrefix(btfExtSize); err != nil {
		return err
	}
	if s.word(28) != 0 {
		return refuse(ErrUnsupported, s.Name, "CO-RE relocations: it depends on types of a Linux kernel")
	}
	for _, part := range []struct {
		name   string
		at     uint64
		record uint32
	}{{"functions", 8, funcRecord}, {"lines", 16, lineRecord}} {
		offset, size := uint64(s.word(part.at)), uint64(s.word(part.at+4))
		if !inside(btfExtSize+offset, size, len(s.Data)) || size < 4 || offset%4 != 0 {
			return refuse(ErrTruncated, s.Name, "%s: %d bytes at %d, the section has %d behind its header", part.name, size, offset, s.Size-btfExtSize)
		}
		start := btfExtSize + offset
		if got := s.word(start); got != part.record {
			return s.malformed("%s: records of %d bytes instead of %d", part.name, got, part.record)
		}
		if err := s.checkRecords(part.name, start+4, start+size, uint64(part.record), strings); err != nil {
			return err
		}
	}
	return nil
}

func (s *Section) checkRecords(part string, at, end, record uint64, strings []byte) error {
	seen := map[string]bool{}
	for at < end {
		if end-at < 8 {
			return refuse(ErrTruncated, s.Name, "%s: %d bytes are left over", part, end-at)
		}
		name, err := typeName(strings, s.word(at))
		if err != nil {
			return s.malformed("%s: name of a section: %v", part, err)
		}
		n := uint64(s.word(at + 4))
		at += 8
		if seen[string(name)] || n == 0 {
			return s.malformed("%s: %d records of section %q, or the second time", part, n, name)
		}
		seen[string(name)] = true
		if len(seen) > maxExtParts {
			return refuse(ErrLimit, s.Name, "%s of more than %d sections", part, maxExtParts)
		}
		if n > (end-at)/record {
			return refuse(ErrTruncated, s.Name, "%s: %d records of section %s in %d bytes", part, n, name, end-at)
		}
		at += n * record
	}
	return nil
}
