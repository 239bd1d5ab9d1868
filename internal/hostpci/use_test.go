package hostpci_test

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/trapeze-nic/trapeze/ci/kit/hostpcitest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

const (
	routeHeader = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n"
	// 192.0.2.0/24 and the default route, as a little-endian machine shows them.
	route24      = "\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n"
	routeDefault = "\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n"
	linkLocal6   = "fe800000000000000000000000000001 02 40 20 80 "
	global6      = "20010db8000000000000000000000002 02 40 00 80 "
	default6     = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 fe800000000000000000000000000001 00000400 00000002 00000000 00000003 "
	linkRoute6   = "fe800000000000000000000000000000 40 00000000000000000000000000000000 00 00000000000000000000000000000000 00000100 00000002 00000000 00000001 "
	reject6      = "00000000000000000000000000000000 00 00000000000000000000000000000000 00 00000000000000000000000000000000 ffffffff 00000001 00000000 00200200 "
)

// nicWithPort is a host whose NIC has the interface ens1 and belongs to ixgbe.
func nicWithPort(t *testing.T) *hostpcitest.Tree {
	tree := hostpcitest.New(t)
	nic := hostpcitest.NIC()
	nic.Driver, nic.Netdev = "ixgbe", "ens1"
	tree.Function(nic)
	tree.File("sys/class/net/bonding_masters", "bond0\n") // a file among folders
	tree.File("proc/net/route", routeHeader)
	tree.File("proc/net/if_inet6", linkLocal6+"ens1\n")
	tree.File("proc/net/ipv6_route", linkRoute6+"ens1\n"+reject6+"lo\n")
	return tree
}

func TestUses(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*hostpcitest.Tree)
		want   []hostpci.Use
	}{
		"idle": {func(*hostpcitest.Tree) {}, nil},
		"IPv6 address": {func(h *hostpcitest.Tree) {
			h.File("proc/net/if_inet6", linkLocal6+"ens1\n"+global6+"ens1\n"+global6+"ens2\n")
		},
			[]hostpci.Use{{Kind: hostpci.UseAddress, Device: "ens1", Detail: "2001:db8::2"}}},
		"IPv4 route": {func(h *hostpcitest.Tree) { h.File("proc/net/route", routeHeader+"ens1"+route24+"ens2"+routeDefault) },
			[]hostpci.Use{{Kind: hostpci.UseRoute, Device: "ens1", Detail: "192.0.2.0/24"}}},
		"IPv4 default route": {func(h *hostpcitest.Tree) { h.File("proc/net/route", routeHeader+"ens1"+routeDefault) },
			[]hostpci.Use{{Kind: hostpci.UseDefaultRoute, Device: "ens1", Detail: "0.0.0.0/0"}}},
		"IPv6 default route": {func(h *hostpcitest.Tree) { h.File("proc/net/ipv6_route", default6+"ens1\n"+reject6+"ens1\n") },
			[]hostpci.Use{{Kind: hostpci.UseDefaultRoute, Device: "ens1", Detail: "::/0"}}},
		"SSH session of a user above sudo": {func(h *hostpcitest.Tree) {
			h.File("proc/net/route", routeHeader+"ens1"+route24)
			h.File("proc/self/status", "Name:\ttrapeze\nPPid:\t70\n")
			h.File("proc/self/environ", "HOME=/root\x00")
			h.File("proc/70/status", "PPid:\t69\n") // environ may not be read
			h.File("proc/69/status", "PPid:\t69\n") // no end
			h.File("proc/69/environ", "A=b\x00SSH_CONNECTION=192.0.2.77 50000 192.0.2.2 22\x00")
		}, []hostpci.Use{{Kind: hostpci.UseRoute, Device: "ens1", Detail: "192.0.2.0/24"}, {Kind: hostpci.UseSession, Device: "ens1", Detail: "192.0.2.77"}}},
		"SSH session to an address of it": {func(h *hostpcitest.Tree) {
			h.File("proc/net/if_inet6", global6+"ens1\n")
			h.File("proc/self/environ", "SSH_CONNECTION=2001:db8:1::7 50000 2001:db8::2 22\x00")
		}, []hostpci.Use{{Kind: hostpci.UseAddress, Device: "ens1", Detail: "2001:db8::2"}, {Kind: hostpci.UseSession, Device: "ens1", Detail: "2001:db8:1::7"}}},
		"SSH session by link-local addresses": {func(h *hostpcitest.Tree) {
			h.File("proc/self/environ", "SSH_CONNECTION=fe80::7%ens1 50000 fe80::1%ens1 22\x00")
		}, []hostpci.Use{{Kind: hostpci.UseSession, Device: "ens1", Detail: "fe80::7%ens1"}}},
		"SSH session over another, and nonsense": {func(h *hostpcitest.Tree) {
			h.File("proc/net/route", routeHeader+"ens2"+route24)
			h.File("proc/self/environ", "SSH_CONNECTION=192.0.2.77 50000 192.0.2.2 22\x00SSH_CONNECTION=x y z 22\x00SSH_CONNECTION=\x00")
		}, nil},
		"in a bond": {func(h *hostpcitest.Tree) {
			h.Upper("ens1", "bond0", "bond")
			h.Link("sys/devices/pci0000:00/0000:00:1c.0/0000:03:00.0/net/ens1/master", "sys/devices/virtual/net/bond0")
		}, []hostpci.Use{{Kind: hostpci.UseEnslaved, Device: "ens1", Detail: "bond bond0"}}},
		"VLAN with a route on it": {func(h *hostpcitest.Tree) {
			h.Upper("ens1", "ens1.7", "vlan")
			h.File("proc/net/route", routeHeader+"ens1.7"+route24)
		}, []hostpci.Use{{Kind: hostpci.UseUpper, Device: "ens1", Detail: "vlan ens1.7"}, {Kind: hostpci.UseRoute, Device: "ens1.7", Detail: "192.0.2.0/24"}}},
		"macvlan on a VLAN": {func(h *hostpcitest.Tree) {
			h.Upper("ens1", "ens1.7", "vlan")
			h.Upper("ens1.7", "mv0", "macvlan")
		}, []hostpci.Use{{Kind: hostpci.UseUpper, Device: "ens1", Detail: "vlan ens1.7"}, {Kind: hostpci.UseUpper, Device: "ens1.7", Detail: "macvlan mv0"}}},
		"NFS root": {func(h *hostpcitest.Tree) {
			h.File("proc/net/route", routeHeader+"ens1"+route24+"ens2"+routeDefault)
			h.File("proc/self/mountinfo", "21 1 0:20 / / rw - nfs4 server:/root rw,vers=4.2,addr=192.0.2.9\n22 1 0:21 / /mnt rw - nfs4 far:/x rw,addr=198.51.100.1\n")
		}, []hostpci.Use{{Kind: hostpci.UseRoute, Device: "ens1", Detail: "192.0.2.0/24"}, {Kind: hostpci.UseMount, Device: "ens1", Detail: "the nfs4 mount at /"}}},
		"NVMe over TCP and iSCSI": {func(h *hostpcitest.Tree) {
			h.File("proc/net/route", routeHeader+"ens1"+routeDefault)
			h.Files(`sys/class/nvme/nvme0/transport = tcp
				sys/class/nvme/nvme0/address = traddr=192.0.2.7,trsvcid=4420,src_addr=192.0.2.2
				sys/class/nvme/nvme1/transport = pcie
				sys/class/nvme/nvme1/address = 0000:00:04.0
				sys/class/iscsi_connection/connection1:0/persistent_address = 192.0.2.8`)
		}, []hostpci.Use{{Kind: hostpci.UseDefaultRoute, Device: "ens1", Detail: "0.0.0.0/0"},
			{Kind: hostpci.UseMount, Device: "ens1", Detail: "nvme0, NVMe over tcp"}, {Kind: hostpci.UseMount, Device: "ens1", Detail: "the iSCSI connection1:0"}}},
		"interface in another namespace": {func(h *hostpcitest.Tree) { h.Remove("sys/class/net/ens1") },
			[]hostpci.Use{{Kind: hostpci.UseHidden, Detail: "the driver ixgbe has it and shows no network interface here: it may be in another network namespace"}}},
		"mount on a disk of it, through partition and LVM": {func(h *hostpcitest.Tree) {
			disk := "sys/devices/pci0000:00/0000:00:1c.0/0000:03:00.0/nvme/nvme3/nvme3c3n1"
			h.File(disk+"/dev", "0:0\n")
			h.Link("sys/class/block/nvme3c3n1", disk)
			h.Files("sys/class/block/nvme3n1/dev = 259:0\nsys/class/block/dm-0/dev = 253:0\nproc/swaps = /dev/nvme3n1 partition 1 0 -2")
			h.Dir("sys/class/block/nvme3n1/holders/dm-0")
			h.File("proc/self/mountinfo", "21 1 253:0 / /data rw - ext4 /dev/mapper/vg-data rw\n")
		}, []hostpci.Use{{Kind: hostpci.UseSwap, Device: "nvme3n1"}, {Kind: hostpci.UseMount, Device: "dm-0", Detail: "the mount at /data"}}},
	} {
		t.Run(name, func(t *testing.T) {
			tree := nicWithPort(t)
			c.change(tree)
			f := must.Get(hostpci.Lookup(tree.Root(), "0000:03:00.0"))(t)
			got := must.Get(hostpci.Uses(tree.Root(), f))(t)
			should.Be(t, cmp.Diff(c.want, got), "")
		})
	}
}

// TestUnreadableUses: what makes no sense is no sign that nothing is in use.
func TestUnreadableUses(t *testing.T) {
	for name, file := range map[string]string{
		"short route":  "proc/net/route",
		"short route6": "proc/net/ipv6_route",
		"mounts":       "proc/self/mountinfo",
	} {
		t.Run(name, func(t *testing.T) {
			tree := nicWithPort(t)
			tree.File(file, "ens1 0\n")
			f := must.Get(hostpci.Lookup(tree.Root(), "0000:03:00.0"))(t)
			if uses, err := hostpci.Uses(tree.Root(), f); err == nil || !strings.Contains(err.Error(), file) {
				t.Errorf("%v, %v", uses, err)
			}
		})
	}
}

func TestHolders(t *testing.T) {
	tree := hostpcitest.New(t)
	tree.Process(17, "qemu) S (x", "D", "dev/vfio/12")
	tree.Process(4, "other", "S", "dev/vfio/13")
	tree.File("proc/18/comm", "gone\n") // no fd folder
	got, err := hostpci.Holders(tree.Root(), []string{"dev/vfio/12"})
	if d := cmp.Diff([]hostpci.Holder{{PID: 17, Name: "qemu) S (x", State: "D"}}, got); d != "" || err != nil {
		t.Error(d, err)
	}
	if got, err := hostpci.Holders(tree.Root(), nil); got != nil || err != nil {
		t.Error(got, err)
	}
}
