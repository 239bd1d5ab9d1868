package main

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"

	"github.com/trapeze-nic/trapeze/via"
)

func TestNamesOfDevices(t *testing.T) {
	file := filepath.Join(t.TempDir(), "vipl.conf")
	if err := os.WriteFile(file, []byte("# NICs\nnic0=emu:?wire=mem:a # the first\n\n/dev/clanvi0=pci:0000:03:00.0\nbroken\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ variable, name, want string }{
		{"", "emu:?wire=loop", "emu:?wire=loop"},
		{"nic0=emu:", "pci:0000:03:00.0", "pci:0000:03:00.0"},
		{"nic0=emu:?wire=mem:x nic1=emu:?wire=mem:y", "nic1", "emu:?wire=mem:y"},
		{"/dev/clanvi0=emu:?wire=mem:x", "/dev/clanvi0", "emu:?wire=mem:x"},
		{"emu:?wire=mem:x", "whatever", "emu:?wire=mem:x"},
		{"nic0=emu:a\nvfio-user:/run/nic", "nic7", "vfio-user:/run/nic"},
		{file, "nic0", "emu:?wire=mem:a"},
		{file, "/dev/clanvi0", "pci:0000:03:00.0"},
		{file, "broken", ""},
		{"nic0=emu:", "nic1", ""},
		{"nic0", "nic0", ""},
		{"nic0=emu:", "", ""},
	} {
		t.Setenv(variable, c.variable)
		got, err := addressOf(c.name)
		if got != c.want || (err == nil) != (c.want != "") || err != nil && !errors.Is(err, via.ErrInvalidParameter) {
			t.Errorf("%q with %q: %q, %v", c.name, c.variable, got, err)
		}
	}
	t.Setenv(variable, file+".missing")
	if _, err := addressOf("nic0"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no such file: %v", err)
	}
}

// TestRunning: an emulated NIC that says nothing else runs on a thread.
func TestRunning(t *testing.T) {
	for address, want := range map[string]string{
		"emu:":                          "emu:?engine=thread",
		"emu:?wire=mem:a":               "emu:?wire=mem:a&engine=thread",
		"emu:?wire=mem:a&engine=inline": "emu:?wire=mem:a&engine=inline",
		"emu:?engine=thread":            "emu:?engine=thread",
		"pci:0000:03:00.0":              "pci:0000:03:00.0",
		"vfio-user:/run/nic":            "vfio-user:/run/nic",
		"nonsense":                      "nonsense",
	} {
		if got := running(address); got != want {
			t.Errorf("%s: %s", address, got)
		}
	}
}
