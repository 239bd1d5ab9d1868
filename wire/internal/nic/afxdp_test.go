package nic_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/ethernet"
	_ "github.com/trapeze-nic/trapeze/ethernet/drivers"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/wire/internal/nic"
)

// inNamespace is set in the process that has a network namespace of its own.
const inNamespace = "TRAPEZE_TEST_NAMESPACE"

// TestAFXDP runs the suite of VIA between two interfaces of Linux that are joined by a
// cable, in a network namespace of its own, which takes root.
func TestAFXDP(t *testing.T) {
	if os.Getenv(inNamespace) == "" {
		again := exec.CommandContext(t.Context(), "/proc/self/exe", "-test.run=^TestAFXDP$", "-test.v")
		again.Env = append(os.Environ(), inNamespace+"=1")
		again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
		out, err := again.CombinedOutput()
		switch {
		case errors.Is(err, unix.EPERM):
			t.Skip("it takes root")
		case err != nil:
			t.Errorf("%v: %s", err, out)
		case strings.Contains(string(out), "--- SKIP"):
			t.Skipf("%s", out)
		}
		return
	}
	const left, right = "left0", "right0"
	attributes := netlink.NewLinkAttrs()
	attributes.Name = left
	if err := netlink.LinkAdd(&netlink.Veth{LinkAttrs: attributes, PeerName: right}); err != nil {
		t.Skipf("no veth: %v", err)
	}
	for _, name := range []string{left, right} {
		link, err := netlink.LinkByName(name)
		if err == nil {
			err = netlink.LinkSetUp(link)
		}
		must.OK(t, err)
	}
	t.Run("frames as long as the interface has", func(t *testing.T) {
		link := must.Get(netlink.LinkByName(left))(t)
		for mtu, want := range map[int]int{1400: 1414, 1500: 1514, 3000: 3014, 9000: 9014, 65535: 33038} {
			must.OK(t, netlink.LinkSetMTU(link, mtu))
			p, err := nic.New(t.Context(), nic.Options{Address: "afxdp:" + left, Logger: quiet})
			if errors.Is(err, ethernet.ErrNotSupported) {
				t.Skip(err)
			}
			must.OK(t, err)
			should.Be(t, p.MTU(), want, "over an interface with an MTU of %d frames have bytes", mtu)
			should.OK(t, p.Close())
		}
		must.OK(t, netlink.LinkSetMTU(link, 1500))
	})
	openNIC := func(t *testing.T, address string) *via.NIC {
		ctx, cancel := context.WithTimeout(t.Context(), conform.Timeout)
		defer cancel()
		n, err := via.Open(ctx, address, via.Options{Logger: quiet})
		if errors.Is(err, ethernet.ErrNotSupported) {
			t.Skip(err)
		}
		must.OK(t, err)
		t.Cleanup(func() { _ = n.Close() })
		return n
	}
	suite := conform.VIs()
	if !soak.Wanted() { // the others ask little of a wire
		suite = slices.DeleteFunc(suite, func(c conform.Check) bool {
			return !slices.Contains([]string{"send-receive", "rdma", "reliability"}, c.Section)
		})
	}
	suite.Run(t, "veth", func(t *testing.T) (a, b *via.NIC) {
		return openNIC(t, "eth:"+left), openNIC(t, "emu:?wire=afxdp:"+right)
	})
}
