package elfimage

import (
	"debug/elf"
	"encoding/binary"
	"fmt"

	"github.com/cilium/ebpf/asm"
	"github.com/cilium/ebpf/btf"

	"github.com/trapeze-nic/trapeze/internal/abi"
)

// typeWriter collects type information: the definitions of maps, and which
// function and which lines instructions belong to.
type typeWriter struct {
	builder  btf.Builder
	maps     []btf.VarSecinfo
	mapsSize uint32
	programs []programLines
}

// programLines are the records of .BTF.ext of one program.
type programLines struct {
	section          string
	functions, lines []byte
}

// addMap adds a map, whose definition stands at an offset of the section of maps,
// and returns the bytes of the definition.
func (t *typeWriter) addMap(m abi.Map, offset uint32) uint32 {
	def := &btf.Struct{}
	for _, f := range []struct {
		name  string
		value uint32
	}{
		{"type", uint32(m.Type)}, {"key_size", m.Key}, {"value_size", m.Value},
		{"max_entries", m.Entries}, {"map_flags", m.Flags},
	} {
		def.Members = append(def.Members, btf.Member{Name: f.name, Type: number(f.value), Offset: btf.Bits(64 * len(def.Members))})
	}
	def.Size = uint32(8 * len(def.Members))
	t.maps = append(t.maps, btf.VarSecinfo{
		Type:   &btf.Var{Name: m.Name, Type: def, Linkage: btf.GlobalVar},
		Offset: offset, Size: def.Size,
	})
	return def.Size
}

// number is the form of a number in a map's definition: as a pointer to an array of
// so many elements (the macro __uint of libbpf).
func number(n uint32) btf.Type {
	i := &btf.Int{Name: "int", Size: 4, Encoding: btf.Signed}
	return &btf.Pointer{Target: &btf.Array{Index: i, Type: i, Nelems: n}}
}

// addProgram adds a function with the lines that its instructions carry.
func (t *typeWriter) addProgram(section, name string, insns asm.Instructions) error {
	marked := append(asm.Instructions{}, insns...)
	marked[0] = btf.WithFuncMetadata(marked[0], &btf.Func{Name: name, Linkage: btf.GlobalFunc, Type: &btf.FuncProto{
		Return: &btf.Int{Name: "long", Size: 8, Encoding: btf.Signed},
		Params: []btf.FuncParam{{Name: "context", Type: &btf.Pointer{Target: &btf.Void{}}}},
	}})
	functions, lines, err := btf.MarshalExtInfos(marked, &t.builder)
	if err != nil {
		return fmt.Errorf("source lines: %w", err)
	}
	// The kernel counts instructions, an ELF file bytes.
	for _, records := range []struct {
		b    []byte
		size int
	}{{functions, funcRecord}, {lines, lineRecord}} {
		for at := 0; at < len(records.b); at += records.size {
			word := records.b[at : at+4]
			binary.LittleEndian.PutUint32(word, binary.LittleEndian.Uint32(word)*asm.InstructionSize)
		}
	}
	t.programs = append(t.programs, programLines{section, functions, lines})
	return nil
}

// write adds .BTF and .BTF.ext to the file.
func (t *typeWriter) write(f *File) error {
	if len(t.maps) > 0 {
		if _, err := t.builder.Add(&btf.Datasec{Name: mapsSection, Size: t.mapsSize, Vars: t.maps}); err != nil {
			return refuse(ErrMalformed, typesSection, "%v", err)
		}
	}
	types, err := t.builder.Marshal(nil, &btf.MarshalOptions{Order: binary.LittleEndian})
	if err != nil {
		return refuse(ErrMalformed, typesSection, "%v", err)
	}
	var functions, lines []byte
	functions = binary.LittleEndian.AppendUint32(functions, funcRecord)
	lines = binary.LittleEndian.AppendUint32(lines, lineRecord)
	for _, p := range t.programs {
		// Strings are the last part of .BTF. The builder has no way to add the
		// names of sections to them.
		at := binary.LittleEndian.Uint32(types[btfStringLen:])
		types = append(append(types, p.section...), 0)
		binary.LittleEndian.PutUint32(types[btfStringLen:], at+uint32(len(p.section))+1)
		functions = appendRecords(functions, at, p.functions, funcRecord)
		lines = appendRecords(lines, at, p.lines, lineRecord)
	}
	ext := binary.LittleEndian.AppendUint16(nil, btfMagic)
	ext = append(ext, 1, 0)
	for _, v := range []int{btfExtSize, 0, len(functions), len(functions), len(lines), len(functions) + len(lines), 0} {
		ext = binary.LittleEndian.AppendUint32(ext, uint32(v))
	}
	f.Set(typesSection, elf.SHT_PROGBITS, 0, 4, types)
	f.Set(linesSection, elf.SHT_PROGBITS, 0, 4, append(append(ext, functions...), lines...))
	return nil
}

// appendRecords appends the records of one section, whose name is the string at
// an offset.
func appendRecords(b []byte, name uint32, records []byte, size int) []byte {
	if len(records) == 0 {
		return b
	}
	b = binary.LittleEndian.AppendUint32(b, name)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(records)/size))
	return append(b, records...)
}
