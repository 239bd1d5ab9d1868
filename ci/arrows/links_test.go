package arrows

import (
	"maps"
	"os/exec"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// links lists, for programs and for libraries that applications import, the modules of others that
// they link. A new module is a new line here.
var links = map[string][]string{
	"./cmd/trapeze": {
		"github.com/HdrHistogram/hdrhistogram-go",
		"github.com/cilium/ebpf",
		"github.com/coreos/go-systemd/v22", // sockets of a service manager
		"github.com/flynn/noise",           // UDP wires with a key
		"github.com/gofrs/flock",
		"github.com/gopacket/gopacket",
		"github.com/jstemmer/go-junit-report/v2",
		"github.com/pelletier/go-toml/v2", // agent.toml
		"github.com/spf13/cobra",
		"github.com/spf13/pflag",
		"github.com/vishvananda/netlink",
		"github.com/vishvananda/netns",
		"golang.org/x/crypto", // for noise
		"golang.org/x/net",
		"golang.org/x/sys",
		"golang.org/x/term",
	},
	"./cmd/trapeze-lab": {
		"github.com/HdrHistogram/hdrhistogram-go",
		"github.com/cilium/ebpf",
		"github.com/flynn/noise", // UDP wires with a key
		"github.com/gofrs/flock",
		"github.com/pelletier/go-toml/v2",
		"github.com/spf13/cobra",
		"github.com/spf13/pflag",
		"github.com/vishvananda/netlink",
		"github.com/vishvananda/netns",
		"golang.org/x/crypto",
		"golang.org/x/sys",
		"golang.org/x/term",
	},
	"./examples/hello":   {"github.com/HdrHistogram/hdrhistogram-go", "github.com/cilium/ebpf", "github.com/flynn/noise", "github.com/gofrs/flock", "github.com/vishvananda/netlink", "github.com/vishvananda/netns", "golang.org/x/crypto", "golang.org/x/sys"},
	"./via":              {"github.com/HdrHistogram/hdrhistogram-go", "github.com/cilium/ebpf", "github.com/gofrs/flock", "golang.org/x/sys"},
	"./ring":             {"github.com/HdrHistogram/hdrhistogram-go", "github.com/cilium/ebpf", "github.com/gofrs/flock", "golang.org/x/sys"},
	"./channel":          {"github.com/HdrHistogram/hdrhistogram-go", "github.com/cilium/ebpf", "github.com/gofrs/flock", "golang.org/x/sys"},
	"./netmem":           {"github.com/HdrHistogram/hdrhistogram-go", "github.com/cilium/ebpf", "github.com/gofrs/flock", "golang.org/x/sys"},
	"./ethernet/drivers": {"github.com/cilium/ebpf", "github.com/gofrs/flock", "github.com/vishvananda/netlink", "github.com/vishvananda/netns", "golang.org/x/sys"},
	"./vfio/kernel":      {"github.com/gofrs/flock", "github.com/vishvananda/netlink", "github.com/vishvananda/netns", "golang.org/x/sys"},
}

// TestLinks compares the lists with what the linker would take.
func TestLinks(t *testing.T) {
	// One list of all packages, as each "go list" takes its time; those that are asked for have their dependencies in it.
	// With its profile a program would have packages of its own, by other names.
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-pgo=off", "-deps", "-f",
		"{{.ImportPath}}\t{{with .Module}}{{.Path}}{{end}}\t{{if not .DepOnly}}{{join .Deps \" \"}}{{end}}"}, slices.Collect(maps.Keys(links))...)...)
	cmd.Dir = "../.."
	out, err := cmd.Output()
	must.OK(t, err, "go list -deps")
	moduleOf, deps := map[string]string{}, map[string][]string{}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		moduleOf[f[0]], deps[f[0]] = f[1], strings.Fields(f[2])
	}
	for of, want := range links {
		var got []string
		for _, p := range deps[path.Join(Module, of)] {
			if m := moduleOf[p]; m != "" && m != Module {
				got = append(got, m)
			}
		}
		slices.Sort(got)
		got = slices.Compact(got)
		should.Same(t, got, want, "%s links , and the list", of)
	}
}
