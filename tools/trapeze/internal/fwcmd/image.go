package fwcmd

import (
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strconv"
	"strings"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"github.com/trapeze-nic/trapeze/internal/option"
)

// shippedPrefix stands before the name of an image that comes with trapeze.
const shippedPrefix = "image:"

// Image is an image of a control program.
type Image struct {
	file string
	spec *firmware.Spec
}

// Open reads the image that an argument names: "image:" and the name of one that
// comes with trapeze, or an ELF file. Errors are of package firmware, of the file system, or wrap
// option.ErrBad.
func Open(arg string) (*Image, error) {
	if name, ok := strings.CutPrefix(arg, shippedPrefix); ok {
		s, err := firmware.BuildShipped(name)
		if errors.Is(err, firmware.ErrNotShipped) {
			return nil, &option.Error{Option: "image", Value: name, Allowed: strings.Join(firmware.ShippedNames(), ", ")}
		}
		return &Image{arg, s}, err
	}
	s, err := firmware.Open(arg)
	if errors.Is(err, fs.ErrNotExist) && isShipped(arg) {
		err = fmt.Errorf("%w ('%s%s' is the one that comes with trapeze)", err, shippedPrefix, arg)
	}
	return &Image{arg, s}, err
}

// isShipped says whether an image of that name comes with trapeze.
func isShipped(name string) bool { return slices.Contains(firmware.ShippedNames(), name) }

// Check refuses programs that a NIC would refuse. Errors wrap *firmware.Refusal.
func (img *Image) Check() error {
	_, refused := verdicts(img.spec)
	if err := errors.Join(refused...); err != nil {
		return fmt.Errorf("%s: %w", img.file, err)
	}
	return nil
}

// Has says whether the image decides at a hook.
func (img *Image) Has(h abi.Hook) bool {
	_, ok := img.spec.Program(h)
	return ok
}

// For returns what is put into a NIC, whose PCI vendor<<16 | device is given.
// Errors wrap load.ErrDevice if it is for other NICs.
func (img *Image) For(device uint32) (load.Image, error) {
	if img.spec.Device != 0 && img.spec.Device != device {
		return load.Image{}, fmt.Errorf("%s: %w: it is for %s, the NIC is %s", img.file, load.ErrDevice,
			deviceName(img.spec.Device), deviceName(device))
	}
	return load.Flat(img.spec.Link())
}

func (img *Image) digest() string { return fmt.Sprintf("%x", img.spec.Digest) }

// deviceName writes PCI vendor<<16 | device as flags do.
func deviceName(device uint32) string { return fmt.Sprintf("%04x:%04x", device>>16, device&0xffff) }

// parseDevice is the inverse of deviceName. The error says what is allowed.
func parseDevice(s string) (uint32, error) {
	vendor, device, ok := strings.Cut(s, ":")
	v, err1 := strconv.ParseUint(vendor, 16, 16)
	d, err2 := strconv.ParseUint(device, 16, 16)
	if !ok || len(vendor) != 4 || len(device) != 4 || err1 != nil || err2 != nil || v == 0 {
		return 0, errors.New(`"vendor:device", four hexadecimal digits each`)
	}
	return uint32(v)<<16 | uint32(d), nil
}
