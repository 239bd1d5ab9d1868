package kernel

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/vfio"
)

func TestParseOptions(t *testing.T) {
	const token = "b6a5f7a6-08a5-4f5c-9d2c-4b1c3f0c2f1e"
	for _, tt := range []struct {
		address string
		want    options
		says    string // in the error; empty: none
	}{
		{"pci:0000:03:00.0", options{function: nic, backend: "auto", huge: true}, ""},
		{"pci:03:00.0", options{function: nic, backend: "auto", huge: true}, ""},
		{"pci:0000:AF:1F.7", options{function: "0000:af:1f.7", backend: "auto", huge: true}, ""},
		{"pci:10000:e1:00.0", options{function: "10000:e1:00.0", backend: "auto", huge: true}, ""},
		{"pci:03:00.0?backend=cdev&huge=off", options{function: nic, backend: "cdev"}, ""},
		{"pci:03:00.0?backend=group&huge=on", options{function: nic, backend: "group", huge: true}, ""},
		{"pci:03:00.0?backend=noiommu", options{function: nic, backend: "noiommu", huge: true}, ""},
		{"pci:03:00.0?vf_token=B6A5F7A6-08a5-4f5c-9d2c-4b1c3f0c2f1e", options{function: nic, backend: "auto", token: token, huge: true}, ""},
		{"pci:", options{}, "no PCI function"},
		{"pci:eth0", options{}, "no PCI function"},
		{"pci:0000:03:20.0", options{}, "lspci -D"},
		{"pci:0000:03:00.8", options{}, "no PCI function"},
		{"pci:0000:03:00", options{}, "no PCI function"},
		{"pci:../../etc/passwd", options{}, "no PCI function"},
		{"pci:000000000:03:00.0", options{}, "no PCI function"},
		{"pci:03:00.0?backend=vfio", options{}, "auto, cdev, group, noiommu"},
		{"pci:03:00.0?backend=", options{}, "backend is one of"},
		{"pci:03:00.0?huge=2M", options{}, "on or off"},
		{"pci:03:00.0?vf_token=1234", options{}, "UUID"},
		{"pci:03:00.0?vf_token=" + token + "%20x", options{}, "UUID"},
		{"pci:03:00.0?mtu=9000", options{}, "unknown option \"mtu\""},
	} {
		t.Run(tt.address, func(t *testing.T) {
			a, err := vfio.ParseAddress(tt.address)
			if err != nil {
				t.Fatal(err)
			}
			got, err := parseOptions(a)
			if tt.says != "" {
				if !errors.Is(err, vfio.ErrBadAddress) {
					t.Fatalf("error %v", err)
				}
				says(t, err, tt.says, tt.address)
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			tt.want.text = tt.address
			if diff := cmp.Diff(tt.want, got, cmp.AllowUnexported(options{})); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestTokenBytes(t *testing.T) {
	got := options{token: "00112233-4455-6677-8899-aabbccddeeff"}.tokenBytes()
	want := [16]byte{0, 0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x99, 0xaa, 0xbb, 0xcc, 0xdd, 0xee, 0xff}
	if got == nil || *got != want {
		t.Errorf("token %x", got)
	}
	if (options{}).tokenBytes() != nil {
		t.Error("no token has bytes")
	}
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
			if !errors.Is(err, vfio.ErrBadAddress) {
				t.Errorf("error %v", err)
			}
			return
		}
		if strings.Trim(o.function, "0123456789abcdef:.") != "" || strings.Contains(o.function, "..") {
			t.Errorf("function %q", o.function)
		}
		if (o.token != "") != (o.tokenBytes() != nil) {
			t.Errorf("token %q", o.token)
		}
	})
}
