package flat

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"regexp"
	"slices"

	"github.com/cilium/ebpf/asm"

	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Decode reads the flat image at the start of b; what follows it is not looked
// at. b must not change meanwhile; the Image does not refer to it. It allocates at
// most a small multiple of the image's size, which is at most MaxSize. Errors are
// *Error with ErrMalformed, ErrABI, ErrDigest or ErrSRAM.
func Decode(b []byte) (*Image, error) {
	var h datasheet.ImageHeader
	b, err := header(b, &h)
	if err != nil {
		return nil, err
	}
	img := &Image{ABI: h.ABI, Device: h.Device, BuildID: h.BuildID, Size: h.Size, SRAM: h.SRAM, Digest: h.Digest}
	if img.Name, err = text("header name", h.Name[:]); err != nil {
		return nil, err
	}
	if img.Version, err = text("header version", h.Version[:]); err != nil {
		return nil, err
	}
	d := &decoder{b: b, img: img}
	d.claim("header", 0, datasheet.ImageHeaderSize)
	hooks, err := table[datasheet.ImageHook](d, "hook table", h.HooksOffset, h.HookCount)
	if err != nil {
		return nil, err
	}
	maps, err := table[datasheet.ImageMap](d, "map table", h.MapsOffset, h.MapCount)
	if err != nil {
		return nil, err
	}
	if err := d.programs(hooks); err != nil {
		return nil, err
	}
	if err := d.maps(maps); err != nil {
		return nil, err
	}
	if err := d.disjoint(); err != nil {
		return nil, err
	}
	if err := d.storage(maps); err != nil {
		return nil, err
	}
	return img, nil
}

// header reads and checks the header and returns the bytes of the image.
func header(b []byte, h *datasheet.ImageHeader) ([]byte, error) {
	if len(b) < datasheet.ImageHeaderSize {
		return nil, malformed("header", "%d bytes, a header has %d", len(b), datasheet.ImageHeaderSize)
	}
	if _, err := binary.Decode(b, binary.LittleEndian, h); err != nil {
		return nil, malformed("header", "%v", err)
	}
	switch {
	case h.Magic != datasheet.ImageMagic:
		return nil, malformed("header magic", "%#x; an image has %#x", h.Magic, datasheet.ImageMagic)
	case h.ABI>>16 != abi.Version>>16 || h.ABI > abi.Version:
		return nil, refuse(ErrABI, "header abi", "%d.%d; this one is %d.%d", h.ABI>>16, h.ABI&0xffff, abi.Version>>16, abi.Version&0xffff)
	case h.Size < datasheet.ImageHeaderSize || h.Size > MaxSize || h.Size%datasheet.ImageAlign != 0:
		return nil, malformed("header size", "%d; allowed: multiples of %d from %d to %d", h.Size, datasheet.ImageAlign, datasheet.ImageHeaderSize, MaxSize)
	case uint64(h.Size) > uint64(len(b)):
		return nil, malformed("header size", "%d, but there are %d bytes", h.Size, len(b))
	}
	b = b[:h.Size]
	if sum := digestOf(b); sum != h.Digest {
		return nil, refuse(ErrDigest, "header digest", "%x, the image has %x", h.Digest, sum)
	}
	switch {
	case h.HookCount != uint16(abi.Hooks):
		return nil, malformed("header hook_count", "%d; allowed: %d", h.HookCount, uint16(abi.Hooks))
	case h.MapCount > abi.MaxMaps:
		return nil, malformed("header map_count", "%d; allowed: 0 to %d", h.MapCount, abi.MaxMaps)
	case h.SRAM < h.Size:
		return nil, malformed("header sram", "%d, less than the image's %d bytes", h.SRAM, h.Size)
	}
	return b, read("header", b[:datasheet.ImageHeaderSize], h)
}

// decoder collects what the parts of an image take up.
type decoder struct {
	b      []byte
	img    *Image
	claims []claim
}

// claim is a range of bytes that belongs to a part.
type claim struct {
	part       string
	start, end uint64
}

func (d *decoder) claim(part string, start, size uint64) {
	d.claims = append(d.claims, claim{part, start, start + size})
}

func (d *decoder) bytes(part string, offset uint32, size uint64) ([]byte, error) {
	if offset%datasheet.ImageAlign != 0 {
		return nil, malformed(part, "offset %#x is no multiple of %d", offset, datasheet.ImageAlign)
	}
	if uint64(offset)+size > uint64(len(d.b)) {
		return nil, malformed(part, "%d bytes at %#x end outside of the image's %d", size, offset, len(d.b))
	}
	d.claim(part, uint64(offset), size)
	return d.b[offset : uint64(offset)+size], nil
}

func table[T any](d *decoder, part string, offset uint32, n uint16) ([]T, error) {
	entries := make([]T, n)
	b, err := d.bytes(part, offset, uint64(binary.Size(entries)))
	if err != nil {
		return nil, err
	}
	return entries, read(part, b, entries)
}

// read decodes the fields of v, whose reserved ones must be zero.
func read(part string, b []byte, v any) error {
	if _, err := binary.Decode(b, binary.LittleEndian, v); err != nil {
		return malformed(part, "%v", err)
	}
	// What is reserved is encoded as zeros.
	encoded, err := binary.Append(nil, binary.LittleEndian, v)
	if err != nil {
		return malformed(part, "%v", err)
	}
	for i, c := range encoded {
		if b[i] != c {
			return malformed(part, "reserved byte %#x is not zero", i)
		}
	}
	return nil
}

func (d *decoder) programs(hooks []datasheet.ImageHook) error {
	used := 0
	for i, h := range hooks {
		hook := abi.Hook(i)
		part := "program " + hook.String()
		if h.Offset == 0 && h.Instructions == 0 {
			continue
		}
		if h.Offset == 0 {
			return malformed(part, "%d instructions at no offset", h.Instructions)
		}
		if h.Instructions == 0 || h.Instructions > abi.MaxInstructions {
			return malformed(part, "%d instructions; allowed: 1 to %d", h.Instructions, abi.MaxInstructions)
		}
		code, err := d.bytes(part, h.Offset, uint64(h.Instructions)*asm.InstructionSize)
		if err != nil {
			return err
		}
		if d.img.Programs[hook], err = DecodeInstructions(code); err != nil {
			return malformed(part, "%v", err)
		}
		used++
	}
	if used == 0 {
		return malformed("hook table", "no hook has a program")
	}
	return nil
}

func (d *decoder) maps(entries []datasheet.ImageMap) error {
	names := map[string]bool{}
	for i, e := range entries {
		field := fmt.Sprintf("map %d", i)
		name, err := text(field+" name", e.Name[:])
		if err != nil {
			return err
		}
		if names[name] {
			return malformed(field+" name", "%+q is also another map's", name)
		}
		names[name] = true
		m := abi.Map{Name: name, Type: abi.MapType(e.Type), Key: e.Key, Value: e.Value, Entries: e.Entries, Flags: e.Flags}
		if e.ContentsOffset != 0 || e.ContentsSize != 0 {
			if e.ContentsSize == 0 || e.ContentsOffset == 0 {
				return malformed(field+" contents", "%d bytes at offset %#x", e.ContentsSize, e.ContentsOffset)
			}
			contents, err := d.bytes(field+" contents", e.ContentsOffset, uint64(e.ContentsSize))
			if err != nil {
				return err
			}
			m.Contents = bytes.Clone(contents)
		}
		if err := checkMap(field, m); err != nil {
			return err
		}
		d.img.Maps = append(d.img.Maps, m)
		d.img.Storage = append(d.img.Storage, e.Storage)
	}
	return nil
}

// disjoint checks that no byte belongs to two parts, and that those that belong
// to none are zero.
func (d *decoder) disjoint() error {
	slices.SortFunc(d.claims, func(a, b claim) int { return cmp.Or(cmp.Compare(a.start, b.start), cmp.Compare(a.end, b.end)) })
	last := claim{}
	for _, c := range append(d.claims, claim{"end", uint64(len(d.b)), uint64(len(d.b))}) {
		if c.start < last.end {
			return malformed(c.part, "starts at %#x, inside of %s", c.start, last.part)
		}
		for at := last.end; at < c.start; at++ {
			if d.b[at] != 0 {
				return malformed("reserved", "byte %#x is not zero", at)
			}
		}
		last = c
	}
	return nil
}

// storage checks the memory of the maps, behind the image.
func (d *decoder) storage(entries []datasheet.ImageMap) error {
	type span struct {
		i          int
		start, end uint64
	}
	var spans []span
	for i, e := range entries {
		field := fmt.Sprintf("map %d storage", i)
		if e.Storage%datasheet.ImageStorageAlign != 0 {
			return malformed(field, "%#x is no multiple of %d", e.Storage, datasheet.ImageStorageAlign)
		}
		n, err := StorageSize(d.img.Maps[i])
		if err != nil {
			return err
		}
		s := span{i, uint64(e.Storage), uint64(e.Storage) + n}
		if s.start < uint64(d.img.Size) || s.end > uint64(d.img.SRAM) {
			return malformed(field, "%d bytes at %#x; allowed: from the image's end %#x to header sram %#x", n, e.Storage, d.img.Size, d.img.SRAM)
		}
		spans = append(spans, s)
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	for i := 1; i < len(spans); i++ {
		if a, b := spans[i-1], spans[i]; b.start < a.end {
			return malformed(fmt.Sprintf("map %d storage", b.i), "starts at %#x, inside of the storage of map %d", b.start, a.i)
		}
	}
	return nil
}

var otherThanText = regexp.MustCompile(`[^A-Za-z0-9._+-]`)

// CheckText checks a name or version: 1 to limit letters, digits and characters
// of "._-+". Errors are *Error with ErrMalformed and the given field.
func CheckText(field, s string, limit int) error {
	if len(s) == 0 || len(s) > limit {
		return malformed(field, "%d bytes; allowed: 1 to %d", len(s), limit)
	}
	if otherThanText.MatchString(s) {
		return malformed(field, "%+q; allowed: letters, digits and ._-+", s)
	}
	return nil
}

// text reads a field that is padded with zeros.
func text(field string, b []byte) (string, error) {
	s := string(bytes.TrimRight(b, "\x00"))
	return s, CheckText(field, s, len(b))
}
