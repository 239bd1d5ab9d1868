package doctor_test

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/hostpcitest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/doctor"
)

// answer answers as an agent with some NICs does, until the test ends.
func answer(t *testing.T, path string, nics []agentlink.NIC) {
	t.Helper()
	l := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))(t)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for {
			found, err := l.AcceptUnix()
			if err != nil {
				return
			}
			c := agentlink.New(found)
			if m, _, err := c.Receive(time.Now().Add(10 * time.Second)); err != nil || m.Kind != agentlink.List {
				t.Errorf("%+v, %v", m, err)
			}
			should.OK(t, c.Send(agentlink.Message{Kind: agentlink.List, Version: agentlink.Version, NICs: nics}))
			c.Close()
		}
	}()
	t.Cleanup(func() {
		_ = l.Close()
		<-done
	})
}

func keep(*hostpcitest.Tree) {}

// TestKubernetes: a node where all is well has no finding but notes, and each fault is found by its
// check, which says what to do.
func TestKubernetes(t *testing.T) {
	drivers := []hostpci.Driver{{Name: "trapeze", Vendor: 0x1234, Device: 0x7250}}
	for _, c := range []struct {
		name, check, says string
		severity          doctor.Severity
		change            func(*hostpcitest.Tree)
		nics              []agentlink.NIC
	}{
		{"nothing wrong", "whole-nics", "0000:03:00.0", doctor.OK, keep, nil},
		{"registered", "driver", "has registered", doctor.OK, keep, nil},
		{"a prepared claim", "claims", "1 are prepared", doctor.OK, keep, nil},
		{"no kubelet", "kubelet", "/var/lib/kubelet", doctor.Error, func(h *hostpcitest.Tree) { h.Remove("var/lib/kubelet") }, nil},
		{"an old kubelet", "registration", "device plugins", doctor.Error, func(h *hostpcitest.Tree) {
			h.Remove("var/lib/kubelet/plugins_registry")
			h.Dir("var/lib/kubelet/device-plugins")
		}, nil},
		{"no place to register", "registration", "neither", doctor.Error, func(h *hostpcitest.Tree) { h.Remove("var/lib/kubelet/plugins_registry") }, nil},
		{"CDI is off", "runtime", "enable_cdi = false", doctor.Error, func(h *hostpcitest.Tree) {
			h.File("etc/containerd/config.toml", "version = 2\n  enable_cdi = false\n")
		}, nil},
		{"CDI is not said", "runtime", "enable_cdi", doctor.Warning, func(h *hostpcitest.Tree) { h.File("etc/containerd/config.toml", "version = 2\n") }, nil},
		{"the default route", "whole-nics", "none is safe", doctor.Warning, func(h *hostpcitest.Tree) {
			h.File("proc/net/route", "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\nens1\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n")
		}, nil},
		{"no agent", "agent", "agent.sock", doctor.Note, func(h *hostpcitest.Tree) { h.Remove("run/trapeze/agent.sock") }, nil},
		{"an agent", "agent", "port0 is up, port1 is up", doctor.OK, keep, []agentlink.NIC{{Name: "port0", State: agentlink.Up}, {Name: "port1", State: agentlink.Up}}},
		{"a NIC of the agent is lost", "agent", "port0 is up, port1 is lost", doctor.Warning, keep, []agentlink.NIC{{Name: "port0", State: agentlink.Up}, {Name: "port1", State: agentlink.Lost}}},
		{"an agent that has died", "agent", "no agent answers", doctor.Warning, func(h *hostpcitest.Tree) {
			h.Remove("run/trapeze/agent.sock")
			h.File("run/trapeze/agent.sock", "")
		}, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			tree := hostpcitest.New(t)
			nic := hostpcitest.NIC()
			nic.Driver, nic.Netdev = "trapeze-nic", "ens1"
			tree.Function(nic)
			for _, f := range []string{"var/lib/kubelet/plugins_registry/nic.trapeze-nic.github.io-reg.sock", "var/run/cdi/trapeze-u1.json", "run/trapeze/agent.sock"} {
				tree.File(f, "")
			}
			tree.Remove("run/trapeze/agent.sock")
			answer(t, filepath.Join(string(tree.Root()), "run/trapeze/agent.sock"), c.nics)
			c.change(tree)
			r := doctor.Kubernetes(t.Context(), tree.Root(), drivers)
			worst := doctor.OK
			for _, f := range r.Host {
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
