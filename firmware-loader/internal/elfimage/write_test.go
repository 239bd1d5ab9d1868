package elfimage_test

import (
	"debug/elf"
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/elfimage"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// TestFileRoundTrip: what has been read can be written, and read again.
func TestFileRoundTrip(t *testing.T) {
	b := object(t)
	f := must.Get(elfimage.Read(b))(t)
	again := must.Get(elfimage.Read(f.Bytes()))(t)
	should.Be(t, cmp.Diff(f.Sections, again.Sections, cmpopts.EquateEmpty()), "", "sections (-read +written)")
	n := must.Get(f.Note())(t)
	should.Hold(t, n.ABI == abi.Version && n.Device == 0x12347250 && string(n.Name[:11]) == "everything\x00" && n.Flags == 0,
		"note %+v", n)
	n.Flags, n.Digest = elfimage.FlagSigned, [32]byte{9}
	f.SetNote(n)
	f.Set("extra", elf.SHT_PROGBITS, 0, 1, []byte("behind the others"))
	g := must.Get(elfimage.Read(f.Bytes()))(t)
	m, err := g.Note()
	should.Hold(t, err == nil && *m == *n, "note %+v, %v; want %+v", m, err, n)
	s := g.Section("extra")
	should.Hold(t, s != nil && string(s.Data) == "behind the others" && g.Section("nothing") == nil, "extra is %+v", s)
}

func TestNote(t *testing.T) {
	for name, spoil := range map[string]func(b []byte){
		"owner":         func(b []byte) { b[12] = 't' },
		"type":          func(b []byte) { b[8] = 2 },
		"size":          func(b []byte) { b[4]++ },
		"reserved":      func(b []byte) { b[20+12] = 1 },
		"more reserved": func(b []byte) { b[20+84] = 1 },
	} {
		f := &file{t, object(t)}
		spoil(f.contents(".note.trapeze"))
		read := must.Get(elfimage.Read(f.b))(t)
		n, err := read.Note()
		should.Hold(t, errors.Is(err, elfimage.ErrMalformed) && n == nil, "%s: %v", name, err)
	}
	f := &file{t, object(t)}
	f.section(".note.trapeze", func(s *elf.Section64) { s.Size -= 4 })
	f.symbol("trapeze_note", func(s *elf.Sym64) { s.Size -= 4 })
	read := must.Get(elfimage.Read(f.b))(t)
	should.Refuse(read.Note())(t, elfimage.ErrMalformed, "cut off")
}
