package firmware

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"slices"

	"github.com/cilium/ebpf"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/elfimage"
	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Parse reads an image. b may hold anything: Parse allocates at most a small
// multiple of elfimage.MaxFile. Errors are *elfimage.Error, or *flat.Error for what
// no flat image can hold.
func Parse(b []byte) (*Spec, error) {
	if len(b) <= elfimage.MaxFile {
		b = bytes.Clone(b) // the Spec keeps it
	}
	file, err := elfimage.Read(b)
	if err != nil {
		return nil, err
	}
	note, err := file.Note()
	if err != nil {
		return nil, err
	}
	if note == nil {
		return nil, refuse(ErrNote, elfimage.NoteSection, "there is none; 'trapeze fw build --from FILE --name NAME' adds it")
	}
	return parse(b, file, note)
}

// parse reads the programs of a file whose structure has been checked.
func parse(b []byte, file *elfimage.File, note *elfimage.Note) (*Spec, error) {
	s := &Spec{file: file, note: note, ABI: cmp.Or(note.ABI, abi.Version), Device: note.Device, BuildID: note.BuildID,
		Name: text(note.Name[:]), Version: text(note.Version[:])}
	objects, err := ebpf.LoadCollectionSpecFromReader(bytes.NewReader(b))
	if err != nil {
		return nil, refuse(elfimage.ErrMalformed, "", "%v", err)
	}
	if s.Maps, err = mapsOf(objects); err != nil {
		return nil, err
	}
	for _, p := range objects.Programs {
		hook, ok := abi.ParseHook(p.SectionName)
		if !ok || s.Programs[hook] != nil {
			return nil, refuse(elfimage.ErrMalformed, p.SectionName, "function %s is not the program of a hook", p.Name)
		}
		if s.Programs[hook], err = link(p.SectionName, p.Instructions, s.Maps); err != nil {
			return nil, err
		}
	}
	s.flat, err = flat.Encode(&flat.Image{ABI: s.ABI, Device: s.Device, Name: s.Name, Version: s.Version, BuildID: s.BuildID,
		Programs: s.Programs, Maps: s.Maps})
	if err != nil {
		return nil, err
	}
	var h datasheet.ImageHeader
	if _, err := binary.Decode(s.flat, binary.LittleEndian, &h); err != nil {
		return nil, err
	}
	s.SRAM, s.Digest = h.SRAM, h.Digest
	if err := s.readNote(); err != nil {
		return nil, err
	}
	return s, nil
}

// readNote compares the rest of the note with the programs.
func (s *Spec) readNote() error {
	n := s.note
	signed := n.Flags == elfimage.FlagSigned
	switch s.Built = n.Digest != [sha256.Size]byte{}; {
	case n.Flags&^elfimage.FlagSigned != 0:
		return refuse(ErrNote, elfimage.NoteSection, "flags %#x; allowed: 0, %#x", n.Flags, elfimage.FlagSigned)
	case n.SRAM != 0 && n.SRAM != s.SRAM:
		return refuse(ErrStale, elfimage.NoteSection, "it says that the image needs %d bytes of SRAM, it needs %d", n.SRAM, s.SRAM)
	case s.Built && n.Digest != s.Digest:
		return refuse(ErrStale, elfimage.NoteSection, "its digest is %x, that of the programs %x; build and sign it again", n.Digest, s.Digest)
	case signed && !s.Built:
		return refuse(ErrNote, elfimage.NoteSection, "a signature without a digest")
	case signed:
		s.Signature = &Signature{Key: n.KeyID, Bytes: n.Signature}
	case n.KeyID != KeyID{} || n.Signature != [len(n.Signature)]byte{}:
		return refuse(ErrNote, elfimage.NoteSection, "a signature, but flags say that there is none")
	}
	return nil
}

// mapsOf returns the maps of an object by name: the order in which the flat image
// has them must not depend on how the loader walks its tables.
func mapsOf(objects *ebpf.CollectionSpec) ([]abi.Map, error) {
	var all []abi.Map
	for name, m := range objects.Maps {
		bad := func(format string, args ...any) error {
			return refuse(elfimage.ErrUnsupported, ".maps", "map "+format, append([]any{name}, args...)...)
		}
		out := abi.Map{Name: name, Type: abi.MapType(m.Type), Key: m.KeySize, Value: m.ValueSize, Entries: m.MaxEntries, Flags: m.Flags}
		switch {
		case m.InnerMap != nil:
			return nil, bad("%s: maps in maps")
		case m.Pinning != ebpf.PinNone:
			return nil, bad("%s: pinning %v; the NIC has no file system", m.Pinning)
		case m.MapExtra != 0 || m.Extra != nil && m.Extra.Len() > 0:
			return nil, bad("%s: a field that we do not know")
		case len(m.Contents) > 1:
			return nil, bad("%s: initial contents of %d entries", len(m.Contents))
		case len(m.Contents) == 1:
			contents, ok := m.Contents[0].Value.([]byte)
			if !ok {
				return nil, bad("%s: initial contents of type %T", m.Contents[0].Value)
			}
			if slices.ContainsFunc(contents, func(c byte) bool { return c != 0 }) {
				out.Contents = contents
			}
		}
		if err := flat.CheckMap(out); err != nil {
			return nil, err
		}
		all = append(all, out)
	}
	slices.SortFunc(all, func(a, b abi.Map) int { return cmp.Compare(a.Name, b.Name) })
	return all, nil
}

// text reads a padded field; what is not text is refused when it is encoded.
func text(b []byte) string { return string(bytes.TrimRight(b, "\x00")) }
