package fwcmd

import (
	"crypto/ed25519"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strings"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/opaque"
)

// shippedPrefix stands before the name of an image that comes with trapeze.
const shippedPrefix = "image:"

// Image is one of the two kinds: one of ours, or a vendor's.
type Image struct {
	file   string
	spec   *firmware.Spec
	vendor *opaque.Image
}

// Open reads the image that an argument names: "image:" and the name of one that
// comes with trapeze, a manifest, whose name ends in .toml, or an ELF file. Errors
// are of package opaque or firmware, of the file system, or wrap option.ErrBad.
func Open(arg string) (*Image, error) {
	if name, ok := strings.CutPrefix(arg, shippedPrefix); ok {
		s, err := firmware.BuildShipped(name)
		if errors.Is(err, firmware.ErrNotShipped) {
			return nil, &option.Error{Option: "image", Value: name, Allowed: strings.Join(firmware.ShippedNames(), ", ")}
		}
		return &Image{file: arg, spec: s}, err
	}
	if strings.EqualFold(filepath.Ext(arg), ".toml") {
		v, err := opaque.Open(arg)
		return &Image{file: arg, vendor: v}, err
	}
	s, err := firmware.Open(arg)
	if errors.Is(err, fs.ErrNotExist) && IsShipped(arg) {
		err = fmt.Errorf("%w ('%s%s' is the one that comes with trapeze)", err, shippedPrefix, arg)
	}
	return &Image{file: arg, spec: s}, err
}

// IsShipped says whether an image of that name comes with trapeze.
func IsShipped(name string) bool { return slices.Contains(firmware.ShippedNames(), name) }

// Shipped returns the argument of Open for an image that comes with trapeze.
func Shipped(name string) string { return shippedPrefix + name }

// Check refuses programs that a NIC would refuse. Errors wrap *firmware.Refusal.
func (img *Image) Check() error {
	if img.vendor != nil {
		return nil
	}
	_, refused := verdicts(img.spec)
	if err := errors.Join(refused...); err != nil {
		return fmt.Errorf("%s: %w", img.file, err)
	}
	return nil
}

// Has says whether the image is known to decide at a hook.
func (img *Image) Has(h abi.Hook) bool {
	if img.vendor != nil {
		return false
	}
	_, ok := img.spec.Program(h)
	return ok
}

// For returns what is put into a NIC, whose PCI vendor<<16 | device is given.
// Errors wrap opaque.ErrDevice or load.ErrDevice if it is for other NICs.
func (img *Image) For(device uint32) (load.Image, error) {
	if img.vendor != nil {
		return img.vendor.For(device)
	}
	if img.spec.Device != 0 && img.spec.Device != device {
		return load.Image{}, fmt.Errorf("%s: %w: it is for %s, the NIC is %s", img.file, load.ErrDevice,
			opaque.DeviceName(img.spec.Device), opaque.DeviceName(device))
	}
	return load.Flat(img.spec.Link())
}

// signed returns the bytes of the file with a signature.
func (img *Image) signed(key ed25519.PrivateKey) ([]byte, error) {
	if img.vendor != nil {
		return opaque.Sign(img.file, key)
	}
	s, err := img.spec.Sign(key)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", img.file, err)
	}
	return s.Bytes(), nil
}

func (img *Image) verify(ring *firmware.KeyRing) (firmware.Key, error) {
	if img.vendor != nil {
		return img.vendor.Verify(ring)
	}
	return img.spec.Verify(ring)
}

func (img *Image) signature() *firmware.Signature {
	if img.vendor != nil {
		return img.vendor.Signature
	}
	return img.spec.Signature
}

func (img *Image) digest() string {
	if img.vendor != nil {
		return fmt.Sprintf("%x", img.vendor.Digest)
	}
	return fmt.Sprintf("%x", img.spec.Digest)
}

// title is name and version.
func (img *Image) title() (name, version string) {
	if img.vendor != nil {
		return img.vendor.Name, img.vendor.Version
	}
	return img.spec.Name, img.spec.Version
}
