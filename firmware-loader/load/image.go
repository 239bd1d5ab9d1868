package load

import (
	"crypto/sha256"
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Image is the content for a slot.
type Image struct {
	Bytes []byte
	SRAM  uint32 // bytes of the slot that it needs when it runs
	ABI   uint32 // that it was made for
	// Device is PCI vendor<<16 | device of the NICs that it is for; 0 for any.
	Device uint32
	// Name, Version and Digest are those that the NIC must report.
	Name, Version string
	Digest        [sha256.Size]byte
	// Maps are those of the image, in its order, without contents.
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
		Bytes: b[:img.Size], SRAM: img.SRAM, ABI: img.ABI, Device: img.Device,
		Name: img.Name, Version: img.Version, Digest: img.Digest, Maps: maps,
	}, nil
}

// check checks an image before a NIC is touched.
func (img *Image) check() error {
	if len(img.Bytes) == 0 || uint64(len(img.Bytes)) > uint64(img.SRAM) {
		return fmt.Errorf("%w: it has %d bytes, its SRAM %d", ErrImage, len(img.Bytes), img.SRAM)
	}
	return nil
}

// suits says whether the image is one for the NIC.
func (img *Image) suits(s *Status) error {
	switch {
	case img.ABI>>16 != s.ABI>>16 || img.ABI > s.ABI:
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
	case s.Digest != img.Digest:
		return fmt.Errorf("%w: digest %x instead of %x", ErrReport, s.Digest, img.Digest)
	}
	return nil
}

// running describes what runs now as an image to go back to. Its bytes are in its
// slot.
func running(s *Status) Image {
	return Image{Name: s.Name, Version: s.Version, Digest: s.Digest}
}
