package firmware_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/elfimage"
)

// types returns .BTF with n types of a kind: each has a name as long as names may
// be, and so many members of the size and with that name.
func types(kind, n, members, size int) []byte {
	name := strings.Repeat("n", 256)
	text := "\x00" + name + "\x00"
	var list []byte
	for range n {
		list = binary.LittleEndian.AppendUint32(list, 1)
		list = binary.LittleEndian.AppendUint32(list, uint32(kind<<24|members))
		list = binary.LittleEndian.AppendUint32(list, 4)
		for range members {
			member := make([]byte, size)
			binary.LittleEndian.PutUint32(member, 1)
			list = append(list, member...)
		}
	}
	b := []byte{0x9f, 0xeb, 1, 0}
	for _, v := range []int{24, 0, len(list), len(list), len(text)} {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return append(append(b, list...), text...)
}

// extended returns .BTF.ext with these records of functions and lines.
func extended(functions, lines []byte) []byte {
	b := []byte{0x9f, 0xeb, 1, 0}
	for _, v := range []int{32, 0, len(functions), len(functions), len(lines), 0, 0} {
		b = binary.LittleEndian.AppendUint32(b, uint32(v))
	}
	return append(append(b, functions...), lines...)
}

// TestAllocation: files whose structure is sound and that make a reader work as
// hard as they can. What is allocated is bounded, whether they are accepted or not.
func TestAllocation(t *testing.T) {
	const limit = 64 << 20
	le := binary.LittleEndian
	base := small(t).Bytes()
	with := func(change func(f *elfimage.File)) []byte {
		f := must.Get(elfimage.Read(base))(t)
		change(f)
		return f.Bytes()
	}
	const progbits = elf.SHT_PROGBITS
	manyLines := le.AppendUint32(nil, 16)
	manyLines = le.AppendUint32(manyLines, 1)
	manyLines = le.AppendUint32(manyLines, 60000)
	manyLines = append(manyLines, make([]byte, 16*60000)...)
	for name, b := range map[string][]byte{
		"zeros to the limit": append(slices.Clone(base), make([]byte, elfimage.MaxFile-len(base))...),
		"a section of all that there may be": with(func(f *elfimage.File) {
			f.Set("filler", progbits, 0, 1, make([]byte, elfimage.MaxFile-len(base)-200))
		}),
		"types with long names": with(func(f *elfimage.File) { f.Set(".BTF", progbits, 0, 4, types(2, 8000, 0, 0)) }),
		"members with long names": with(func(f *elfimage.File) {
			f.Set(".BTF", progbits, 0, 4, types(6, 2, 60000, 8))
			f.Set(".BTF.ext", progbits, 0, 4, extended(append(le.AppendUint32(nil, 8), 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0), le.AppendUint32(nil, 16)))
		}),
		"60000 lines": with(func(f *elfimage.File) {
			f.Set(".BTF", progbits, 0, 4, types(2, 1, 0, 0))
			f.Set(".BTF.ext", progbits, 0, 4, extended(le.AppendUint32(nil, 8), manyLines))
		}),
		"a chain of types": with(func(f *elfimage.File) {
			b := types(2, 8000, 0, 0)
			for i := range 8000 {
				le.PutUint32(b[24+12*i+8:], uint32(i)) // each points to the one before
			}
			f.Set(".BTF", progbits, 0, 4, b)
			f.Set(".BTF.ext", progbits, 0, 4, extended(append(le.AppendUint32(nil, 8), 1, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0x40, 0x1f, 0, 0), le.AppendUint32(nil, 16)))
		}),
		"4096 symbols with long names": with(func(f *elfimage.File) {
			names := append([]byte{0}, bytes.Repeat([]byte("n"), 255)...)
			at := len(f.Section(".strtab").Data)
			f.Section(".strtab").Data = append(bytes.Clone(f.Section(".strtab").Data), append(names, 0)...)
			table := bytes.Clone(f.Section(".symtab").Data)
			for len(table) < 24*4096 {
				table = append(table, make([]byte, 24)...)
				le.PutUint32(table[len(table)-24:], uint32(at+1))
			}
			s := f.Section(".symtab")
			s.Data, s.Size = table, uint64(len(table))
		}),
	} {
		t.Run(name, func(t *testing.T) {
			must.Hold(t, len(b) <= elfimage.MaxFile, "%d bytes are refused for their number", len(b))
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			_, err := firmware.Parse(b)
			runtime.ReadMemStats(&after)
			n := after.TotalAlloc - before.TotalAlloc
			should.Hold(t, n <= limit, "%d bytes allocated", n)
			t.Logf("%d KiB, file of %d KiB: %v", n>>10, len(b)>>10, err)
		})
	}
}
