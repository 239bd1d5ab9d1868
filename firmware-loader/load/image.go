package load

import (
	"fmt"
	"slices"

	"github.com/trapeze-nic/trapeze/firmware-loader/internal/flat"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Image is the content for a slot. Its maps have no contents: those are in the bytes.
type Image struct {
	flat.Image
	Bytes []byte
}

// Flat returns the image for the bytes of a flat image. Errors are those of
// flat.Decode.
func Flat(b []byte) (Image, error) {
	img, err := flat.Decode(b)
	if err != nil {
		return Image{}, err
	}
	img.Maps = slices.Clone(img.Maps)
	for i := range img.Maps {
		img.Maps[i].Contents = nil
	}
	return Image{*img, b[:img.Size]}, nil
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
	return Image{Image: flat.Image{Name: s.Name, Version: s.Version, Digest: s.Digest}}
}
