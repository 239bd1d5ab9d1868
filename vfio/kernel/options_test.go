package kernel

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/vfio"
)

func TestParseOptions(t *testing.T) {
	const uuid = "b6a5f7a6-08a5-4f5c-9d2c-4b1c3f0c2f1e"
	for _, tt := range []struct {
		address string
		want    options
		says    string // in the error; empty: none
	}{
		{"pci:0000:03:00.0", options{function: nic, Backend: "auto"}, ""},
		{"pci:03:00.0", options{function: nic, Backend: "auto"}, ""},
		{"pci:0000:AF:1F.7", options{function: "0000:af:1f.7", Backend: "auto"}, ""},
		{"pci:10000:e1:00.0", options{function: "10000:e1:00.0", Backend: "auto"}, ""},
		{"pci:03:00.0?backend=cdev", options{function: nic, Backend: "cdev"}, ""},
		{"pci:03:00.0?backend=group", options{function: nic, Backend: "group"}, ""},
		{"pci:03:00.0?backend=noiommu", options{function: nic, Backend: "noiommu"}, ""},
		{"pci:03:00.0?vf_token=B6A5F7A6-08a5-4f5c-9d2c-4b1c3f0c2f1e", options{function: nic, Backend: "auto", Token: uuid}, ""},
		{"pci:", options{}, "no PCI function"},
		{"pci:eth0", options{}, "no PCI function"},
		{"pci:0000:03:20.0", options{}, "lspci -D"},
		{"pci:0000:03:00.8", options{}, "no PCI function"},
		{"pci:0000:03:00", options{}, "no PCI function"},
		{"pci:../../etc/passwd", options{}, "no PCI function"},
		{"pci:000000000:03:00.0", options{}, "no PCI function"},
		{"pci:03:00.0?backend=vfio", options{}, "auto, cdev, group or noiommu"},
		{"pci:03:00.0?backend=", options{}, "option backend: it is"},
		{"pci:03:00.0?vf_token=1234", options{}, "UUID"},
		{"pci:03:00.0?vf_token=" + uuid + "%20x", options{}, "UUID"},
		{"pci:03:00.0?mtu=9000", options{}, "unknown option \"mtu\""},
	} {
		t.Run(tt.address, func(t *testing.T) {
			a := must.Get(vfio.ParseAddress(tt.address))(t)
			got, err := parseOptions(a)
			if tt.says != "" {
				must.Hold(t, errors.Is(err, vfio.ErrBadAddress), "error %v", err)
				says(t, err, tt.says, tt.address)
				return
			}
			must.OK(t, err)
			tt.want.text = tt.address
			should.Be(t, cmp.Diff(tt.want, got, cmp.AllowUnexported(options{})), "")
		})
	}
}

func TestTokenBytes(t *testing.T) {
	got := token("00112233-4455-6677-8899-aabbccddeeff").bytes()
	want := [16]byte{0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	should.Hold(t, got != nil && *got == want, "token %x", got)
	should.Hold(t, token("").bytes() == nil, "no token has bytes")
}

// FuzzParseOptions: the function's name becomes part of paths, so nothing but a
// PCI function may come through.
func FuzzParseOptions(f *testing.F) {
	f.Add("pci:0000:03:00.0")
	f.Fuzz(func(t *testing.T, s string) {
		a, err := vfio.ParseAddress(s)
		if err != nil {
			return
		}
		o, err := parseOptions(a)
		if err != nil {
			should.Fail(t, err, vfio.ErrBadAddress, "error")
			return
		}
		should.Hold(t, strings.Trim(o.function, "0123456789abcdef:.") == "" && !strings.Contains(o.function, ".."),
			"function %q", o.function)
		should.Be(t, (o.Token != ""), (o.Token.bytes() != nil), "token %q", o.Token)
	})
}
