package hostpci_test

import (
	"bytes"
	"compress/gzip"
	"strings"
	"testing"
	"unicode"

	"github.com/trapeze-nic/trapeze/ci/kit/hostpcitest"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

func TestParseIDs(t *testing.T) {
	l, err := hostpci.ParseIDs(strings.NewReader(ids + "zzzz  Not a number\n\t0001  Nobody's\n12  Short\n1af4  Red\x1b[31m Hat\x00\n\t1041  Virtio\n\t104\n"))
	if err != nil {
		t.Fatal(err)
	}
	for got, want := range map[string]string{
		l.Vendor(0x1234):         "Example Corp",
		l.Device(0x1234, 0x7250): "Trapeze NIC",
		l.Vendor(0x1af4):         "Red[31m Hat",
		l.Device(0x1af4, 0x1041): "Virtio",
		l.Class(0x020000):        "Ethernet controller",
		l.Class(0x02ff00):        "Network controller",
	} {
		if got != want {
			t.Errorf("%q, want %q", got, want)
		}
	}
	if s := l.Vendor(0x5678) + l.Device(0x1234, 1) + l.Device(0x8086, 1) + l.Class(0x010000); s != "" {
		t.Errorf("unknown ids are named %q", s)
	}
}

func TestCompressedIDs(t *testing.T) {
	tree := hostpcitest.New(t)
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(ids)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	tree.File("usr/share/misc/pci.ids.gz", b.String())
	l, err := hostpci.ReadIDs(tree.Root())
	if err != nil || l.Vendor(0x8086) != "Intel" {
		t.Errorf("%q, %v", l.Vendor(0x8086), err)
	}
	tree.File("usr/share/misc/pci.ids.gz", "not gzip")
	if _, err := hostpci.ReadIDs(tree.Root()); err == nil {
		t.Error("accepted something that is not compressed")
	}
	tree.Function(hostpcitest.NIC())
	if f, err := hostpci.Functions(tree.Root()); err != nil || len(f) != 1 || f[0].VendorName != "" {
		t.Errorf("names that cannot be read hide functions: %+v, %v", f, err)
	}
}

func FuzzParseIDs(f *testing.F) {
	f.Add([]byte(ids))
	f.Add([]byte("C 02\n\t00  x\nC zz  y\n\t00  z\n\t\t\n"))
	f.Add([]byte("1234  \x1b]0;title\x07\n\tabcd  \xff\xfe\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		l, err := hostpci.ParseIDs(bytes.NewReader(text))
		if err != nil {
			return
		}
		for id := range 1 << 16 {
			for _, name := range []string{l.Vendor(uint16(id)), l.Class(uint32(id) << 8), l.Device(0x1234, uint16(id))} {
				if strings.ContainsFunc(name, func(c rune) bool { return unicode.IsControl(c) }) {
					t.Fatalf("%#x is named %q", id, name)
				}
				if name != "" && !bytes.Contains(text, []byte{name[0]}) {
					t.Fatalf("%#x has the name %q, which is not in the list", id, name)
				}
			}
		}
	})
}
