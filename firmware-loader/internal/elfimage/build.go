package elfimage

import (
	"debug/elf"
	"encoding/binary"
	"io"
	"slices"
	"strings"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// Build returns an ELF file like those that clang makes, with a note that has no
// digest yet. In the programs of img, jumps may name symbols, loads of maps name them
// (asm.LoadMapPtr and asm.LoadMapValue with WithReference), and comments and lines become
// the lines of the source. Maps named .data, .rodata or .bss, or so and more behind
// another dot, are global variables and may have contents: array maps with one entry.
// Errors are *Error.
func Build(img flat.Image) ([]byte, error) {
	w := &writer{symbolOf: map[string]int{}, sectionOf: map[string]int{}}
	w.section(Section{})
	w.section(Section{Name: ".strtab", Type: elf.SHT_STRTAB, Align: 1, Data: []byte{0}})
	w.f.names = 1
	w.symbols = append(w.symbols, elf.Sym64{})
	if err := w.data(img.Maps); err != nil {
		return nil, err
	}
	w.locals = len(w.symbols)
	types := &typeWriter{}
	maps := slices.DeleteFunc(slices.Clone(img.Maps), func(m abi.Map) bool { return dataName(m.Name) })
	if err := w.maps(maps, types); err != nil {
		return nil, err
	}
	for h := range abi.Hooks {
		if err := w.program(h, img.Programs[h], types); err != nil {
			return nil, err
		}
	}
	if err := types.write(&w.f); err != nil {
		return nil, err
	}
	note := Note{ABI: abi.Version, Device: img.Device, BuildID: img.BuildID}
	for _, t := range []struct {
		field, text string
		to          []byte
	}{{"name", img.Name, note.Name[:]}, {"version", img.Version, note.Version[:]}} {
		if err := flat.CheckText(t.field, t.text, len(t.to)); err != nil {
			return nil, refuse(ErrMalformed, NoteSection, "%v", err)
		}
		copy(t.to, t.text)
	}
	w.f.SetNote(&note)
	w.symbolTable()
	b := w.f.Bytes()
	if _, err := Read(b); err != nil {
		return nil, err
	}
	return b, nil
}

// writer builds a File.
type writer struct {
	f         File
	symbols   []elf.Sym64
	symbolOf  map[string]int // of maps
	sectionOf map[string]int // of global variables, whose symbol is symbolOf
	locals    int            // symbols before the first global one
	relocated []int          // sections with relocations
}

func (w *writer) section(s Section) int {
	s.Size = max(s.Size, uint64(len(s.Data)))
	w.f.Sections = append(w.f.Sections, s)
	return len(w.f.Sections) - 1
}

// symbol adds a symbol and returns its index.
func (w *writer) symbol(name string, bind elf.SymBind, kind elf.SymType, section int, value, size uint64) int {
	names := &w.f.Sections[w.f.names]
	var at uint32
	if name != "" {
		names.Data, at = addString(names.Data, name)
		names.Size = uint64(len(names.Data))
	}
	w.symbols = append(w.symbols, elf.Sym64{Name: at, Info: elf.ST_INFO(bind, kind), Shndx: uint16(section), Value: value, Size: size})
	return len(w.symbols) - 1
}

// data writes the sections of global variables. Each has the symbol of the
// section, and one for a variable that is all of it: loaders skip sections
// without variables.
func (w *writer) data(maps []abi.Map) error {
	for _, m := range maps {
		if !dataName(m.Name) {
			continue
		}
		if err := flat.CheckMap(m); err != nil {
			return refuse(ErrMalformed, m.Name, "%v", err)
		}
		if _, double := w.symbolOf[m.Name]; double {
			return refuse(ErrMalformed, m.Name, "two maps have this name")
		}
		readOnly := strings.HasPrefix(m.Name, ".rodata")
		if m.Type != abi.MapArray || m.Entries != 1 || (m.Flags == abi.MapReadOnly) != readOnly {
			return refuse(ErrMalformed, m.Name, "global variables are an array map with one entry, read-only if and only if they are .rodata")
		}
		s := Section{Name: m.Name, Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_WRITE, Align: 8, Size: uint64(m.Value)}
		if readOnly {
			s.Flags = elf.SHF_ALLOC
		}
		if m.Name == ".bss" {
			if slices.ContainsFunc(m.Contents, func(c byte) bool { return c != 0 }) {
				return refuse(ErrMalformed, m.Name, "its contents are not zero")
			}
			s.Type = elf.SHT_NOBITS
		} else {
			s.Data = append(slices.Clone(m.Contents), make([]byte, int(m.Value)-len(m.Contents))...)
		}
		i := w.section(s)
		w.symbolOf[m.Name], w.sectionOf[m.Name] = w.symbol("", elf.STB_LOCAL, elf.STT_SECTION, i, 0, 0), i
		w.symbol("variables", elf.STB_LOCAL, elf.STT_OBJECT, i, 0, s.Size)
	}
	return nil
}

// maps writes the section of the other maps: their definitions are types, and
// the section has as many zeros as those take.
func (w *writer) maps(maps []abi.Map, types *typeWriter) error {
	if len(maps) == 0 {
		return nil
	}
	at := len(w.f.Sections)
	size := uint64(0)
	for _, m := range maps {
		if err := flat.CheckMap(m); err != nil {
			return refuse(ErrMalformed, mapsSection, "%v", err)
		}
		if _, double := w.symbolOf[m.Name]; double || len(m.Contents) > 0 {
			return refuse(ErrMalformed, mapsSection, "map %s: its name is not unique, or it has contents and is no .data or .rodata", m.Name)
		}
		n := uint64(types.addMap(m, uint32(size)))
		w.symbolOf[m.Name] = w.symbol(m.Name, elf.STB_GLOBAL, elf.STT_OBJECT, at, size, n)
		size += n
	}
	w.section(Section{Name: mapsSection, Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_WRITE, Align: 8, Data: make([]byte, size)})
	types.mapsSize = uint32(size)
	return nil
}

// program writes a program and its relocations.
func (w *writer) program(h abi.Hook, source asm.Instructions, types *typeWriter) error {
	if len(source) == 0 {
		return nil
	}
	bad := func(format string, args ...any) error { return refuse(ErrMalformed, h.String(), format, args...) }
	if len(source) > abi.MaxInstructions {
		return refuse(ErrLimit, h.String(), "%d instructions; allowed: up to %d", len(source), abi.MaxInstructions)
	}
	// Encoding resolves symbolic jumps, in place.
	insns := slices.Clone(source)
	if err := insns.Marshal(io.Discard, binary.LittleEndian); err != nil {
		return bad("%v", err)
	}
	name := strings.ReplaceAll(h.String(), "/", "_")
	if err := types.addProgram(h.String(), name, insns); err != nil {
		return bad("%v", err)
	}
	var relocations []elf.Rel64
	iter := insns.Iterate()
	for iter.Next() {
		ins := iter.Ins
		if !ins.IsLoadFromMap() {
			continue
		}
		ref := ins.Reference()
		number, ok := w.symbolOf[ref]
		_, variables := w.sectionOf[ref]
		if !ok || variables != (ins.Src == asm.PseudoMapValue) {
			return bad("instruction %d: there is no such map: %q", iter.Index, ref)
		}
		// The offset of a variable stands in the low half, as clang has it.
		ins.Src, ins.Constant = asm.R0, int64(uint64(ins.Constant)>>32)
		relocations = append(relocations, elf.Rel64{Off: iter.Offset.Bytes(), Info: elf.R_INFO(uint32(number), relocate64)})
	}
	code, err := flat.EncodeInstructions(insns)
	if err != nil {
		return bad("%v", err)
	}
	i := w.section(Section{Name: h.String(), Type: elf.SHT_PROGBITS, Flags: elf.SHF_ALLOC | elf.SHF_EXECINSTR, Align: 8, Data: code})
	w.symbol(name, elf.STB_GLOBAL, elf.STT_FUNC, i, 0, uint64(len(code)))
	if len(relocations) > 0 {
		w.relocated = append(w.relocated, w.section(Section{Name: ".rel" + h.String(), Type: elf.SHT_REL, Flags: elf.SHF_INFO_LINK,
			Info: uint32(i), Align: 8, Entry: relSize, Data: encoded(relocations)}))
	}
	return nil
}

// symbolTable writes the symbols, when all are known.
func (w *writer) symbolTable() {
	i := w.section(Section{Name: ".symtab", Type: elf.SHT_SYMTAB, Link: uint32(w.f.names), Info: uint32(w.locals), Align: 8, Entry: symbolSize, Data: encoded(w.symbols)})
	for _, r := range w.relocated {
		w.f.Sections[r].Link = uint32(i)
	}
}
