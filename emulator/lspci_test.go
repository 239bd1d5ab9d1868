package emulator_test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

var update = flag.Bool("update", false, "write golden files instead of comparing")

// dump writes configuration space the way lspci -xxxx does, for lspci -F.
func dump(config []byte) []byte {
	var b bytes.Buffer
	fmt.Fprintln(&b, "00:00.0 Class 0280: Device 1234:7250")
	for at := 0; at < len(config); at += 16 {
		fmt.Fprintf(&b, "%02x: % x\n", at, config[at:at+16])
	}
	return b.Bytes()
}

// lspci shows a device through the real lspci. The names of vendors come from
// testdata, as those of the system change.
func lspci(t *testing.T, d vfio.Device) (shown, version string) {
	t.Helper()
	program, err := exec.LookPath("lspci")
	if err != nil {
		t.Skip("lspci is not installed")
	}
	file := filepath.Join(t.TempDir(), "dump")
	must.OK(t, os.WriteFile(file, dump(read(t, d, vfio.RegionConfig, 0, 4096)), 0o644))
	out, err := exec.Command(program, "-vv", "-i", "testdata/pci.ids", "-F", file).Output()
	if err != nil {
		t.Fatalf("lspci: %v", err)
	}
	v := must.Get(exec.Command(program, "--version").Output())(t)
	return string(out), strings.TrimSpace(string(v))
}

func TestLspci(t *testing.T) {
	tests := []struct {
		golden string
		ready  bool // as a driver leaves it: enabled, with interrupts
	}{
		{"power-on", false},
		{"in-use", true},
	}
	for _, tt := range tests {
		t.Run(tt.golden, func(t *testing.T) {
			d := newDevice(t, func(o *emulator.Options) {
				o.MAC = datasheet.MAC{0x02, 0x54, 0x52, 0x50, 0x5a, 0x01}
				o.Limits = engine.DefaultLimits()
			})
			if tt.ready {
				powerUp(t, d)
				must.OK(t, d.SetIRQs(vfio.IRQMSIX, 0, []int{newEventfd(t).FD()}))
			}
			got, version := lspci(t, d)
			file := filepath.Join("testdata", "lspci-"+tt.golden+".golden")
			if *update {
				must.OK(t, os.WriteFile(file, []byte("# "+version+"\n"+got), 0o644))
			}
			golden := must.Get(os.ReadFile(file))(t)
			made, want, _ := strings.Cut(string(golden), "\n")
			if made == "# "+version {
				should.Be(t, cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")), "", "lspci shows something else (-want +got)")
				return
			}
			// Other versions word the details differently.
			t.Logf("golden file of %s, this is %s: comparing what matters", made[2:], version)
			for _, line := range []string{"Network controller", "Memory at", "(64-bit, prefetchable)",
				"Power Management version 3", "Express (v2) Endpoint", "MSI-X: Enable", "Vector table: BAR=0 offset=00002000",
				"PBA: BAR=0 offset=00003000", "Device Serial Number 02-54-52-ff-fe-50-5a-01"} {
				should.Contain(t, got, line, "lspci does not show")
			}
		})
	}
}
