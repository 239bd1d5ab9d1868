package hostpci_test

import (
	"bytes"
	"compress/gzip"
	"regexp"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/hostpcitest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

func TestParseAddress(t *testing.T) {
	for in, want := range map[string]string{
		"0000:03:00.0":             "0000:03:00.0",
		"03:00.0":                  "0000:03:00.0",
		"pci:0000:03:00.0":         "0000:03:00.0",
		"PCI:0000:03:00.0":         "",
		"10000:E1:1F.7":            "10000:e1:1f.7",
		"pci:03:00.0?backend=cdev": "0000:03:00.0",
	} {
		if got, err := hostpci.ParseAddress(in); got != want || (err == nil) != (want != "") {
			t.Errorf("%q: %q, %v", in, got, err)
		}
	}
}

// FuzzParseAddress: what comes out becomes part of a path.
func FuzzParseAddress(f *testing.F) {
	f.Add("0000:03:00.0")
	name := regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[01][0-9a-f]\.[0-7]$`)
	f.Fuzz(func(t *testing.T, s string) {
		got, err := hostpci.ParseAddress(s)
		if err != nil {
			return
		}
		if !name.MatchString(got) {
			t.Fatalf("%q is %q", s, got)
		}
		must.Give(hostpci.ParseAddress(got))(t, got)
	})
}

// TestNames: vendor, device and class have their names from lists as they are and compressed, and none that could steer
// a terminal. A list that cannot be read names nothing.
func TestNames(t *testing.T) {
	named := func(file, text string) [3]string {
		t.Helper()
		tree := hostpcitest.New(t)
		tree.Function(hostpcitest.NIC())
		tree.File(file, text)
		list, err := hostpci.Functions(tree.Root())
		if err != nil || len(list) != 1 {
			t.Fatalf("%+v, %v", list, err)
		}
		return [3]string{list[0].VendorName, list[0].DeviceName, list[0].ClassName}
	}
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	must.Get(w.Write([]byte(ids)))(t)
	must.OK(t, w.Close())
	known := [3]string{"Example Corp", "Trapeze NIC", "Network controller, other"}
	for _, c := range []struct {
		file, text string
		want       [3]string
	}{
		{"usr/share/hwdata/pci.ids", ids, known},
		{"usr/share/misc/pci.ids.gz", packed.String(), known},
		{"usr/share/misc/pci.ids.gz", "not gzip", [3]string{}},
		{"usr/share/misc/pci.ids", "zzzz  Not a number\n\t7250  Nobody's\n1234  Red\x1b[31m Hat\x00\n\t7250  \xff\xfeX\n\t\t1 2  Y\nC 02\n\t80  Z\n", [3]string{"Red[31m Hat", "X", "Z"}},
	} {
		should.Be(t, named(c.file, c.text), c.want, "%s", c.file)
	}
}
