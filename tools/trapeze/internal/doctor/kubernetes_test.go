package doctor_test

import (
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/hostpcitest"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/doctor"
)

// TestKubernetes: a node where all is well has no finding but notes, and each fault is found by its
// check, which says what to do.
func TestKubernetes(t *testing.T) {
	drivers := []hostpci.Driver{{Name: "trapeze", Vendor: 0x1234, Device: 0x7250}}
	for _, c := range []struct {
		name, check, says string
		severity          doctor.Severity
		change            func(*hostpcitest.Tree)
	}{
		{"nothing wrong", "whole-nics", "0000:03:00.0", doctor.OK, func(*hostpcitest.Tree) {}},
		{"registered", "driver", "has registered", doctor.OK, func(*hostpcitest.Tree) {}},
		{"a prepared claim", "claims", "1 are prepared", doctor.OK, func(*hostpcitest.Tree) {}},
		{"no kubelet", "kubelet", "/var/lib/kubelet", doctor.Error, func(h *hostpcitest.Tree) { h.Remove("var/lib/kubelet") }},
		{"an old kubelet", "registration", "device plugins", doctor.Warning, func(h *hostpcitest.Tree) {
			h.Remove("var/lib/kubelet/plugins_registry")
			h.Dir("var/lib/kubelet/device-plugins")
		}},
		{"no place to register", "registration", "neither", doctor.Error, func(h *hostpcitest.Tree) { h.Remove("var/lib/kubelet/plugins_registry") }},
		{"CDI is off", "runtime", "enable_cdi = false", doctor.Error, func(h *hostpcitest.Tree) {
			h.File("etc/containerd/config.toml", "version = 2\n  enable_cdi = false\n")
		}},
		{"CDI is not said", "runtime", "enable_cdi", doctor.Warning, func(h *hostpcitest.Tree) { h.File("etc/containerd/config.toml", "version = 2\n") }},
		{"the default route", "whole-nics", "none is safe", doctor.Warning, func(h *hostpcitest.Tree) {
			h.File("proc/net/route", "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\nens1\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n")
		}},
		{"no agent", "agent", "agent.sock", doctor.Note, func(h *hostpcitest.Tree) { h.Remove("run/trapeze/agent.sock") }},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree := hostpcitest.New(t)
			nic := hostpcitest.NIC()
			nic.Driver, nic.Netdev = "trapeze-nic", "ens1"
			tree.Function(nic)
			for _, f := range []string{"var/lib/kubelet/plugins_registry/nic.trapeze-nic.github.io-reg.sock", "var/run/cdi/trapeze-u1.json", "run/trapeze/agent.sock"} {
				tree.File(f, "")
			}
			c.change(tree)
			r := doctor.Kubernetes(tree.Root(), drivers)
			worst := doctor.OK
			for _, f := range r.Findings {
				worst = max(worst, f.Severity)
				if f.Check == c.check && (f.Severity != c.severity || !strings.Contains(f.What, c.says) || f.Severity > doctor.Note && (f.Why == "" || len(f.Fix) == 0)) {
					t.Errorf("%+v", f)
				}
			}
			if r.CouldStart != (worst < doctor.Error) || worst != c.severity && c.severity > doctor.OK && c.name != "no kubelet" {
				t.Errorf("%+v", r)
			}
		})
	}
}
