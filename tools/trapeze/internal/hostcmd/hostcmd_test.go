package hostcmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/spf13/cobra"
	"go.uber.org/goleak"

	"github.com/trapeze-nic/trapeze/ci/kit/hostpcitest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/hostcmd"
	"github.com/trapeze-nic/trapeze/vfio"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const nic = "0000:03:00.0"

// isDevice says whether err is about a device.
func isDevice(err error) bool {
	var device *command.DeviceError
	return errors.As(err, &device)
}

type outcome struct {
	stdout, stderr string
	err            error
}

// run runs a command on a recorded host.
func run(t *testing.T, tree *hostpcitest.Tree, write func(name, value string) error, args ...string) outcome {
	t.Helper()
	var stdout, stderr bytes.Buffer
	env := command.Env{Stdout: &stdout, Stderr: &stderr}
	root := &cobra.Command{Use: "trapeze", SilenceErrors: true, SilenceUsage: true}
	root.PersistentFlags().BoolVar(&env.JSON, "json", false, "")
	root.AddCommand(hostcmd.NewCommands(&env, write)...)
	root.SetOut(&stdout)
	root.SetErr(&stderr)
	if tree != nil {
		args = append(args, "--root", string(tree.Root()))
	}
	root.SetArgs(args)
	err := root.ExecuteContext(context.Background())
	return outcome{stdout.String(), stderr.String(), err}
}

func decode(t *testing.T, o outcome, into any) {
	t.Helper()
	d := json.NewDecoder(strings.NewReader(o.stdout))
	must.OK(t, d.Decode(into), "in %q", o.stdout)
	_, err := d.Token()
	should.Hold(t, err == io.EOF && o.stderr == "", "something follows the object: %q, stderr %q", o.stdout, o.stderr)
}

// host has an idle NIC that belongs to ixgbe, and VFIO.
func host(t *testing.T) (*hostpcitest.Tree, *hostpcitest.Kernel) {
	tree := hostpcitest.New(t)
	f := hostpcitest.NIC()
	f.Driver, f.Netdev = "ixgbe", "ens1"
	tree.Function(f)
	tree.Function(hostpcitest.Function{Address: "0000:00:1c.0", Class: 0x060400, Driver: "pcieport", Group: 12})
	tree.Driver("vfio-pci")
	tree.File("usr/share/misc/pci.ids", "1234  Example Corp\n\t7250  Trapeze NIC\n")
	return tree, tree.Kernel(map[string]string{nic: "ixgbe"})
}

func TestList(t *testing.T) {
	tree, _ := host(t)
	tree.File("proc/net/route", "ens1\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n")
	o := run(t, tree, nil, "list")
	must.Hold(t, o.err == nil, "%+v", o.err)
	for _, s := range []string{"pci:0000:03:00.0", "Example Corp Trapeze NIC [1234:7250]", "ixgbe", "fits", "0000:00:1c.0  pcieport",
		"max_gt_s", "ens1 carries the default route", "afxdp:ens1", "emu:?wire=udp://HOST:PORT"} {
		should.Contain(t, o.stdout, s)
	}
	var r struct {
		Functions []map[string]any
		Emulated  []map[string]any
		Schemes   []string
	}
	decode(t, run(t, tree, nil, "list", "--json"), &r)
	must.Hold(t, len(r.Functions) == 1 && len(r.Emulated) != 0, "%+v", r)
	f := r.Functions[0]
	want := map[string]any{"address": "pci:" + nic, "vendor": "1234", "device": "7250", "class": "028000", "driver": "ixgbe", "iommu_group": 12.0, "fits": "trapeze", "device_name": "Trapeze NIC"}
	for k, v := range want {
		should.Be(t, f[k], v, "%s", k)
	}
	should.Be(t, fmt.Sprint(f["afxdp"]), "[afxdp:ens1]")
	for _, k := range []string{"group_members", "link", "netdevs", "sriov", "power_state", "bars", "backends", "in_use", "numa_node"} {
		should.Hold(t, f[k] != nil, "no %s", k)
	}
}

// TestListOfOthersNICs has NICs that an Ethernet driver is for, tested and not.
func TestListOfOthersNICs(t *testing.T) {
	tree, _ := host(t)
	for i, device := range []uint16{0x10c9, 0x1533, 0x1572} {
		tree.Function(hostpcitest.Function{Address: fmt.Sprintf("0000:04:00.%d", i), Behind: "0000:00:1c.0", Vendor: 0x8086, Device: device, Class: 0x020000, Group: 20 + i})
	}
	tree.Function(hostpcitest.Function{Address: "0000:04:00.4", Behind: "0000:00:1c.0", Vendor: 0x1234, Device: 0x1001, Class: 0x020000, Group: 24})
	tree.File("sys/bus/pci/devices/0000:04:00.4/subsystem_vendor", "0x10ee\n")
	tree.File("sys/bus/pci/devices/0000:04:00.4/subsystem_device", "0x90c8\n")
	var r struct{ Functions []map[string]any }
	decode(t, run(t, tree, nil, "list", "--json"), &r)
	got := map[string][2]any{}
	for _, f := range r.Functions {
		got[f["device"].(string)] = [2]any{f["fits"], f["untested"]}
	}
	want := map[string][2]any{"7250": {"trapeze", false}, "10c9": {"igb", false}, "1533": {"igb", true}, "1572": {"", false}, "1001": {"mqnic", true}}
	should.Hold(t, maps.Equal(got, want), "got %v, want %v", got, want)
	if o := run(t, tree, nil, "list"); !strings.Contains(o.stdout, "untested") || strings.Count(o.stdout, "eth:pci:0000:04:00.") != 3 || !strings.Contains(o.stdout, "Corundum on Alveo U200") {
		t.Errorf("not said:\n%s", o.stdout)
	}
}

func TestListOfNothing(t *testing.T) {
	tree := hostpcitest.New(t)
	if o := run(t, tree, nil, "list"); o.err != nil || !strings.Contains(o.stderr, "no network controllers") {
		t.Errorf("%+v", o)
	}
	tree.Remove("sys")
	if o := run(t, tree, nil, "list"); o.err == nil || o.stdout != "" {
		t.Errorf("%+v", o)
	}
}

func TestBindAndUnbind(t *testing.T) {
	tree, kernel := host(t)
	o := run(t, tree, kernel.Write, "bind", "--dry-run", nic)
	want := "echo vfio-pci > /sys/bus/pci/devices/0000:03:00.0/driver_override\n" +
		"echo 0000:03:00.0 > /sys/bus/pci/devices/0000:03:00.0/driver/unbind\necho 0000:03:00.0 > /sys/bus/pci/drivers_probe\n"
	should.Hold(t, o.err == nil && o.stdout == want && len(kernel.Writes()) == 0, "%+v, wrote %q", o, kernel.Writes())
	tree.Remove("sys/bus/pci/drivers/vfio-pci")
	if o := run(t, tree, kernel.Write, "bind", "--dry-run", nic); o.err != nil || o.stdout != "modprobe vfio-pci\n"+want {
		t.Errorf("without the driver: %+v", o)
	}
	tree.Driver("vfio-pci")
	o = run(t, tree, kernel.Write, "bind", "pci:"+nic)
	should.Hold(t, o.err == nil && o.stdout == "0000:03:00.0: ixgbe -> vfio-pci\nopens by /dev/vfio/12\n", "%+v", o)
	o = run(t, tree, kernel.Write, "bind", nic)
	should.Hold(t, o.err == nil && strings.HasPrefix(o.stdout, "is bound already\n"), "%+v", o)
	var r map[string]any
	decode(t, run(t, tree, kernel.Write, "unbind", nic, "--json"), &r)
	changes := []any{map[string]any{"address": nic, "before": "vfio-pci", "after": "ixgbe"}}
	d := cmp.Diff(changes, r["changes"])
	should.Hold(t, d == "" && r["dry_run"] == false && len(r["writes"].([]any)) == 3, "%+v %+v", d, r)
}

func TestForce(t *testing.T) {
	tree, kernel := host(t)
	tree.File("proc/net/route", "ens1\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n")
	o := run(t, tree, kernel.Write, "bind", nic)
	should.Hold(t, errors.Is(o.err, hostpci.ErrInUse) && o.stdout == "" && strings.Contains(o.err.Error(), "--force") && !isDevice(o.err), "%+v", o)
	o = run(t, tree, kernel.Write, "bind", "--force", nic)
	should.Hold(t, o.err == nil && strings.Contains(o.stderr, "forced, although ens1 carries"), "%+v", o)
}

func TestBadCommandLines(t *testing.T) {
	tree, kernel := host(t)
	for name, c := range map[string]struct {
		args []string
		want error
	}{
		"bad address":      {[]string{"bind", "eth0"}, vfio.ErrBadAddress},
		"no such function": {[]string{"unbind", "0000:09:00.0"}, hostpci.ErrNoFunction},
		"nobody to see":    {[]string{"doctor", "0000:09:00.0"}, hostpci.ErrNoFunction},
		"other driver":     {[]string{"bind", "--driver", "ixgbe", nic}, hostpci.ErrNoDriver},
	} {
		t.Run(name, func(t *testing.T) {
			o := run(t, tree, kernel.Write, c.args...)
			if o.err == nil || c.want != nil && !errors.Is(o.err, c.want) ||
				isDevice(o.err) != (c.want == vfio.ErrBadAddress || c.want == hostpci.ErrNoFunction) || o.stdout != "" || len(kernel.Writes()) != 0 {
				t.Errorf("%+v, want %v, wrote %q", o, c.want, kernel.Writes())
			}
		})
	}
}

func TestDoctor(t *testing.T) {
	tree, kernel := host(t)
	tree.File("proc/sys/kernel/osrelease", "6.12.1\n")
	o := run(t, tree, nil, "doctor", nic)
	var not *hostcmd.NotReadyError
	must.Hold(t, errors.As(o.err, &not) && strings.HasSuffix(not.What, nic) && not.Errors != 0, "%+v", o)
	var list struct{ Functions []struct{ Name string } }
	decode(t, run(t, tree, nil, "list", "--json"), &list)
	named := nic + "  " + list.Functions[0].Name
	for _, s := range []string{"this host", "> trapeze bind " + nic, named + ", made for trapeze: a driver could not start", "error   binding: ixgbe has it"} {
		should.Contain(t, o.stdout, s)
	}
	if o := run(t, tree, kernel.Write, "bind", nic); o.err != nil {
		t.Fatal(o.err)
	}
	tree.Dir("sys/module/vfio_iommu_type1")
	o = run(t, tree, nil, "doctor")
	should.Hold(t, o.err == nil && strings.Contains(o.stdout, "a driver could start"), "%+v", o)
	all := run(t, tree, nil, "doctor", "--all")
	should.Hold(t, len(all.stdout) > len(o.stdout) && strings.Contains(all.stdout, "ok      binding: bound to vfio-pci"), "%+v", all)
	var r struct {
		CouldStart bool `json:"could_start"`
		Host       []struct{ Check, Severity, What string }
		Functions  []struct{ Address string }
	}
	decode(t, run(t, tree, nil, "doctor", "--json"), &r)
	should.Hold(t, r.CouldStart && len(r.Host) != 0 && r.Host[0].Severity == "ok" && len(r.Functions) == 1, "%+v", r)
}
