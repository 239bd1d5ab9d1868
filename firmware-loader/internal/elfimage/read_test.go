package elfimage_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"runtime"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/elfimage"
)

func TestReadTruncated(t *testing.T) {
	b := object(t)
	for n := range b {
		if f, err := elfimage.Read(b[:n:n]); err == nil || f != nil {
			t.Fatalf("%d of %d bytes: accepted", n, len(b))
		} else if e := (*elfimage.Error)(nil); !errors.As(err, &e) {
			t.Fatalf("%d of %d bytes: %v", n, len(b), err)
		}
	}
}

// TestReadRefuses spoils one thing at a time.
func TestReadRefuses(t *testing.T) {
	le := binary.LittleEndian
	type header = elf.Header64
	head := func(change func(h *header)) func(f *file) {
		return func(f *file) {
			h := f.header()
			change(&h)
			f.encode(0, h)
		}
	}
	section := func(name string, change func(s *elf.Section64)) func(f *file) {
		return func(f *file) { f.section(name, change) }
	}
	contents := func(name string, change func(b []byte)) func(f *file) {
		return func(f *file) { change(f.contents(name)) }
	}
	symbol := func(name string, change func(s *elf.Sym64)) func(f *file) {
		return func(f *file) { f.symbol(name, change) }
	}
	for name, c := range map[string]struct {
		spoil   func(f *file)
		reason  error
		section string
	}{
		"no ELF":             {head(func(h *header) { h.Ident[0] = 0 }), elfimage.ErrFormat, ""},
		"32 bits":            {head(func(h *header) { h.Ident[elf.EI_CLASS] = byte(elf.ELFCLASS32) }), elfimage.ErrFormat, ""},
		"big endian":         {head(func(h *header) { h.Ident[elf.EI_DATA] = byte(elf.ELFDATA2MSB) }), elfimage.ErrFormat, ""},
		"x86":                {head(func(h *header) { h.Machine = uint16(elf.EM_X86_64) }), elfimage.ErrMachine, ""},
		"no machine":         {head(func(h *header) { h.Machine = uint16(elf.EM_NONE) }), elfimage.ErrMachine, ""},
		"a program":          {head(func(h *header) { h.Type = uint16(elf.ET_EXEC) }), elfimage.ErrFormat, ""},
		"version":            {head(func(h *header) { h.Version = 2 }), elfimage.ErrFormat, ""},
		"program headers":    {head(func(h *header) { h.Phnum = 1 }), elfimage.ErrFormat, ""},
		"no sections":        {head(func(h *header) { h.Shnum = 0 }), elfimage.ErrFormat, ""},
		"65535 sections":     {head(func(h *header) { h.Shnum = 0xffff }), elfimage.ErrLimit, ""},
		"a section more":     {head(func(h *header) { h.Shnum++ }), elfimage.ErrTruncated, ""},
		"headers far away":   {head(func(h *header) { h.Shoff = 1 << 63 }), elfimage.ErrTruncated, ""},
		"headers wrap":       {head(func(h *header) { h.Shoff = ^uint64(0) - 63 }), elfimage.ErrTruncated, ""},
		"headers in header":  {head(func(h *header) { h.Shoff = 8 }), elfimage.ErrTruncated, ""},
		"names nowhere":      {head(func(h *header) { h.Shstrndx = 0 }), elfimage.ErrMalformed, ""},
		"names outside":      {head(func(h *header) { h.Shstrndx = h.Shnum }), elfimage.ErrMalformed, ""},
		"names in a program": {head(func(h *header) { h.Shstrndx = 5 }), elfimage.ErrMalformed, ""},
		"strings far away":   {section(".strtab", func(s *elf.Section64) { s.Off = 1 << 40 }), elfimage.ErrTruncated, ""},
		"name outside":       {section(".data", func(s *elf.Section64) { s.Name = 1 << 30 }), elfimage.ErrMalformed, ""},
		"two of a name": {func(f *file) {
			f.section(".bss", func(b *elf.Section64) { f.section(".data", func(s *elf.Section64) { b.Name = s.Name }) })
		}, elfimage.ErrMalformed, ".data"},
		"not terminated":     {contents(".strtab", func(b []byte) { b[len(b)-1] = 'x' }), elfimage.ErrMalformed, ".symtab"},
		"escapes in a name":  {contents(".strtab", func(b []byte) { b[bytes.Index(b, []byte(".rodata"))] = 0x1b }), elfimage.ErrMalformed, ""},
		"section 0":          {func(f *file) { f.b[f.header().Shoff+4] = 1 }, elfimage.ErrMalformed, ""},
		"section far away":   {section("pulse/tx", func(s *elf.Section64) { s.Off = 1 << 62 }), elfimage.ErrTruncated, "pulse/tx"},
		"section wraps":      {section(".data", func(s *elf.Section64) { s.Off = ^uint64(0) - 3 }), elfimage.ErrTruncated, ".data"},
		"huge section":       {section(".data", func(s *elf.Section64) { s.Size = 1 << 60 }), elfimage.ErrTruncated, ".data"},
		"huge without bytes": {section(".bss", func(s *elf.Section64) { s.Size = 1 << 40 }), elfimage.ErrLimit, ".bss"},
		"data without bytes": {section(".data", func(s *elf.Section64) { s.Type = uint32(elf.SHT_NOBITS) }), elfimage.ErrMalformed, ".data"},
		"compressed":         {section(".rodata", func(s *elf.Section64) { s.Flags |= uint64(elf.SHF_COMPRESSED) }), elfimage.ErrUnsupported, ".rodata"},
		"alignment":          {section(".rodata", func(s *elf.Section64) { s.Addralign = 3 }), elfimage.ErrMalformed, ".rodata"},
		"in another": {func(f *file) {
			f.section(".rodata", func(r *elf.Section64) { f.section(".data", func(s *elf.Section64) { r.Off = s.Off + 1 }) })
		}, elfimage.ErrMalformed, ".rodata"},
		"in the header":       {section(".rodata", func(s *elf.Section64) { s.Off = 0 }), elfimage.ErrMalformed, "the ELF header"},
		"in the headers":      {func(f *file) { f.section(".rodata", func(s *elf.Section64) { s.Off = f.header().Shoff }) }, elfimage.ErrMalformed, "the section headers"},
		"RELA":                {section(".relpulse/tx", func(s *elf.Section64) { s.Type = uint32(elf.SHT_RELA) }), elfimage.ErrUnsupported, ".relpulse/tx"},
		"not executable":      {section("pulse/tx", func(s *elf.Section64) { s.Flags = uint64(elf.SHF_ALLOC) }), elfimage.ErrMalformed, "pulse/tx"},
		"half an instruction": {section("pulse/tx", func(s *elf.Section64) { s.Size -= 4 }), elfimage.ErrMalformed, "pulse/tx"},
		"empty program":       {section("filter/rx", func(s *elf.Section64) { s.Size = 0 }), elfimage.ErrMalformed, "filter/rx"},
		"executable data":     {section(".rodata", func(s *elf.Section64) { s.Flags |= uint64(elf.SHF_EXECINSTR) }), elfimage.ErrUnsupported, ".rodata"},
		"unknown hook":        {contents(".strtab", func(b []byte) { copy(b[bytes.Index(b, []byte("filter/rx")):], "filter/xx") }), elfimage.ErrUnsupported, "filter/xx"},
		"unknown data":        {contents(".strtab", func(b []byte) { copy(b[bytes.Index(b, []byte(".bss")):], ".bzz") }), elfimage.ErrUnsupported, ".bzz"},
		"maps without bytes":  {section(".maps", func(s *elf.Section64) { s.Type = uint32(elf.SHT_NOBITS) }), elfimage.ErrMalformed, ".maps"},
		"no symbols":          {section(".symtab", func(s *elf.Section64) { s.Type = uint32(elf.SHT_PROGBITS) }), elfimage.ErrMalformed, ""},
		"symbols of 0 bytes":  {section(".symtab", func(s *elf.Section64) { s.Entsize = 0 }), elfimage.ErrMalformed, ".symtab"},
		"half a symbol":       {section(".symtab", func(s *elf.Section64) { s.Size -= 8 }), elfimage.ErrMalformed, ".symtab"},
		"symbols unnamed":     {section(".symtab", func(s *elf.Section64) { s.Link = 77 }), elfimage.ErrMalformed, ".symtab"},
		"symbol far away":     {symbol("counter", func(s *elf.Sym64) { s.Value = 1 << 40 }), elfimage.ErrMalformed, ".bss"},
		"symbol wraps":        {symbol("counter", func(s *elf.Sym64) { s.Value, s.Size = ^uint64(0), 8 }), elfimage.ErrMalformed, ".bss"},
		"symbol nowhere":      {symbol("counter", func(s *elf.Sym64) { s.Shndx = 0x1234 }), elfimage.ErrMalformed, ".symtab"},
		"symbol name":         {symbol("counter", func(s *elf.Sym64) { s.Name = ^uint32(0) }), elfimage.ErrMalformed, ".symtab"},
		"half a function":     {symbol("transmit", func(s *elf.Sym64) { s.Size -= 8 }), elfimage.ErrUnsupported, "pulse/tx"},
		"function inside":     {symbol("transmit", func(s *elf.Sym64) { s.Value, s.Size = 8, s.Size-8 }), elfimage.ErrUnsupported, "pulse/tx"},
		"no function":         {symbol("transmit", func(s *elf.Sym64) { s.Info = elf.ST_INFO(elf.STB_GLOBAL, elf.STT_OBJECT) }), elfimage.ErrMalformed, "pulse/tx"},
		"two functions": {func(f *file) {
			f.symbol("transmit", func(tx *elf.Sym64) { f.symbol("in", func(s *elf.Sym64) { s.Shndx, s.Size = tx.Shndx, tx.Size }) })
		}, elfimage.ErrMalformed, "pulse/tx"},
		"relocations of others":  {section(".relpulse/tx", func(s *elf.Section64) { s.Link = 1 }), elfimage.ErrMalformed, ".relpulse/tx"},
		"relocations of nothing": {section(".relpulse/tx", func(s *elf.Section64) { s.Info = 99 }), elfimage.ErrMalformed, ".relpulse/tx"},
		"relocations of 8 bytes": {section(".relpulse/tx", func(s *elf.Section64) { s.Entsize = 8 }), elfimage.ErrMalformed, ".relpulse/tx"},
		"relocations twice": {func(f *file) {
			f.section(".relfilter/tx", func(r *elf.Section64) { f.section(".relpulse/tx", func(s *elf.Section64) { r.Info = s.Info }) })
		}, elfimage.ErrMalformed, ".relfilter/tx"},
		"relocations in data": {func(f *file) {
			f.section(".relfilter/tx", func(r *elf.Section64) { f.symbol("threshold", func(s *elf.Sym64) { r.Info = uint32(s.Shndx) }) })
		}, elfimage.ErrUnsupported, ".data"},
		"relocation outside":      {contents(".relpulse/tx", func(b []byte) { le.PutUint64(b, 1<<32) }), elfimage.ErrMalformed, "pulse/tx"},
		"relocation wraps":        {contents(".relpulse/tx", func(b []byte) { le.PutUint64(b, ^uint64(7)) }), elfimage.ErrMalformed, "pulse/tx"},
		"relocation misaligned":   {contents(".relpulse/tx", func(b []byte) { le.PutUint64(b, 4) }), elfimage.ErrMalformed, "pulse/tx"},
		"relocation of no load":   {contents(".relpulse/tx", func(b []byte) { le.PutUint64(b, 48) }), elfimage.ErrMalformed, "pulse/tx"},
		"relocation of half":      {contents(".relpulse/tx", func(b []byte) { le.PutUint64(b, 8) }), elfimage.ErrMalformed, "pulse/tx"},
		"relocated twice":         {contents(".relpulse/tx", func(b []byte) { copy(b[16:24], b[:8]) }), elfimage.ErrMalformed, "pulse/tx"},
		"relocation of no symbol": {contents(".relpulse/tx", func(b []byte) { le.PutUint32(b[12:], 1<<31) }), elfimage.ErrMalformed, "pulse/tx"},
		"relocation of symbol 0":  {contents(".relpulse/tx", func(b []byte) { le.PutUint32(b[12:], 0) }), elfimage.ErrMalformed, "pulse/tx"},
		"relocation type":         {contents(".relpulse/tx", func(b []byte) { le.PutUint32(b[8:], 2) }), elfimage.ErrUnsupported, "pulse/tx"},
		"a call":                  {contents(".relpulse/tx", func(b []byte) { le.PutUint32(b[8:], 10) }), elfimage.ErrUnsupported, "pulse/tx"},
		"undefined symbol":        {symbol("counter", func(s *elf.Sym64) { s.Shndx = 0 }), elfimage.ErrUnsupported, "pulse/tx"},
		"address of a function": {func(f *file) {
			f.symbol("in", func(r *elf.Sym64) {
				f.symbol("counter", func(s *elf.Sym64) { s.Shndx, s.Value, s.Size = r.Shndx, 0, r.Size })
			})
		}, elfimage.ErrUnsupported, "pulse/tx"},
		"no magic of types":        {contents(".BTF", func(b []byte) { b[0] = 0 }), elfimage.ErrMalformed, ".BTF"},
		"types of big endian":      {contents(".BTF", func(b []byte) { b[0], b[1] = b[1], b[0] }), elfimage.ErrMalformed, ".BTF"},
		"types outside":            {contents(".BTF", func(b []byte) { le.PutUint32(b[12:], ^uint32(0)) }), elfimage.ErrTruncated, ".BTF"},
		"strings of types":         {contents(".BTF", func(b []byte) { le.PutUint32(b[20:], ^uint32(0)) }), elfimage.ErrTruncated, ".BTF"},
		"strings not terminated":   {contents(".BTF", func(b []byte) { b[len(b)-1] = 'x' }), elfimage.ErrMalformed, ".BTF"},
		"kind of a type":           {contents(".BTF", func(b []byte) { b[24+7] = 31 }), elfimage.ErrMalformed, ".BTF"},
		"kind 0":                   {contents(".BTF", func(b []byte) { b[24+7] = 0 }), elfimage.ErrMalformed, ".BTF"},
		"members of a type":        {contents(".BTF", func(b []byte) { b[24+7] = 4; le.PutUint16(b[24+4:], 0xffff) }), elfimage.ErrTruncated, ".BTF"},
		"name of a type":           {contents(".BTF", func(b []byte) { le.PutUint32(b[24:], 1<<30) }), elfimage.ErrMalformed, ".BTF"},
		"middle of a name":         {contents(".BTF", func(b []byte) { le.PutUint32(b[24:], 2) }), elfimage.ErrMalformed, ".BTF"},
		"lines outside":            {contents(".BTF.ext", func(b []byte) { le.PutUint32(b[20:], ^uint32(0)) }), elfimage.ErrTruncated, ".BTF.ext"},
		"lines wrap":               {contents(".BTF.ext", func(b []byte) { le.PutUint32(b[16:], ^uint32(3)) }), elfimage.ErrTruncated, ".BTF.ext"},
		"no room for lines":        {contents(".BTF.ext", func(b []byte) { le.PutUint32(b[20:], 0) }), elfimage.ErrTruncated, ".BTF.ext"},
		"lines of 0 bytes":         {contents(".BTF.ext", func(b []byte) { clear(b[32+le.Uint32(b[16:]):][:4]) }), elfimage.ErrMalformed, ".BTF.ext"},
		"4 billion lines":          {contents(".BTF.ext", func(b []byte) { le.PutUint32(b[32+le.Uint32(b[16:])+8:], ^uint32(0)) }), elfimage.ErrTruncated, ".BTF.ext"},
		"lines of no section":      {contents(".BTF.ext", func(b []byte) { le.PutUint32(b[32+le.Uint32(b[16:])+4:], 1<<20) }), elfimage.ErrMalformed, ".BTF.ext"},
		"dependent on a kernel":    {contents(".BTF.ext", func(b []byte) { le.PutUint32(b[28:], 4) }), elfimage.ErrUnsupported, ".BTF.ext"},
		"short header of lines":    {contents(".BTF.ext", func(b []byte) { le.PutUint32(b[4:], 24) }), elfimage.ErrMalformed, ".BTF.ext"},
		"cut off header of lines":  {section(".BTF.ext", func(s *elf.Section64) { s.Size = 16 }), elfimage.ErrTruncated, ".BTF.ext"},
		"functions of 4096 bytes":  {contents(".BTF.ext", func(b []byte) { le.PutUint32(b[32:], 4096) }), elfimage.ErrMalformed, ".BTF.ext"},
		"leftover of the lines":    {contents(".BTF.ext", func(b []byte) { le.PutUint32(b[20:], le.Uint32(b[20:])-8) }), elfimage.ErrTruncated, ".BTF.ext"},
		"a section's lines, twice": {contents(".BTF.ext", func(b []byte) { copy(b[32+4+16:][:4], b[32+4:]) }), elfimage.ErrMalformed, ".BTF.ext"},
	} {
		t.Run(name, func(t *testing.T) {
			f := &file{t, object(t)}
			c.spoil(f)
			got, err := elfimage.Read(f.b)
			var e *elfimage.Error
			should.Hold(t, errors.As(err, &e) && errors.Is(err, c.reason) && e.Section == c.section && got == nil,
				"%v; want %v of %q", err, c.reason, c.section)
		})
	}
}

func TestReadLimits(t *testing.T) {
	should.Refuse(elfimage.Read(make([]byte, elfimage.MaxFile+1)))(t, elfimage.ErrLimit, "a file that is too large")
	// The largest file that is read, whose headers promise all there can be.
	f := &file{t, append(object(t), make([]byte, elfimage.MaxFile)...)[:elfimage.MaxFile]}
	f.section(".data", func(s *elf.Section64) { s.Size = elfimage.MaxFile })
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := elfimage.Read(f.b)
	should.Hold(t, err != nil, "it was accepted")
	runtime.ReadMemStats(&after)
	n := after.TotalAlloc - before.TotalAlloc
	should.Hold(t, n <= 1<<20, "%d bytes allocated", n)
}
