package opaque

import (
	"cmp"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/bounded"
)

// Image is an image of a vendor.
type Image struct {
	// The NIC must report Name and Version.
	Name, Version string
	// Devices are PCI vendor<<16 | device of the NICs that it is for; nil for
	// any.
	Devices []uint32
	// Entry is the offset in the slot where the processor starts.
	Entry uint32
	// Ready is the value of the processor's ready word once the image runs.
	Ready uint32
	// SRAM is the number of bytes of the slot that it needs; at least where its segments
	// end.
	SRAM uint32
	// Segments in the order of the manifest. They do not overlap.
	Segments []Segment
	// Digest is the SHA-256 of all of the above.
	Digest [sha256.Size]byte
	// Signature is nil if the image is not signed. It is not known to be
	// valid.
	Signature *firmware.Signature
}

// Segment is a part of an image.
type Segment struct {
	File    string // inside the manifest's folder
	Address uint32 // offset in the slot
	SHA256  [sha256.Size]byte
	Bytes   []byte
}

// Open reads a manifest and its segments. Errors are *Error, or of the file system
// if the manifest cannot be read.
func Open(name string) (*Image, error) {
	text, err := bounded.ReadFile(name, MaxManifest)
	if err != nil {
		return nil, err
	}
	img, err := Parse(name, text)
	if err != nil {
		return nil, err
	}
	// A root keeps symbolic links from leading out of the folder, too.
	root, err := os.OpenRoot(filepath.Dir(name))
	if err != nil {
		return nil, err
	}
	defer root.Close()
	for i := range img.Segments {
		if err := img.Segments[i].read(root); err != nil {
			return nil, &Error{File: name, Key: fmt.Sprintf("segments[%d].file", i), Detail: printable(err.Error()), Reason: ErrSegment}
		}
	}
	if err := img.place(name); err != nil {
		return nil, err
	}
	img.Digest = img.digest()
	return img, nil
}

// read reads the segment's file and compares it with the manifest.
func (s *Segment) read(root *os.Root) error {
	f, err := root.OpenFile(s.File, bounded.Flags, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	if s.Bytes, err = bounded.Read(f, s.File, MaxSegment); err != nil {
		return err
	}
	if len(s.Bytes) == 0 {
		return fmt.Errorf("%s is empty", s.File)
	}
	if sum := sha256.Sum256(s.Bytes); sum != s.SHA256 {
		return fmt.Errorf("%s has sha256 %x, the manifest says %x", s.File, sum, s.SHA256)
	}
	return nil
}

// place checks where the segments stand.
func (img *Image) place(file string) error {
	type span struct {
		i          int
		start, end uint64
	}
	var spans []span
	for i, s := range img.Segments {
		spans = append(spans, span{i, uint64(s.Address), uint64(s.Address) + uint64(len(s.Bytes))})
	}
	slices.SortFunc(spans, func(a, b span) int { return cmp.Compare(a.start, b.start) })
	end, inside := uint64(0), false
	for n, s := range spans {
		if s.start < end {
			return &Error{File: file, Key: fmt.Sprintf("segments[%d].address", s.i), Reason: ErrValue,
				Detail: fmt.Sprintf("%#x is inside of segments[%d], which ends at %#x", s.start, spans[n-1].i, end)}
		}
		end = s.end
		inside = inside || uint64(img.Entry) >= s.start && uint64(img.Entry) < s.end
	}
	if end > MaxSRAM || img.SRAM != 0 && end > uint64(img.SRAM) {
		limit := cmp.Or(uint64(img.SRAM), MaxSRAM)
		return &Error{File: file, Key: "sram", Detail: fmt.Sprintf("the last segment ends at %#x", end), Allowed: fmt.Sprintf("up to %#x", limit), Reason: ErrValue}
	}
	if !inside {
		return &Error{File: file, Key: "entry", Detail: fmt.Sprintf("%#x", img.Entry), Allowed: "an address inside of a segment", Reason: ErrValue}
	}
	img.SRAM = cmp.Or(img.SRAM, uint32(end))
	return nil
}

// digest is the SHA-256 of what is loaded, in a form of its own: that of the
// manifest may change.
func (img *Image) digest() (sum [sha256.Size]byte) {
	var b []byte
	word := func(v uint32) { b = binary.LittleEndian.AppendUint32(b, v) }
	for _, s := range []string{img.Name, img.Version} {
		word(uint32(len(s)))
		b = append(b, s...)
	}
	word(uint32(len(img.Devices)))
	for _, d := range img.Devices {
		word(d)
	}
	for _, v := range []uint32{img.Entry, img.Ready, img.SRAM, uint32(len(img.Segments))} {
		word(v)
	}
	for _, s := range img.Segments {
		word(s.Address)
		word(uint32(len(s.Bytes)))
		b = append(b, s.SHA256[:]...)
	}
	return sha256.Sum256(b)
}

// For returns the image as package load puts it into a NIC, whose PCI vendor<<16 |
// device is given. Errors are *Error with ErrDevice.
func (img *Image) For(device uint32) (load.Image, error) {
	if img.Devices != nil && !slices.Contains(img.Devices, device) {
		return load.Image{}, &Error{File: img.Name, Key: "devices", Detail: fmt.Sprintf("the NIC is %s", DeviceName(device)),
			Allowed: img.DeviceNames(), Reason: ErrDevice}
	}
	out := load.Image{Entry: img.Entry, SRAM: img.SRAM, Device: device, Ready: img.Ready, Name: img.Name, Version: img.Version}
	for _, s := range img.Segments {
		out.Segments = append(out.Segments, load.Segment{Offset: s.Address, Bytes: s.Bytes})
	}
	return out, nil
}

// DeviceNames lists the devices that the image is for.
func (img *Image) DeviceNames() string {
	if img.Devices == nil {
		return "any"
	}
	names := make([]string, len(img.Devices))
	for i, d := range img.Devices {
		names[i] = DeviceName(d)
	}
	return strings.Join(names, ", ")
}
