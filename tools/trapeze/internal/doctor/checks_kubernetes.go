package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

// KubernetesReport says whether pods of this node can get NICs.
type KubernetesReport struct {
	CouldStart bool      `json:"could_start" help:"The driver could serve the kubelet, and a runtime would give pods what it prepares."`
	Findings   []Finding `json:"findings"`
}

// Folders of a kubelet and of a container runtime, as they are unless they are told otherwise.
const (
	kubeletFolder  = "var/lib/kubelet"
	pluginRegistry = kubeletFolder + "/plugins_registry"
	devicePlugins  = kubeletFolder + "/device-plugins"
	draDriver      = "nic.trapeze-nic.github.io"
)

// cdiFolders are where container runtimes look for files of the Container Device Interface.
var cdiFolders = []string{"etc/cdi", "var/run/cdi", "run/cdi"}

// Kubernetes makes the checks of a node below root, which must be this host's own for NICs to be
// prepared. Of an agent that runs it asks which NICs it has.
func Kubernetes(ctx context.Context, root hostpci.Root, drivers []hostpci.Driver) KubernetesReport {
	r := KubernetesReport{Findings: []Finding{
		kubeletCheck(root), registryCheck(root), driverCheck(root), runtimeCheck(root), wholeCheck(root, drivers), agentCheck(ctx, root), claimsCheck(root),
	}}
	r.CouldStart = worst(r.Findings) < Error
	return r
}

func kubeletCheck(root hostpci.Root) Finding {
	f := Finding{Check: "kubelet", What: "/" + kubeletFolder}
	if !root.Exists(kubeletFolder) {
		f.Severity, f.What = Error, "there is no /"+kubeletFolder
		f.Why = "no kubelet runs here, or it has another folder, which trapeze-kubernetes takes by --kubelet-dir"
		f.Fix = []string{"systemctl status kubelet"}
	}
	return f
}

func registryCheck(root hostpci.Root) Finding {
	f := Finding{Check: "registration", What: "/" + pluginRegistry}
	switch {
	case root.Exists(pluginRegistry):
	case root.Exists(devicePlugins):
		f.Severity, f.What = Warning, "there is no /"+pluginRegistry+", but a folder for device plugins"
		f.Why, f.Fix = "this kubelet is too old for Dynamic Resource Allocation (Kubernetes 1.34)", []string{"trapeze-kubernetes --device-plugin"}
	default:
		f.Severity, f.What = Error, "there is neither /"+pluginRegistry+" nor /"+devicePlugins
		f.Why, f.Fix = "a driver has no place to register", []string{"systemctl restart kubelet"}
	}
	return f
}

func driverCheck(root hostpci.Root) Finding {
	names, err := root.Names(pluginRegistry)
	for _, n := range names {
		if strings.HasPrefix(n, draDriver) && strings.HasSuffix(n, ".sock") {
			return Finding{Check: "driver", What: "it has registered: " + n}
		}
	}
	f := Finding{Check: "driver", Severity: Note, What: "no driver of Trapeze has registered", Why: "pods of this node get no NICs",
		Fix: []string{"kubectl apply -k kubernetes/deploy"}}
	if err != nil {
		f.Why = err.Error()
	}
	return f
}

// enableCDI is the setting of containerd below version 2, which needs it to be true.
var enableCDI = regexp.MustCompile(`(?m)^\s*enable_cdi\s*=\s*(\w+)`)

func runtimeCheck(root hostpci.Root) Finding {
	const file = "etc/containerd/config.toml"
	text := root.Optional(file)
	set := enableCDI.FindStringSubmatch(text)
	found := false
	for _, folder := range cdiFolders {
		found = found || root.Exists(folder)
	}
	switch {
	case set != nil && set[1] != "true":
		return Finding{Check: "runtime", Severity: Error, What: fmt.Sprintf("/%s: enable_cdi = %s", file, set[1]),
			Why: "containers do not get what a claim has", Fix: []string{"/" + file + ": enable_cdi = true", "systemctl restart containerd"}}
	case set == nil && strings.Contains(text, "version = 2"):
		return Finding{Check: "runtime", Severity: Warning, What: "/" + file + " is of version 2 and does not say enable_cdi",
			Why: "containerd below 2.0 then ignores CDI files", Fix: []string{"/" + file + ": enable_cdi = true", "systemctl restart containerd"}}
	case !found:
		return Finding{Check: "runtime", Severity: Note, What: "there is no folder for CDI files yet", Why: "the driver makes /var/run/cdi"}
	}
	return Finding{Check: "runtime", What: "CDI files are read"}
}

func wholeCheck(root hostpci.Root, drivers []hostpci.Driver) Finding {
	f := Finding{Check: "whole-nics"}
	list, err := hostpci.Functions(root)
	hostpci.Fit(list, drivers)
	var safe, unsafe []string
	for _, nic := range list {
		if nic.Fits == "" {
			continue
		}
		uses, used := hostpci.Uses(root, nic)
		others := 0
		for _, m := range nic.GroupMembers {
			if !m.Bridge {
				others++
			}
		}
		switch {
		case used != nil:
			unsafe = append(unsafe, nic.Address+" ("+used.Error()+")")
		case len(uses) > 0:
			unsafe = append(unsafe, nic.Address+" ("+uses[0].String()+")")
		case nic.IOMMUGroup < 0 || nic.Unguarded:
			unsafe = append(unsafe, nic.Address+" (no IOMMU guards it)")
		case others > 0:
			unsafe = append(unsafe, nic.Address+" ("+strconv.Itoa(others)+" others are in its IOMMU group)")
		default:
			safe = append(safe, nic.Address)
		}
	}
	switch {
	case err != nil:
		f.Severity, f.What = Warning, err.Error()
	case len(safe) == 0 && len(unsafe) == 0:
		f.Severity, f.What, f.Why = Note, "no driver of Trapeze fits a NIC of this node", "shares of an agent and emulated NICs can be offered"
	case len(safe) == 0:
		f.Severity, f.What, f.Why = Warning, "none is safe to give away: "+strings.Join(unsafe, ", "), "pods get no whole NIC here"
		f.Fix = []string{"trapeze doctor " + strings.Fields(unsafe[0])[0]}
	default:
		f.What = "safe to give away: " + strings.Join(safe, ", ")
		if len(unsafe) > 0 {
			f.Severity, f.Why = Note, "not safe: "+strings.Join(unsafe, ", ")
		}
	}
	return f
}

// agentCheck asks an agent that runs how its NICs are.
func agentCheck(ctx context.Context, root hostpci.Root) Finding {
	f := Finding{Check: "agent", What: agentlink.DefaultSocket}
	if !root.Exists(agentlink.DefaultSocket[1:]) {
		f.Severity, f.What, f.Why = Note, "there is no "+f.What, "shares of an agent's NIC are tainted agent-gone until there is"
		return f
	}
	nics, _, err := agentlink.Ask(ctx, filepath.Join(string(root), agentlink.DefaultSocket))
	switch {
	case errors.Is(err, fs.ErrPermission):
		f.Severity, f.What, f.Why = Note, err.Error(), "only its NICs are not known: ask as root"
		return f
	case err != nil:
		f.Severity, f.What, f.Why = Warning, "no agent answers at "+f.What+": "+err.Error(), "shares of its NICs are tainted agent-gone"
		f.Fix = []string{"systemctl restart trapeze-agent"}
		return f
	}
	for _, n := range nics {
		f.What += ", " + n.Name + " is " + n.State
		if n.State != agentlink.Up {
			f.Severity, f.Why, f.Fix = Warning, "pods with a share of such a NIC reach nothing else", []string{"journalctl -u trapeze-agent"}
		}
	}
	return f
}

func claimsCheck(root hostpci.Root) Finding {
	n := 0
	for _, folder := range cdiFolders[:2] {
		names, err := root.Names(folder)
		if err != nil {
			return Finding{Check: "claims", Severity: Warning, What: err.Error(), Why: "it is not known which claims are prepared"}
		}
		for _, name := range names {
			if ok, _ := path.Match("trapeze-*.json", name); ok {
				n++
			}
		}
	}
	return Finding{Check: "claims", What: fmt.Sprintf("%d are prepared", n)}
}
