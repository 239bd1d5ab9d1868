package kernel

import (
	"encoding/hex"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/vfio"
)

// The names of the back ends, as options and in vfio.Info.
const (
	backendAuto    = "auto"
	backendCdev    = "cdev"
	backendGroup   = "group"
	backendNoIOMMU = "noiommu"
)

// noIOMMUVariable in the environment, set to "allow", lets backend=auto take a
// device that no IOMMU guards.
const noIOMMUVariable = "TRAPEZE_NOIOMMU"

// options are a device address, understood.
type options struct {
	text     string // the address as it was given
	function string // "0000:03:00.0"
	backend  string
	token    string // UUID in lower case, empty for none
	huge     bool
}

var tokenPattern = regexp.MustCompile(`^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$`)

// parseOptions reads an address of scheme "pci". Errors wrap
// vfio.ErrBadAddress.
func parseOptions(a vfio.Address) (options, error) {
	o := options{text: a.String(), backend: backendAuto, huge: true}
	bad := func(hint, format string, args ...any) (options, error) {
		return options{}, &vfio.Error{Op: "parse address", Device: o.text,
			Err: fmt.Errorf("%w: %s", vfio.ErrBadAddress, fmt.Sprintf(format, args...)), Hint: hint}
	}
	var err error
	if o.function, err = hostpci.ParseAddress("pci:" + a.Path); err != nil {
		return bad("domain, bus, device and function as lspci -D prints them: pci:0000:03:00.0", "%q is no PCI function", a.Path)
	}
	for name, values := range a.Options {
		value := values[0]
		switch name {
		case "backend":
			known := []string{backendAuto, backendCdev, backendGroup, backendNoIOMMU}
			if !slices.Contains(known, value) {
				return bad("backend is one of "+strings.Join(known, ", "), "backend=%q", value)
			}
			o.backend = value
		case "vf_token":
			o.token = strings.ToLower(value)
			if !tokenPattern.MatchString(o.token) {
				return bad("a token is a UUID such as b6a5f7a6-08a5-4f5c-9d2c-4b1c3f0c2f1e", "vf_token=%q", value)
			}
		case "huge":
			if value != "on" && value != "off" {
				return bad("huge is on or off", "huge=%q", value)
			}
			o.huge = value == "on"
		default:
			return bad("known options are backend, vf_token and huge", "unknown option %q", name)
		}
	}
	return o, nil
}

// tokenBytes returns the token as the cdev interface takes it, nil for none.
func (o options) tokenBytes() *[16]byte {
	var t [16]byte
	if n, err := hex.Decode(t[:], []byte(strings.ReplaceAll(o.token, "-", ""))); err != nil || n != len(t) {
		return nil
	}
	return &t
}

// noIOMMUAllowed reports whether the user has asked for a device without IOMMU.
func (o options) noIOMMUAllowed() bool {
	return o.backend == backendNoIOMMU || os.Getenv(noIOMMUVariable) == "allow"
}
