package elfimage_test

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/elfimage"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// TestBuildForOthers reads what Build wrote with the standard library.
func TestBuildForOthers(t *testing.T) {
	b := build(t, sample())
	if again := build(t, sample()); !bytes.Equal(b, again) {
		t.Error("the same image makes two files")
	}
	f, err := elf.NewFile(bytes.NewReader(b))
	if err != nil {
		t.Fatal(err)
	}
	if f.Machine != elf.EM_BPF || f.Type != elf.ET_REL || f.ByteOrder != binary.LittleEndian {
		t.Errorf("%+v", f.FileHeader)
	}
	want := []string{"", ".strtab", ".data", ".rodata", ".bss", ".maps", "pulse/tx", ".relpulse/tx", "filter/rx", ".relfilter/rx",
		".BTF", ".BTF.ext", ".note.trapeze", ".symtab"}
	var names []string
	for _, s := range f.Sections {
		names = append(names, s.Name)
		if s.Addralign > 1 && s.Offset%s.Addralign != 0 {
			t.Errorf("%s starts at %d, its alignment is %d", s.Name, s.Offset, s.Addralign)
		}
	}
	if d := cmp.Diff(want, names); d != "" {
		t.Errorf("sections (-want +got):\n%s", d)
	}
	data, err := f.Section(".data").Data()
	if err != nil || !bytes.Equal(data, []byte{1, 2, 3, 0, 0, 0, 0, 0, 0, 0, 0, 0}) {
		t.Errorf(".data is % x, %v", data, err)
	}
	if s := f.Section(".bss"); s.Type != elf.SHT_NOBITS || s.Size != 16 {
		t.Errorf(".bss is %+v", s.SectionHeader)
	}
	code, err := f.Section("pulse/tx").Data()
	// 64-bit loads with nothing, or the offset of a variable, where the
	// relocation goes; the jump is resolved.
	if err != nil || !bytes.Equal(code[:48], append(append([]byte{
		0x18, 0x01, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
		0x18, 0x02, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0,
	}, 0x18, 0x03, 0, 0, 2, 0, 0, 0), make([]byte, 8)...)) {
		t.Errorf("pulse/tx is % x, %v", code, err)
	}
	if jump := code[56:64]; !bytes.Equal(jump, []byte{0x15, 0, 1, 0, 3, 0, 0, 0}) {
		t.Errorf("the jump is % x", jump)
	}
	symbols, err := f.Symbols()
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []struct {
		name, section string
		kind          elf.SymType
	}{{"flows", ".maps", elf.STT_OBJECT}, {"table", ".maps", elf.STT_OBJECT}, {"pulse_tx", "pulse/tx", elf.STT_FUNC}} {
		i := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return s.Name == want.name })
		if i < 0 || f.Sections[symbols[i].Section].Name != want.section || symbols[i].Info != elf.ST_INFO(elf.STB_GLOBAL, want.kind) {
			t.Errorf("symbol %s: %d of %+v", want.name, i, symbols)
		}
	}
	// All local symbols come before the first global one, where sh_info says.
	first := slices.IndexFunc(symbols, func(s elf.Symbol) bool { return elf.ST_BIND(s.Info) == elf.STB_GLOBAL })
	if info := f.Section(".symtab").Info; int(info) != first+1 {
		t.Errorf("the first global symbol is %d, .symtab says %d", first+1, info)
	}
}

// TestBuildForTools asks programs that are not ours, where they are installed.
func TestBuildForTools(t *testing.T) {
	name := filepath.Join(t.TempDir(), "sample.o")
	if err := os.WriteFile(name, build(t, sample()), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args []string
		says []string
	}{
		{[]string{"readelf", "--all", "--wide", name}, []string{"Linux BPF", ".maps", "R_BPF_", "Trapeze", "pulse_tx"}},
		{[]string{"llvm-objdump", "--disassemble", "--reloc", name}, []string{"<pulse_tx>:", "if r0 == 3 goto +1", "R_BPF_64_64", "flows"}},
	} {
		t.Run(c.args[0], func(t *testing.T) {
			path, err := exec.LookPath(c.args[0])
			if err != nil {
				t.Skipf("%s is not installed", c.args[0])
			}
			out, err := exec.CommandContext(t.Context(), path, c.args[1:]...).CombinedOutput()
			if err != nil {
				t.Fatalf("%v: %s", err, out)
			}
			for _, want := range c.says {
				if !strings.Contains(string(out), want) {
					t.Errorf("it does not say %q:\n%s", want, out)
				}
			}
			if strings.Contains(strings.ToLower(string(out)), "warning") || strings.Contains(strings.ToLower(string(out)), "corrupt") {
				t.Errorf("it complains:\n%s", out)
			}
		})
	}
}

func TestBuildRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		spoil   func(img *flat.Image)
		section string
	}{
		"no name":              {func(i *flat.Image) { i.Name = "" }, ".note.trapeze"},
		"version too long":     {func(i *flat.Image) { i.Version = "12345678901234567" }, ".note.trapeze"},
		"no programs":          {func(i *flat.Image) { i.Programs = [abi.Hooks]asm.Instructions{} }, ""},
		"too many":             {func(i *flat.Image) { i.Programs[0] = make(asm.Instructions, abi.MaxInstructions+1) }, "pulse/tx"},
		"unknown map":          {func(i *flat.Image) { i.Maps = i.Maps[1:] }, "pulse/tx"},
		"map without a name":   {func(i *flat.Image) { i.Programs[0][0] = asm.LoadMapPtr(asm.R1, 0) }, "pulse/tx"},
		"value of a hash map":  {func(i *flat.Image) { i.Programs[0][1] = asm.LoadMapValue(asm.R1, 0, 0).WithReference("flows") }, "pulse/tx"},
		"variables as a map":   {func(i *flat.Image) { i.Programs[0][1] = asm.LoadMapPtr(asm.R1, 0).WithReference(".data") }, "pulse/tx"},
		"jump to nowhere":      {func(i *flat.Image) { i.Programs[0][4] = asm.JEq.Imm(asm.R0, 3, "nowhere") }, "pulse/tx"},
		"not an instruction":   {func(i *flat.Image) { i.Programs[0][3].OpCode = asm.InvalidOpCode }, "pulse/tx"},
		"bad map":              {func(i *flat.Image) { i.Maps[0].Entries = 0 }, ".maps"},
		"contents of a table":  {func(i *flat.Image) { i.Maps[2].Contents = []byte{1} }, ".maps"},
		"two maps of a name":   {func(i *flat.Image) { i.Maps[2].Name = "flows" }, ".maps"},
		"two of .data":         {func(i *flat.Image) { i.Maps[4].Name = ".data" }, ".data"},
		"variables in a hash":  {func(i *flat.Image) { i.Maps[1].Type, i.Maps[1].Contents = abi.MapHash, nil }, ".data"},
		"two entries":          {func(i *flat.Image) { i.Maps[1].Entries = 2 }, ".data"},
		"read-only .data":      {func(i *flat.Image) { i.Maps[1].Flags = abi.MapReadOnly }, ".data"},
		"writable .rodata":     {func(i *flat.Image) { i.Maps[3].Flags = 0 }, ".rodata"},
		"contents of .bss":     {func(i *flat.Image) { i.Maps[4].Contents = []byte{0, 1} }, ".bss"},
		"constant of 40 bits":  {func(i *flat.Image) { i.Programs[0][3].Constant = 1 << 40 }, "pulse/tx"},
		"address of a program": {func(i *flat.Image) { i.Programs[0][3] = asm.Ja.Label("flows") }, "pulse/tx"},
	} {
		t.Run(name, func(t *testing.T) {
			img := sample()
			c.spoil(&img)
			b, err := elfimage.Build(img)
			var e *elfimage.Error
			if !errors.As(err, &e) || e.Section != c.section || b != nil {
				t.Errorf("%v, %d bytes; want an error about %q", err, len(b), c.section)
			}
		})
	}
}

// TestBuildKeepsItsInput: programs can be built again.
func TestBuildKeepsItsInput(t *testing.T) {
	img := sample()
	build(t, img)
	if ins := img.Programs[0][4]; ins.Offset != -1 || ins.Reference() != "out" {
		t.Errorf("the jump has become %v to %q", ins, ins.Reference())
	}
	if ins := img.Programs[0][0]; ins.Src != asm.PseudoMapFD || ins.Reference() != "flows" {
		t.Errorf("the load has become %v of %q", ins, ins.Reference())
	}
}

// TestFileRoundTrip: what has been read can be written, and read again.
func TestFileRoundTrip(t *testing.T) {
	b := build(t, sample())
	f, err := elfimage.Read(b)
	if err != nil {
		t.Fatal(err)
	}
	if again := f.Bytes(); !bytes.Equal(again, b) {
		t.Errorf("%d bytes became %d", len(b), len(again))
	}
	n, err := f.Note()
	if err != nil {
		t.Fatal(err)
	}
	if n.ABI != abi.Version || n.Device != 0x12347250 || string(n.Name[:7]) != "sample\x00" || n.BuildID != [20]byte{1, 2, 3} || n.Flags != 0 {
		t.Errorf("note %+v", n)
	}
	n.Flags, n.Digest = elfimage.FlagSigned, [32]byte{9}
	f.SetNote(n)
	f.Set("extra", elf.SHT_PROGBITS, 0, 1, []byte("behind the others"))
	g, err := elfimage.Read(f.Bytes())
	if err != nil {
		t.Fatal(err)
	}
	if m, err := g.Note(); err != nil || *m != *n {
		t.Errorf("note %+v, %v; want %+v", m, err, n)
	}
	if s := g.Section("extra"); s == nil || string(s.Data) != "behind the others" || g.Section("nothing") != nil {
		t.Errorf("extra is %+v", s)
	}
}

func TestNote(t *testing.T) {
	for name, spoil := range map[string]func(b []byte){
		"owner":         func(b []byte) { b[12] = 't' },
		"type":          func(b []byte) { b[8] = 2 },
		"size":          func(b []byte) { b[4]++ },
		"reserved":      func(b []byte) { b[20+12] = 1 },
		"more reserved": func(b []byte) { b[20+84] = 1 },
	} {
		f := &file{t, build(t, sample())}
		spoil(f.contents(".note.trapeze"))
		read, err := elfimage.Read(f.b)
		if err != nil {
			t.Fatal(err)
		}
		if n, err := read.Note(); !errors.Is(err, elfimage.ErrMalformed) || n != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	f := &file{t, build(t, sample())}
	f.section(".note.trapeze", func(s *elf.Section64) { s.Size -= 4 })
	read, err := elfimage.Read(f.b)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := read.Note(); !errors.Is(err, elfimage.ErrMalformed) {
		t.Errorf("cut off: %v", err)
	}
}
