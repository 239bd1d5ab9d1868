package hostpci

import (
	"bufio"
	"cmp"
	"compress/gzip"
	"io"
	"os"
	"strconv"
	"strings"
	"unicode"
)

// idFiles are where distributions keep the list of names (pci.ids(5)).
var idFiles = []string{
	"usr/share/hwdata/pci.ids", "usr/share/misc/pci.ids", "usr/share/pci.ids", "var/lib/pciutils/pci.ids",
	"usr/share/hwdata/pci.ids.gz", "usr/share/misc/pci.ids.gz",
}

// maxIDs bounds how much of a list is read: today's has 1.5 MB.
const maxIDs = 64 << 20

// nameAll fills in the names of functions. They are an extra: without a list, or with one that cannot be
// read, there are none.
func nameAll(r Root, list []Function) {
	for _, name := range idFiles {
		f, err := os.Open(r.Path(name))
		if err != nil {
			continue
		}
		defer f.Close()
		var text io.Reader = f
		if strings.HasSuffix(name, ".gz") {
			if text, err = gzip.NewReader(f); err != nil {
				return
			}
		}
		nameFrom(io.LimitReader(text, maxIDs), list)
		return
	}
}

// nameFrom takes the names from a list: of a vendor and, behind a tab, of its devices; of a class, whose line
// begins with a C, and behind a tab of its subclasses. Lines that make no sense are skipped.
func nameFrom(text io.Reader, list []Function) {
	lines := bufio.NewScanner(text)
	lines.Buffer(nil, 1<<20)
	ofClass, parent := false, uint32(0)
	for lines.Scan() {
		line, below := strings.CutPrefix(lines.Text(), "\t")
		if !below {
			line, ofClass = strings.CutPrefix(line, "C ")
		}
		number, name, _ := strings.Cut(line, " ")
		v, err := strconv.ParseUint(number, 16, 16)
		if err != nil {
			continue
		}
		id := uint32(v)
		if !below {
			parent = id
		}
		for i := range list {
			f := &list[i]
			switch {
			case ofClass && below && f.Class>>8 == parent<<8|id:
				f.ClassName = printable(name)
			case ofClass && !below && f.Class>>16 == id:
				f.ClassName = cmp.Or(f.ClassName, printable(name)) // unless the subclass has a name
			case !ofClass && below && uint32(f.Vendor) == parent && uint32(f.Device) == id:
				f.DeviceName = printable(name)
			case !ofClass && !below && uint32(f.Vendor) == id:
				f.VendorName = printable(name)
			}
		}
	}
}

// printable leaves out what could steer a terminal.
func printable(name string) string {
	return strings.TrimSpace(strings.Map(func(c rune) rune {
		if !unicode.IsPrint(c) {
			return -1
		}
		return c
	}, strings.ToValidUTF8(name, "")))
}
