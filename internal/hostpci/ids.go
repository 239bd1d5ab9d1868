package hostpci

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
)

// IDs are the names of PCI vendors, devices and classes.
type IDs struct {
	vendors map[uint16]string
	devices map[uint32]string // vendor in the upper half
	classes map[uint32]string // base class<<8, and that with a subclass
	bases   map[uint8]string
}

// idFiles are where distributions keep the list.
var idFiles = []string{
	"usr/share/hwdata/pci.ids", "usr/share/misc/pci.ids", "usr/share/pci.ids", "var/lib/pciutils/pci.ids",
	"usr/share/hwdata/pci.ids.gz", "usr/share/misc/pci.ids.gz",
}

// maxIDs bounds how much of a list is read: today's has 1.5 MB.
const maxIDs = 64 << 20

// ReadIDs reads the system's list of names. A host without one knows no names,
// which is not an error.
func ReadIDs(r Root) (*IDs, error) {
	for _, name := range idFiles {
		f, err := os.Open(r.Path(name))
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, err
		}
		defer f.Close()
		var text io.Reader = f
		if strings.HasSuffix(name, ".gz") {
			if text, err = gzip.NewReader(f); err != nil {
				return nil, err
			}
		}
		return ParseIDs(io.LimitReader(text, maxIDs))
	}
	return &IDs{}, nil
}

// ParseIDs reads a list in the form of pci.ids (pci.ids(5)). Lines that make no
// sense are skipped; control characters in names are left out.
func ParseIDs(text io.Reader) (*IDs, error) {
	ids := &IDs{vendors: map[uint16]string{}, devices: map[uint32]string{}, classes: map[uint32]string{}, bases: map[uint8]string{}}
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, 1<<20)
	// parent is the vendor or base class that indented lines belong to.
	const none, vendor, class = 0, 1, 2
	parent, kind := uint32(0), none
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.TrimSpace(line) == "", strings.HasPrefix(line, "#"), strings.HasPrefix(line, "\t\t"):
		case strings.HasPrefix(line, "\t"):
			switch kind {
			case vendor:
				if id, name, ok := entry(line[1:], 4); ok {
					ids.devices[parent<<16|id] = name
				}
			case class:
				if id, name, ok := entry(line[1:], 2); ok {
					ids.classes[parent<<8|id] = name
				}
			}
		case strings.HasPrefix(line, "C "):
			kind = none
			if id, name, ok := entry(line[2:], 2); ok {
				parent, kind = id, class
				ids.bases[uint8(id)] = name
			}
		default:
			kind = none
			if id, name, ok := entry(line, 4); ok {
				parent, kind = id, vendor
				ids.vendors[uint16(id)] = name
			}
		}
	}
	return ids, lines.Err()
}

// entry splits a number of so many hexadecimal digits from its name.
func entry(line string, digits int) (uint32, string, bool) {
	if len(line) <= digits || line[digits] != ' ' {
		return 0, "", false
	}
	id, err := strconv.ParseUint(line[:digits], 16, 32)
	if err != nil {
		return 0, "", false
	}
	name := strings.TrimSpace(strings.Map(func(c rune) rune {
		if unicode.IsControl(c) || !unicode.IsPrint(c) {
			return -1
		}
		return c
	}, strings.ToValidUTF8(line[digits:], "")))
	return uint32(id), name, name != ""
}

// Vendor returns a vendor's name, empty if it is unknown.
func (ids *IDs) Vendor(vendor uint16) string { return ids.vendors[vendor] }

// Device returns a device's name, empty if it is unknown.
func (ids *IDs) Device(vendor, device uint16) string {
	return ids.devices[uint32(vendor)<<16|uint32(device)]
}

// Class returns the name of a class of 24 bits: that of its subclass, or of its
// base class if the subclass is unknown.
func (ids *IDs) Class(class uint32) string {
	if s := ids.classes[class>>8]; s != "" {
		return s
	}
	return ids.bases[uint8(class>>16)]
}

// nameAll fills in the names of functions. They are an extra: a list that
// cannot be read gives none.
func nameAll(r Root, list []Function) {
	if len(list) == 0 {
		return
	}
	ids, err := ReadIDs(r)
	if err != nil {
		return
	}
	for i := range list {
		f := &list[i]
		f.VendorName, f.DeviceName, f.ClassName = ids.Vendor(f.Vendor), ids.Device(f.Vendor, f.Device), ids.Class(f.Class)
	}
}
