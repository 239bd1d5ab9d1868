package load

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Segment is a part of an image.
type Segment struct {
	Offset uint32 // from the start of the slot, bytes
	Bytes  []byte
}

// Image is the content for a slot: one of ours, or a vendor's of which only the
// manifest is known.
type Image struct {
	Segments []Segment
	Entry    uint32 // offset in the slot where the processor starts
	SRAM     uint32 // bytes of the slot that it needs when it runs
	// ABI it was made for; 0 for a vendor's image, which knows its processor.
	ABI uint32
	// Device is PCI vendor<<16 | device of the NICs that it is for; 0 for any.
	Device uint32
	// Ready is the value of the ready word once the image runs; 0 for
	// datasheet.ProcessorReady.
	Ready uint32
	// Name and Version are those that the NIC must report.
	Name, Version string
	// Digest is the one that the NIC must report; zero for images whose NIC reports none.
	Digest [sha256.Size]byte
	// Maps are those of the image, in its order, without contents; nil of a vendor's image.
	Maps []abi.Map
}

// Flat returns the image for the bytes of a flat image. Errors are those of
// flat.Decode.
func Flat(b []byte) (Image, error) {
	img, err := flat.Decode(b)
	if err != nil {
		return Image{}, err
	}
	maps := slices.Clone(img.Maps)
	for i := range maps {
		maps[i].Contents = nil
	}
	return Image{
		Segments: []Segment{{Bytes: b[:img.Size]}}, SRAM: img.SRAM, ABI: img.ABI, Device: img.Device,
		Name: img.Name, Version: img.Version, Digest: img.Digest, Maps: maps,
	}, nil
}

// check checks an image before a NIC is touched, and completes it.
func (img *Image) check() error {
	if img.Ready == 0 {
		img.Ready = datasheet.ProcessorReady
	}
	if len(img.Segments) == 0 {
		return fmt.Errorf("%w: there are no segments", ErrImage)
	}
	if img.Ready == allOnes {
		return fmt.Errorf("%w: a NIC that is not there reads as a ready word of all ones", ErrImage)
	}
	for i, s := range img.Segments {
		end := uint64(s.Offset) + uint64(len(s.Bytes))
		switch {
		case len(s.Bytes) == 0:
			return fmt.Errorf("%w: segment %d is empty", ErrImage, i)
		case end > uint64(img.SRAM):
			return fmt.Errorf("%w: segment %d ends at %d, SRAM is %d", ErrImage, i, end, img.SRAM)
		}
		for j, other := range img.Segments[:i] {
			if uint64(s.Offset) < uint64(other.Offset)+uint64(len(other.Bytes)) && uint64(other.Offset) < end {
				return fmt.Errorf("%w: segments %d and %d overlap", ErrImage, j, i)
			}
		}
	}
	if img.Entry >= img.SRAM {
		return fmt.Errorf("%w: entry %#x is outside of its %d bytes", ErrImage, img.Entry, img.SRAM)
	}
	return nil
}

// suits says whether the image is one for the NIC.
func (img *Image) suits(s *Status) error {
	switch {
	case img.ABI != 0 && (img.ABI>>16 != s.ABI>>16 || img.ABI > s.ABI):
		return fmt.Errorf("%w: %d.%d, the NIC has %d.%d", ErrABI, img.ABI>>16, img.ABI&0xffff, s.ABI>>16, s.ABI&0xffff)
	case img.Device != 0 && img.Device != s.Device:
		return fmt.Errorf("%w: %04x:%04x, the NIC is %04x:%04x", ErrDevice, img.Device>>16, img.Device&0xffff, s.Device>>16, s.Device&0xffff)
	case img.SRAM > s.Slots.Size:
		return fmt.Errorf("%w: %d bytes, a slot has %d", ErrSRAM, img.SRAM, s.Slots.Size)
	}
	return nil
}

// runs says whether a NIC's status is that of this image.
func (img *Image) runs(s *Status) error {
	switch {
	case s.State != datasheet.ProcessorRunning:
		return fmt.Errorf("%w: the processor is %s", ErrReport, s.State)
	case s.Name != img.Name || s.Version != img.Version:
		return fmt.Errorf("%w: %q version %q instead of %q version %q", ErrReport, s.Name, s.Version, img.Name, img.Version)
	case img.Digest != [sha256.Size]byte{} && s.Digest != img.Digest:
		return fmt.Errorf("%w: digest %x instead of %x", ErrReport, s.Digest, img.Digest)
	}
	return nil
}

// running describes what runs now as an image to go back to. Its bytes are in its
// slot.
func running(s *Status) Image {
	return Image{Name: s.Name, Version: s.Version, Digest: s.Digest, Ready: s.Ready}
}
