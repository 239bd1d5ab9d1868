package firmware_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/cilium/ebpf/asm"
	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/elfimage"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

func TestBuild(t *testing.T) {
	s := small(t)
	should.Be(t, same(t, s, small(t)), "", "made again, it has another")
	should.Be(t, same(t, s, parse(t, s.Bytes())), "", "written and parsed, it has another")
	if s.Name != "small" || s.Version != "1.0" || s.ABI != abi.Version || s.Device != 0x12347250 || !s.Built || s.Signature != nil {
		t.Errorf("%+v", s)
	}
	should.Hold(t, s.BuildID != [20]byte{}, "no build ID")
	img := must.Get(flat.Decode(s.Link()))(t)
	should.Hold(t, img.Digest == s.Digest && img.SRAM == s.SRAM,
		"flat image: digest %x, SRAM %d; spec: %x, %d", img.Digest, img.SRAM, s.Digest, s.SRAM)
	// Maps are in the order of their names, with the contents padded.
	want := []abi.Map{
		{Name: ".data", Type: abi.MapArray, Key: 4, Value: 8, Entries: 1, Contents: []byte{1, 2, 3, 4, 5, 0, 0, 0}},
		{Name: "flows", Type: abi.MapHash, Key: 8, Value: 8, Entries: 4},
	}
	should.Be(t, cmp.Diff(want, s.Maps), "", "maps (-want +got)")
	p, ok := s.Program(abi.PulseTx)
	must.Hold(t, ok && p.Hook == abi.PulseTx && len(p.Maps) == 2, "%v, %+v", ok, p)
	// References are by index now.
	for _, c := range []struct {
		at       int
		src      asm.Register
		constant int64
	}{{4, asm.PseudoMapFD, 1}, {7, asm.PseudoMapValue, 0}} {
		ins := p.Instructions[c.at]
		should.Hold(t, ins.Src == c.src && ins.Constant == c.constant, "instruction %d is %v, constant %#x", c.at, ins, ins.Constant)
	}
	should.Contain(t, s.Disassembly(), "/* who is it */", "no lines of the source")
	for _, v := range s.Check() {
		should.Hold(t, v.Err == nil && v.Report.WorstCase >= 8, "%+v", v)
	}
	_, ok = s.Program(abi.FilterRx)
	should.Hold(t, !ok, "a program that is not there")
}

// TestClang parses what clang made: all hooks, two kinds of maps, .data, .rodata,
// .bss, static variables, source lines.
func TestClang(t *testing.T) { checkEverything(t, object(t, "everything")) }

func checkEverything(t *testing.T, b []byte) {
	t.Helper()
	raw := parse(t, b)
	should.Hold(t, !raw.Built && raw.Name == "everything" && raw.Version == "1.2.3" && raw.Device == 0x12347250, "the object is %+v", raw)
	s := must.Get(firmware.Build(b, firmware.Meta{Version: "2.0"}))(t)
	should.Hold(t, s.Built && s.Name == "everything" && s.Version == "2.0", "the image is %+v", s)
	var names []string
	for _, m := range s.Maps {
		names = append(names, m.Name)
	}
	should.Be(t, cmp.Diff([]string{".bss", ".data", ".rodata", "flows", "table"}, names), "", "maps (-want +got)")
	m := s.Maps[3]
	should.Hold(t, m.Type == abi.MapHash && m.Key == 8 && m.Value == 8 && m.Entries == 100, "flows is %+v", m)
	m = s.Maps[4]
	should.Hold(t, m.Type == abi.MapArray && m.Value == 24 && m.Flags == abi.MapReadOnly, "table is %+v", m)
	m = s.Maps[2]
	should.Hold(t, m.Flags == abi.MapReadOnly && bytes.Equal(m.Contents, []byte{9, 0, 0, 0}), ".rodata is %+v", m)
	verdicts := s.Check()
	should.Be(t, len(verdicts), int(abi.Hooks), "programs")
	for _, v := range verdicts {
		should.OK(t, v.Err)
	}
	text := s.Disassembly()
	for _, want := range []string{"filter/tx:", "everything.c:", "if (data + 14 > end)", "<flows>", "FnMapLookupElem"} {
		should.Contain(t, text, want, "the disassembly lacks")
	}
	roles := map[string]string{}
	for _, sec := range s.Sections() {
		roles[sec.Name] = sec.Role
	}
	if roles["filter/rx"] != "program" || roles[".maps"] != "map definitions" || roles[".rodata"] != "read-only data" ||
		roles[".bss"] != "data" || roles[".note.trapeze"] != "note" || roles[".debug_info"] != "" {
		t.Errorf("sections %v", roles)
	}
}

// TestFlipped flips each bit of a signed image, and outside the soak one of seven. It is refused, or it
// would run as before, under the same digest; and nothing makes a signed image an unsigned one.
func TestFlipped(t *testing.T) {
	want := sign(t, small(t), key(1))
	trusted, _ := ring(t, key(1))
	b := want.Bytes()
	step := soak.Count(7, 1)
	accepted, invalid := 0, 0
	for bit := 0; bit < 8*len(b); bit += step {
		b[bit/8] ^= 1 << (bit % 8)
		s, err := firmware.Parse(b)
		b[bit/8] ^= 1 << (bit % 8)
		if err != nil {
			continue
		}
		accepted++
		if d := same(t, want, s); d != "" || s.Signature == nil {
			t.Fatalf("bit %d of byte %#x: another %s, signature %v", bit%8, bit/8, d, s.Signature)
		}
		if _, err := s.Verify(trusted); err != nil {
			invalid++
		}
	}
	should.Hold(t, invalid != 0, "no flip has broken the signature")
	t.Logf("%d of %d flips are accepted, %d of them with a wrong signature", accepted, 8*len(b)/step, invalid)
}

func TestTruncated(t *testing.T) {
	b := small(t).Bytes()
	for n := range b {
		s, err := firmware.Parse(b[:n:n])
		must.Hold(t, err != nil && s == nil, "%d of %d bytes: accepted", n, len(b))
	}
}

func TestParseRefuses(t *testing.T) {
	le := binary.LittleEndian
	note := func(change func(n []byte)) func(t *testing.T, b []byte) {
		return func(t *testing.T, b []byte) { change(contents(t, b, ".note.trapeze")[20:]) }
	}
	code := func(change func(c []byte)) func(t *testing.T, b []byte) {
		return func(t *testing.T, b []byte) { change(contents(t, b, "pulse/tx")) }
	}
	// What makes the note say nothing of the programs, so that they are looked at.
	unbuilt := func(t *testing.T, b []byte) { clear(contents(t, b, ".note.trapeze")[20+88:][:32]) }
	for name, c := range map[string]struct {
		spoil   func(t *testing.T, b []byte)
		reason  error
		section string
	}{
		"changed program":        {code(func(c []byte) { c[4] = 1 }), firmware.ErrStale, ".note.trapeze"},
		"changed name":           {note(func(n []byte) { n[16] = 'S' }), firmware.ErrStale, ".note.trapeze"},
		"changed device":         {note(func(n []byte) { n[4] = 1 }), firmware.ErrStale, ".note.trapeze"},
		"changed digest":         {note(func(n []byte) { n[88] ^= 1 }), firmware.ErrStale, ".note.trapeze"},
		"other SRAM":             {note(func(n []byte) { n[8]++ }), firmware.ErrStale, ".note.trapeze"},
		"unknown flags":          {note(func(n []byte) { n[120] = 2 }), firmware.ErrNote, ".note.trapeze"},
		"half a signature":       {note(func(n []byte) { n[132] = 1 }), firmware.ErrNote, ".note.trapeze"},
		"signed without digest":  {note(func(n []byte) { clear(n[88:120]); n[120] = 1 }), firmware.ErrNote, ".note.trapeze"},
		"another ABI":            {note(func(n []byte) { le.PutUint32(n, 2<<16) }), flat.ErrABI, ""},
		"no name":                {note(func(n []byte) { clear(n[16:48]) }), flat.ErrMalformed, ""},
		"name with escapes":      {note(func(n []byte) { n[16] = 0x1b }), flat.ErrMalformed, ""},
		"zero inside the name":   {note(func(n []byte) { n[17] = 0 }), flat.ErrMalformed, ""},
		"map by number":          {code(func(c []byte) { c[1], c[0] = 0x10, 0x18; clear(c[8:16]) }), elfimage.ErrUnsupported, "pulse/tx"},
		"address of kernel data": {code(func(c []byte) { c[1], c[0] = 0x30, 0x18; clear(c[8:16]) }), elfimage.ErrUnsupported, "pulse/tx"},
		"kernel function":        {code(func(c []byte) { c[49] = 0x20 }), elfimage.ErrUnsupported, "pulse/tx"},
		"unused field":           {code(func(c []byte) { c[2] = 1 }), flat.ErrMalformed, ""},
		"definition of maps":     {func(t *testing.T, b []byte) { contents(t, b, ".maps")[0] = 1 }, elfimage.ErrMalformed, ""},
	} {
		t.Run(name, func(t *testing.T) {
			b := small(t).Bytes()
			if c.reason != firmware.ErrStale && c.reason != firmware.ErrNote {
				unbuilt(t, b)
			}
			c.spoil(t, b)
			s, err := firmware.Parse(b)
			must.Hold(t, errors.Is(err, c.reason) && s == nil, "%v; want %v", err, c.reason)
			var e *elfimage.Error
			should.Hold(t, !errors.As(err, &e) || e.Section == c.section, "%v; want section %q", err, c.section)
		})
	}
	t.Run("no note", func(t *testing.T) {
		b := small(t).Bytes()
		names := contents(t, b, ".strtab")
		// A section that is not loaded.
		copy(names[bytes.Index(names, []byte(".note.trapeze")):], ".debug_x\x00")
		_, err := firmware.Parse(b)
		should.Hold(t, err != nil, "accepted")
	})
}
