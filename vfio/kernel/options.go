package kernel

import (
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
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
	Backend  string `option:"backend" oneof:"auto,cdev,group,noiommu" default:"auto"`
	Token    token  `option:"vf_token"`
}

// token is a UUID in lower case, empty for none.
type token string

var tokenPattern = regexp.MustCompile(`^[0-9a-f]{8}-(?:[0-9a-f]{4}-){3}[0-9a-f]{12}$`)

// Set reads it.
func (t *token) Set(text string) error {
	if *t = token(strings.ToLower(text)); !tokenPattern.MatchString(string(*t)) {
		return errors.New("it is a UUID such as b6a5f7a6-08a5-4f5c-9d2c-4b1c3f0c2f1e")
	}
	return nil
}

// parseOptions reads an address of scheme "pci". Errors wrap
// vfio.ErrBadAddress.
func parseOptions(a vfio.Address) (o options, err error) {
	o.text = a.String()
	if o.function, err = hostpci.ParseAddress("pci:" + a.Path); err != nil {
		return o, a.Refuse(fmt.Errorf("%q is no PCI function", a.Path),
			"domain, bus, device and function as lspci -D prints them: pci:0000:03:00.0")
	}
	return o, a.Decode(&o)
}

// bytes returns the token as the cdev interface takes it, nil for none.
func (t token) bytes() *[16]byte {
	var b [16]byte
	if n, err := hex.Decode(b[:], []byte(strings.ReplaceAll(string(t), "-", ""))); err != nil || n != len(b) {
		return nil
	}
	return &b
}
