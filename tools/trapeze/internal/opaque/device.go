package opaque

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// deviceForm describes the text for a kind of NIC.
const deviceForm = `"vendor:device", four hexadecimal digits each`

// DeviceName writes PCI vendor<<16 | device as manifests and flags do.
func DeviceName(device uint32) string { return fmt.Sprintf("%04x:%04x", device>>16, device&0xffff) }

// ParseDevice is the inverse of DeviceName. The error says what is allowed.
func ParseDevice(s string) (uint32, error) {
	vendor, device, ok := strings.Cut(s, ":")
	v, err1 := strconv.ParseUint(vendor, 16, 16)
	d, err2 := strconv.ParseUint(device, 16, 16)
	if !ok || len(vendor) != 4 || len(device) != 4 || err1 != nil || err2 != nil || v == 0 {
		return 0, errors.New(deviceForm)
	}
	return uint32(v)<<16 | uint32(d), nil
}
