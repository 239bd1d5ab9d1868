package firmware_test

import (
	"bytes"
	"encoding/binary"
	"strings"
	"testing"
	"unicode"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/elfimage"
)

// FuzzParse: nothing makes Parse panic, and what it accepts can be written, parsed,
// checked and shown. Inputs are looked at as they are and without the digest in
// their note, which hardly any would survive.
func FuzzParse(f *testing.F) {
	f.Add(small(f).Bytes())
	f.Add(object(f, "everything"))
	f.Fuzz(func(t *testing.T, b []byte) {
		if s, err := firmware.Parse(b); err == nil {
			parseAgain(t, s)
		}
		file, err := elfimage.Read(b)
		if err != nil {
			return
		}
		note, err := file.Note()
		if err != nil || note == nil {
			return
		}
		file.SetNote(&elfimage.Note{Device: note.Device, Name: note.Name, Version: note.Version, BuildID: note.BuildID})
		if s, err := firmware.Parse(file.Bytes()); err == nil {
			parseAgain(t, s)
		}
	})
}

// FuzzPatches changes words of a sound image: most of what a file of random bytes
// never gets to. Each 8 bytes of the input are an offset in the image and the word
// that is put there.
func FuzzPatches(f *testing.F) {
	images := [][]byte{small(f).Bytes(), object(f, "everything")}
	clear(contents(f, images[0], ".note.trapeze")[20+88:][:32]) // the digest
	f.Fuzz(func(t *testing.T, second bool, patches []byte) {
		b := bytes.Clone(images[0])
		if second {
			b = bytes.Clone(images[1])
		}
		for ; len(patches) >= 8; patches = patches[8:] {
			at := binary.LittleEndian.Uint32(patches) % uint32(len(b)-3)
			copy(b[at:], patches[4:8])
		}
		if s, err := firmware.Parse(b); err == nil {
			parseAgain(t, s)
		}
	})
}

func parseAgain(t *testing.T, s *firmware.Spec) {
	should.Be(t, same(t, s, parse(t, s.Bytes())), "", "written and parsed, it has another")
	s.Check()
	s.Sections()
	text := s.Disassembly()
	if i := strings.IndexFunc(text, func(r rune) bool { return r != '\n' && !unicode.IsPrint(r) }); i >= 0 {
		t.Errorf("byte %d of the disassembly is %q", i, text[i])
	}
}
