package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

// Folders of a kubelet and of a container runtime, as they are unless they are told otherwise.
const (
	kubeletFolder  = "var/lib/kubelet"
	pluginRegistry = kubeletFolder + "/plugins_registry"
	devicePlugins  = kubeletFolder + "/device-plugins"
	draDriver      = "nic.trapeze-nic.github.io"
)

// cdiFolders are where container runtimes look for files of the Container Device Interface.
var cdiFolders = []string{"etc/cdi", "var/run/cdi", "run/cdi"}

// Kubernetes says whether the driver could serve the kubelet of a node below root, and whether a runtime would give pods what it
// prepares. The root must be this host's own for that. Of an agent that runs it asks which NICs it has.
func Kubernetes(ctx context.Context, root hostpci.Root, drivers []hostpci.Driver) Report {
	return around(
		named("kubelet", kubeletCheck(root)), named("registration", registryCheck(root)), named("driver", driverCheck(root)),
		named("runtime", runtimeCheck(root)), named("whole-nics", wholeCheck(root, drivers)), named("agent", agentCheck(ctx, root)),
		named("claims", claimsCheck(root)),
	)
}

func kubeletCheck(root hostpci.Root) Finding {
	if !root.Exists(kubeletFolder) {
		return found(Error, "there is no /"+kubeletFolder, "no kubelet runs here, or it has another folder, which trapeze-kubernetes takes by --kubelet-dir",
			"systemctl status kubelet")
	}
	return fine("/%s", kubeletFolder)
}

func registryCheck(root hostpci.Root) Finding {
	switch {
	case root.Exists(pluginRegistry):
		return fine("/%s", pluginRegistry)
	case root.Exists(devicePlugins):
		return found(Error, "there is no /"+pluginRegistry+", but a folder for device plugins",
			"this kubelet is too old for Dynamic Resource Allocation", "update Kubernetes to 1.34 or newer")
	}
	return found(Error, "there is neither /"+pluginRegistry+" nor /"+devicePlugins, "a driver has no place to register", "systemctl restart kubelet")
}

func driverCheck(root hostpci.Root) Finding {
	names, err := root.Names(pluginRegistry)
	for _, n := range names {
		if strings.HasPrefix(n, draDriver) && strings.HasSuffix(n, ".sock") {
			return fine("it has registered: %s", n)
		}
	}
	why := "pods of this node get no NICs"
	if err != nil {
		why = err.Error()
	}
	return found(Note, "no driver of Trapeze has registered", why, "kubectl apply -k kubernetes/deploy")
}

// enableCDI is the setting of containerd below version 2, which needs it to be true.
var enableCDI = regexp.MustCompile(`(?m)^\s*enable_cdi\s*=\s*(\w+)`)

func runtimeCheck(root hostpci.Root) Finding {
	const file = "etc/containerd/config.toml"
	text := root.Optional(file)
	set := enableCDI.FindStringSubmatch(text)
	there := false
	for _, folder := range cdiFolders {
		there = there || root.Exists(folder)
	}
	fix := []string{"/" + file + ": enable_cdi = true", "systemctl restart containerd"}
	switch {
	case set != nil && set[1] != "true":
		return found(Error, fmt.Sprintf("/%s: enable_cdi = %s", file, set[1]), "containers do not get what a claim has", fix...)
	case set == nil && strings.Contains(text, "version = 2"):
		return found(Warning, "/"+file+" is of version 2 and does not say enable_cdi", "containerd below 2.0 then ignores CDI files", fix...)
	case !there:
		return found(Note, "there is no folder for CDI files yet", "the driver makes /var/run/cdi")
	}
	return fine("CDI files are read")
}

func wholeCheck(root hostpci.Root, drivers []hostpci.Driver) Finding {
	list, err := hostpci.Functions(root)
	hostpci.Fit(list, drivers)
	var safe, unsafe []string
	for _, nic := range list {
		if nic.Fits == "" {
			continue
		}
		uses, used := hostpci.Uses(root, nic)
		switch {
		case used != nil:
			unsafe = append(unsafe, nic.Address+" ("+used.Error()+")")
		case len(uses) > 0:
			unsafe = append(unsafe, nic.Address+" ("+uses[0].String()+")")
		case nic.IOMMUGroup < 0 || nic.Unguarded:
			unsafe = append(unsafe, nic.Address+" (no IOMMU guards it)")
		case !nic.Alone():
			unsafe = append(unsafe, nic.Address+" (others are in its IOMMU group)")
		default:
			safe = append(safe, nic.Address)
		}
	}
	switch {
	case err != nil:
		return found(Warning, err.Error(), "")
	case len(safe) == 0 && len(unsafe) == 0:
		return found(Note, "no driver of Trapeze fits a NIC of this node", "shares of an agent and emulated NICs can be offered")
	case len(safe) == 0:
		return found(Warning, "none is safe to give away: "+strings.Join(unsafe, ", "), "pods get no whole NIC here", "trapeze doctor "+strings.Fields(unsafe[0])[0])
	}
	what := "safe to give away: " + strings.Join(safe, ", ")
	if len(unsafe) > 0 {
		return found(Note, what, "not safe: "+strings.Join(unsafe, ", "))
	}
	return fine("%s", what)
}

// agentCheck asks an agent that runs how its NICs are.
func agentCheck(ctx context.Context, root hostpci.Root) Finding {
	const socket = agentlink.DefaultSocket
	if !root.Exists(socket[1:]) {
		return found(Note, "there is no "+socket, "shares of an agent's NIC are tainted agent-gone until there is")
	}
	nics, _, err := agentlink.Ask(ctx, filepath.Join(string(root), socket))
	switch {
	case errors.Is(err, fs.ErrPermission):
		return found(Note, err.Error(), "only its NICs are not known: ask as root")
	case err != nil:
		return found(Warning, "no agent answers at "+socket+": "+err.Error(), "shares of its NICs are tainted agent-gone", "systemctl restart trapeze-agent")
	}
	f := fine("%s", socket)
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
			return found(Warning, err.Error(), "it is not known which claims are prepared")
		}
		for _, name := range names {
			if ok, _ := path.Match("trapeze-*.json", name); ok {
				n++
			}
		}
	}
	return fine("%d are prepared", n)
}
