package hostpci

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/failure"
)

// addressPattern is domain (which may be missing), bus, device and function.
var addressPattern = regexp.MustCompile(`^(?:([0-9a-f]{4,8}):)?([0-9a-f]{2}:[01][0-9a-f]\.[0-7])$`)

// functionName matches the name of a function in sysfs.
var functionName = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)

// ParseAddress returns the sysfs name of a function, "0000:03:00.0", given as
// that, without its domain, or as a device address: "pci:0000:03:00.0", whose
// options are ignored. Errors wrap failure.ErrBadAddress.
func ParseAddress(s string) (string, error) {
	text, _, _ := strings.Cut(s, "?")
	text = strings.ToLower(strings.TrimPrefix(text, "pci:"))
	m := addressPattern.FindStringSubmatch(text)
	if m == nil {
		return "", &failure.Error{Op: "parse address", Device: fmt.Sprintf("%q", s), Err: fmt.Errorf("%w: it is no PCI function", failure.ErrBadAddress),
			Hint: "domain, bus, device and function as lspci -D prints them: 0000:03:00.0"}
	}
	if m[1] == "" {
		m[1] = "0000"
	}
	return m[1] + ":" + m[2], nil
}

// functionsIn returns the names of functions in a path of sysfs, outermost
// first.
func functionsIn(path string) []string {
	var list []string
	for e := range strings.SplitSeq(path, "/") {
		if functionName.MatchString(e) {
			list = append(list, e)
		}
	}
	return list
}
