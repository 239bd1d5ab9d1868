package hostpci_test

import (
	"regexp"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

func TestParseAddress(t *testing.T) {
	for in, want := range map[string]string{
		"0000:03:00.0":         "0000:03:00.0",
		"03:00.0":              "0000:03:00.0",
		"pci:0000:03:00.0":     "0000:03:00.0",
		"PCI:0000:03:00.0":     "",
		"10000:E1:1F.7":        "10000:e1:1f.7",
		"pci:03:00.0?huge=off": "0000:03:00.0",
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
		if again, err := hostpci.ParseAddress(got); err != nil || again != got {
			t.Fatalf("%q: %q, %v", got, again, err)
		}
	})
}
