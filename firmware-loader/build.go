package firmware

import (
	"cmp"
	"crypto/sha256"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/elfimage"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/internal/abi"
)

// Meta is an image's description of itself. Fields that are empty are taken from the
// note of the object.
type Meta struct {
	Name, Version string
	// BuildID: if neither it nor the note has one, it is made from the image, so
	// that the same source and compiler have the same.
	BuildID [abi.MaxBuildID]byte
	// Device is PCI vendor<<16 | device; 0 for any.
	Device uint32
}

// Build completes an object file, as clang makes it: name, version, build ID, SRAM and digest. A signature that it had is dropped. Errors
// are those of Parse.
func Build(object []byte, m Meta) (*Spec, error) {
	file, err := elfimage.Read(object)
	if err != nil {
		return nil, err
	}
	old, err := file.Note()
	if err != nil {
		return nil, err
	}
	if old == nil {
		old = &elfimage.Note{}
	}
	note := &elfimage.Note{ABI: cmp.Or(old.ABI, abi.Version), Device: cmp.Or(m.Device, old.Device),
		BuildID: cmp.Or(m.BuildID, old.BuildID), Name: old.Name, Version: old.Version}
	for _, t := range []struct {
		field, text string
		to          []byte
	}{{"name", m.Name, note.Name[:]}, {"version", m.Version, note.Version[:]}} {
		if t.text == "" {
			t.text = text(t.to)
		}
		if err := flat.CheckText(t.field, t.text, len(t.to)); err != nil {
			return nil, refuse(ErrNote, elfimage.NoteSection, "%v", err)
		}
		clear(t.to)
		copy(t.to, t.text)
	}
	file.SetNote(note)
	s, err := Parse(file.Bytes())
	if err != nil {
		return nil, err
	}
	if note.BuildID == [abi.MaxBuildID]byte{} {
		sum := sha256.Sum256(s.flat)
		copy(note.BuildID[:], sum[:])
		file.SetNote(note)
		if s, err = Parse(file.Bytes()); err != nil {
			return nil, err
		}
	}
	note.SRAM, note.Digest = s.SRAM, s.Digest
	return s.withNote(note)
}

// Image has the content of an image's flat form: programs by hook, maps, name and version
// (SPEC.md 14.2).
type Image = flat.Image

// Encode returns the flat image, as a NIC's SRAM holds it. Errors name the field that an
// image cannot have.
func Encode(img *Image) ([]byte, error) { return flat.Encode(img) }

func (s *Spec) withNote(n *elfimage.Note) (*Spec, error) {
	file, err := elfimage.Read(s.file.Bytes())
	if err != nil {
		return nil, err
	}
	file.SetNote(n)
	return Parse(file.Bytes())
}
