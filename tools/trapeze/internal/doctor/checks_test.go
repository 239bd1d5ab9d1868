package doctor_test

import (
	"compress/gzip"
	"encoding/binary"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/hostpcitest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/doctor"
)

type tree = hostpcitest.Tree

// breakage is a healthy machine with something wrong.
type breakage struct {
	check    string // the check that finds it
	name     string
	change   func(*tree)
	options  doctor.Options
	severity doctor.Severity
	says     string // part of what it finds
	fix      string // part of what mends it; empty: there is nothing to do
}

// stranger puts another device of the kernel's into the NIC's group.
func stranger(t *tree) {
	t.Function(hostpcitest.Function{Address: "0000:04:00.0", Behind: "0000:00:1c.0", Vendor: 1, Device: 2, Class: 0x020000, Driver: "ixgbe", Group: 12})
}

// config changes the NIC's configuration space.
func config(change func([]byte)) func(*tree) {
	return func(t *tree) {
		b := nicConfig()
		change(b)
		t.File(nicDir+"/config", string(b))
	}
}

func file(name, content string) func(*tree) {
	return func(t *tree) { t.File(name, content+"\n") }
}

func remove(names ...string) func(*tree) {
	return func(t *tree) {
		for _, n := range names {
			t.Remove(n)
		}
	}
}

func all(changes ...func(*tree)) func(*tree) {
	return func(t *tree) {
		for _, c := range changes {
			c(t)
		}
	}
}

// noGroups is a machine whose IOMMU is off.
func noGroups(t *tree) {
	t.Remove("sys/kernel/iommu_groups/12")
	t.Remove(nicDir + "/iommu_group")
	t.Remove("sys/class/iommu/dmar0")
}

const unsafeMode = "sys/module/vfio/parameters/enable_unsafe_noiommu_mode"

var breakages = []breakage{
	{"kernel", "old", file("proc/sys/kernel/osrelease", "6.1.0-18-amd64"), doctor.Options{}, doctor.Note, "no node for each function (6.6)", ""},
	{"kernel", "very old", file("proc/sys/kernel/osrelease", "4.19.0"), doctor.Options{}, doctor.Note, "IOVA ranges (5.4)", ""},
	{"container", "docker", file(".dockerenv", ""), doctor.Options{}, doctor.Note, "Docker", "--device /dev/vfio/vfio"},
	{"container", "pod", file("proc/1/cgroup", "0::/kubepods/besteffort/pod1"), doctor.Options{}, doctor.Note, "Kubernetes", "trapeze-kubernetes"},
	{"iommu", "Intel's waits to be asked for", all(noGroups, file("proc/cmdline", "quiet")), doctor.Options{}, doctor.Error, "waits for intel_iommu=on", "intel_iommu=on iommu=pt"},
	{"iommu", "switched off", all(noGroups, file("proc/cmdline", "iommu=off")), doctor.Options{}, doctor.Error, "iommu=off", "remove iommu=off"},
	{"iommu", "off in AMD's firmware", all(noGroups, file("proc/cpuinfo", "vendor_id : AuthenticAMD")), doctor.Options{}, doctor.Error, "IVRS", "AMD-Vi"},
	{"iommu", "virtual machine without one", all(noGroups, remove("sys/firmware/acpi/tables/DMAR"), file("sys/class/dmi/id/sys_vendor", "QEMU")), doctor.Options{},
		doctor.Error, "virtual machine has no IOMMU", "-device intel-iommu,intremap=on"},
	{"iommu", "kernel without", all(noGroups, file("proc/cpuinfo", "processor : 0")), doctor.Options{}, doctor.Error, "built without", "CONFIG_ARM_SMMU_V3"},
	{"iommu", "no reason to be found", noGroups, doctor.Options{}, doctor.Error, "there are no IOMMU groups", "dmesg"},
	{"iommu", "no-IOMMU mode", all(noGroups, file(unsafeMode, "Y")), doctor.Options{}, doctor.Warning, "can then read and write all memory", "dmesg"},
	{"interrupt-remapping", "switched off", file("proc/cmdline", "intel_iommu=on intremap=off"), doctor.Options{}, doctor.Error, "intremap=off", "allow_unsafe_interrupts=1"},
	{"interrupt-remapping", "not in hardware", file("sys/class/iommu/dmar0/intel-iommu/ecap", "f050d6"), doctor.Options{}, doctor.Error, "dmar0", "intremap=on"},
	{"interrupt-remapping", "accepted", all(file("proc/cmdline", "nointremap"), file("sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts", "Y")),
		doctor.Options{}, doctor.Warning, "accepts", ""},
	{"modules", "not loaded", all(remove("sys/bus/pci/drivers/vfio-pci", "sys/module/vfio_iommu_type1", "dev/iommu"),
		file("lib/modules/"+release+"/modules.dep", "kernel/drivers/vfio/pci/vfio-pci.ko.xz: x\nkernel/drivers/vfio/vfio_iommu_type1.ko.xz: x")),
		doctor.Options{}, doctor.Error, "vfio-pci and vfio_iommu_type1", "modprobe vfio-pci"},
	{"modules", "only the IOMMU's not loaded", all(remove("sys/module/vfio_iommu_type1", "dev/iommu"), file("boot/config-"+release, "CONFIG_VFIO=m\nCONFIG_VFIO_IOMMU_TYPE1=m")),
		doctor.Options{}, doctor.Error, "vfio_iommu_type1 not loaded", "modprobe vfio_iommu_type1"},
	{"modules", "kernel without", all(remove("sys/bus/pci/drivers/vfio-pci"), noVFIO), doctor.Options{}, doctor.Error, "built without VFIO", "CONFIG_VFIO_PCI=m"},
	{"modules", "not installed", all(remove("sys/bus/pci/drivers/vfio-pci"), file("lib/modules/"+release+"/modules.dep", "x.ko:")), doctor.Options{},
		doctor.Error, "not installed", "apt install"},
	{"nodes", "none", remove("dev/iommu", "dev/vfio/vfio"), doctor.Options{}, doctor.Error, "neither /dev/vfio/vfio nor /dev/iommu", "modprobe"},
	{"nodes", "none in a container", all(remove("dev/iommu", "dev/vfio/vfio"), file(".dockerenv", "")), doctor.Options{}, doctor.Error, "container", "--device"},
	{"nodes", "not for this user", func(t *tree) { t.Mode("dev/vfio/vfio", 0o600); t.Mode("dev/iommu", 0o660) }, doctor.Options{},
		doctor.Error, "/dev/vfio/vfio is not for user 54321", "60-trapeze-nodes.rules"},
	{"nodes", "one is not for this user", func(t *tree) { t.Mode("dev/iommu", 0o660) }, doctor.Options{}, doctor.Note, "/dev/iommu is not for user", "60-trapeze-nodes.rules"},
	{"nodes", "only the newer one", remove("dev/vfio/vfio"), doctor.Options{}, doctor.Note, "no /dev/vfio/vfio", ""},
	{"unsafe-options", "ACS", file("proc/cmdline", "pcie_acs_override=downstream"), doctor.Options{}, doctor.Warning, "pcie_acs_override", "remove"},
	{"unsafe-options", "no IOMMU", file(unsafeMode, "Y"), doctor.Options{}, doctor.Warning, "no-IOMMU", "echo N > /" + unsafeMode},
	{"lockdown", "on", all(file("sys/kernel/security/lockdown", "none [integrity] confidentiality"), func(t *tree) {
		t.File("sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c", "\x06\x00\x00\x00\x01")
	}), doctor.Options{}, doctor.Note, "Secure Boot is on, the kernel is locked down (integrity)", ""},
	{"kernel-log", "memlock", file("dev/kmsg", "4,9,1,-;vfio_pin_pages_remote: RLIMIT_MEMLOCK (65536) exceeded\n SUBSYSTEM=x\n6,10,2,-;eth0 up"), doctor.Options{},
		doctor.Warning, "RLIMIT_MEMLOCK (65536)", "ulimit"},
	{"kernel-log", "width", file("dev/kmsg", "4,9,1,-;vfio: iommu width (39) is not sufficient for the mapped address (7f0000000)"), doctor.Options{}, doctor.Warning, "width (39)", "IOVA"},
	{"kernel-log", "wakes not", file("dev/kmsg", "3,9,1,-;vfio-pci 0000:03:00.0: Unable to change power state from D3cold to D0, device inaccessible"), doctor.Options{},
		doctor.Warning, "D3cold", "disable_idle_d3=1"},
	{"kernel-log", "fault", file("dev/kmsg", "3,9,1,-;DMAR: [DMA Read NO_PASID] Request device [03:00.0] fault addr 0x1000"), doctor.Options{}, doctor.Warning, "fault addr", "address"},
	{"kernel-log", "request", file("dev/kmsg", "3,9,1,-;vfio-pci 0000:03:00.0: No device request channel registered, blocked until released by user"), doctor.Options{},
		doctor.Warning, "No device request channel", "fuser"},

	{"memlock", "too little for anything", func(t *tree) { process(t, "65536", "0") }, doctor.Options{}, doctor.Error, "64 KiB may be locked, 2 MiB is needed", "ulimit -l 65536"},
	{"memlock", "the default", func(t *tree) { process(t, "8388608", "0") }, doctor.Options{}, doctor.Warning, "8 MiB", "LimitMEMLOCK=infinity"},
	{"memlock", "less than asked for", func(*tree) {}, doctor.Options{Memory: 1 << 30}, doctor.Error, "1 GiB is needed", "memlock 1048576"},
	{"mappings", "few", file("sys/module/vfio_iommu_type1/parameters/dma_entry_limit", "100"), doctor.Options{}, doctor.Warning, "only 100 mappings", "dma_entry_limit=65535"},
	{"mappings", "much memory", func(t *tree) { process(t, "unlimited", "0") }, doctor.Options{Memory: 256 << 30}, doctor.Warning, "takes 131072", "echo 196607 > /sys/module"},
	{"hugepages", "none", func(t *tree) { noPages(t) }, doctor.Options{}, doctor.Warning, "no huge pages are reserved", "vm.nr_hugepages = 256"},
	{"hugepages", "none, and no IOMMU", all(noPages, file(unsafeMode, "Y")), doctor.Options{}, doctor.Error, "no huge pages", "sysctl -w"},
	{"hugepages", "all in use", file("sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", "0"), doctor.Options{}, doctor.Warning, "0 of 512 free of 2 MiB", "ls -l /dev/hugepages"},
	{"hugepages", "not mounted", file("proc/mounts", "proc /proc proc rw 0 0"), doctor.Options{}, doctor.Note, "no hugetlbfs", "mount -t hugetlbfs"},
	{"hugepages-node", "on another node", file("sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages", "0"), doctor.Options{}, doctor.Warning,
		"NUMA node 0", "echo 256 > /sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages"},
	{"memlock-bars", "BARs on top", func(t *tree) {
		file(nicDir+"/resource", "0x0000004000000000 0x0000004fffffffff 0x0000000000140204")(t)
	}, doctor.Options{}, doctor.Warning, "64 GiB", "ulimit"},

	{"userfaultfd", "user mode only", file("proc/sys/vm/unprivileged_userfaultfd", "0"), doctor.Options{}, doctor.Note, "user mode only", "sysctl -w vm.unprivileged_userfaultfd=1"},
	{"userfaultfd", "kernel without", file("boot/config-"+release, "CONFIG_VFIO=m\nCONFIG_PTE_MARKER_UFFD_WP=y"), doctor.Options{}, doctor.Note, "has no userfaultfd", "CONFIG_USERFAULTFD=y"},
	{"userfaultfd", "protects no files", file("boot/config-"+release, "CONFIG_VFIO=m\nCONFIG_USERFAULTFD=y"), doctor.Options{}, doctor.Note, "cannot protect files", "CONFIG_PTE_MARKER_UFFD_WP=y"},
	{"userfaultfd", "too old", file("proc/sys/kernel/osrelease", "5.15.0"), doctor.Options{}, doctor.Note, "cannot protect files", "Linux 5.19"},
	{"memory-limit", "little", all(file("proc/self/cgroup", "0::/a.service"), file("sys/fs/cgroup/a.service/memory.max", "33554432")), doctor.Options{},
		doctor.Warning, "/sys/fs/cgroup/a.service/memory.max allows 32 MiB", "MemoryMax"},

	{"answers", "gone", file(nicDir+"/config", strings.Repeat("\xff", 64)), doctor.Options{}, doctor.Error, "all ones", "/rescan"},
	{"made-for", "never run", file(nicDir+"/device", "0x1533"), doctor.Options{Drivers: ours}, doctor.Note, "never run", ""},
	{"made-for", "an Ethernet NIC", all(file(nicDir+"/device", "0x1533"), file(nicDir+"/class", "0x020000")), doctor.Options{Drivers: ours}, doctor.Note, "eth:pci:0000:03:00.0", ""},
	{"made-for", "another's", file(nicDir+"/device", "0x1572"), doctor.Options{Drivers: ours}, doctor.Warning, "1234:1572", ""},
	{"sr-iov", "on", all(unbound("ixgbe"), file(nicDir+"/sriov_numvfs", "4")), doctor.Options{}, doctor.Error, "4 virtual functions", "echo 0 > /sys/bus/pci/devices/0000:03:00.0/sriov_numvfs"},
	{"sr-iov", "on, and used", all(unbound("ixgbe"), file(nicDir+"/sriov_numvfs", "1"), func(t *tree) {
		t.Function(hostpcitest.Function{Address: "0000:03:10.0", Behind: "0000:00:1c.0", Vendor: 1, Device: 2, Class: 0x020000, Driver: "ixgbevf", Group: 14})
		t.Link(hostpcitest.Dir(nic)+"/virtfn0", hostpcitest.Dir("0000:03:10.0"))
	}), doctor.Options{}, doctor.Error, "the host uses some of them", "not in use"},
	{"sr-iov", "on, for VFIO", file(nicDir+"/sriov_numvfs", "4"), doctor.Options{}, doctor.Note, "token", ""},
	{"in-use", "default route", all(unbound("ixgbe"), func(t *tree) {
		t.Netdev("ens1", "sys/devices/pci0000:00/0000:00:1c.0/0000:03:00.0/net/ens1")
		t.File("proc/net/route", "Iface\nens1\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n")
	}), doctor.Options{}, doctor.Warning, "ens1 carries the default route 0.0.0.0/0 this host is reached over it", ""},
	{"in-use", "default route of a VLAN on it", all(unbound("ixgbe"), func(t *tree) {
		t.Netdev("ens1", "sys/devices/pci0000:00/0000:00:1c.0/0000:03:00.0/net/ens1")
		t.Upper("ens1", "ens1.7", "vlan")
		t.File("proc/net/route", "Iface\nens1.7\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n")
	}), doctor.Options{}, doctor.Warning, "this host is reached over it", ""},
	{"in-use", "login over it", all(unbound("ixgbe"), func(t *tree) {
		t.Netdev("ens1", "sys/devices/pci0000:00/0000:00:1c.0/0000:03:00.0/net/ens1")
		t.File("proc/self/environ", "SSH_CONNECTION=192.0.2.7 50000 192.0.2.2 22\x00")
		t.File("proc/net/route", "Iface\nens1\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n")
	}), doctor.Options{}, doctor.Warning, "ens1 carries the SSH session from 192.0.2.7 this host is reached over it", ""},
	{"in-use", "route to a network", all(unbound("ixgbe"), func(t *tree) {
		t.Netdev("ens1", "sys/devices/pci0000:00/0000:00:1c.0/0000:03:00.0/net/ens1")
		t.File("proc/net/route", "Iface\nens1\t000200C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n")
	}), doctor.Options{}, doctor.Warning, "ens1 has a route to 192.0.2.0/24", "ip address flush dev ens1"},
	{"in-use", "in a bridge, with a VLAN", all(unbound("ixgbe"), func(t *tree) {
		dir := "sys/devices/pci0000:00/0000:00:1c.0/0000:03:00.0/net/ens1"
		t.Netdev("ens1", dir)
		t.Upper("ens1", "ens1.7", "vlan")
		t.Upper("ens1", "br0", "bridge")
		t.Link(dir+"/master", "sys/devices/virtual/net/br0")
	}), doctor.Options{}, doctor.Warning, "ens1 belongs to the bridge br0; ens1 carries the vlan ens1.7", "ip link set dev ens1 nomaster\nip link delete ens1.7"},
	{"iommu-group", "none", noGroups, doctor.Options{}, doctor.Error, "no IOMMU group", ""},
	{"iommu-group", "none, by choice", all(noGroups, file(unsafeMode, "Y")), doctor.Options{}, doctor.Warning, "no IOMMU guards it", ""},
	{"iommu-group", "unguarded, for root only", file("sys/kernel/iommu_groups/12/name", "vfio-noiommu"), doctor.Options{}, doctor.Error, "CAP_SYS_RAWIO", "sudo"},
	{"iommu-group", "unguarded", all(file("sys/kernel/iommu_groups/12/name", "vfio-noiommu"), func(t *tree) { process(t, "unlimited", "0000000000020000") }),
		doctor.Options{}, doctor.Warning, "no IOMMU guards it", ""},
	{"group-viable", "another driver that may be in use", stranger, doctor.Options{}, doctor.Error, "0000:04:00.0 (ixgbe, in use)", ""},
	{"group-viable", "another driver", func(t *tree) {
		t.Function(hostpcitest.Function{Address: "0000:04:00.0", Behind: "0000:00:1c.0", Vendor: 1, Device: 2, Class: 0x0c0330, Driver: "xhci_hcd", Group: 12})
	}, doctor.Options{}, doctor.Error, "0000:04:00.0 (xhci_hcd)", "trapeze bind --group 0000:03:00.0\nor free it: echo 0000:04:00.0 > /sys/bus/pci/devices/0000:04:00.0/driver/unbind"},
	{"acs", "none", all(stranger, file("sys/bus/pci/devices/0000:00:1c.0/config", strings.Repeat("\x01", 512))), doctor.Options{}, doctor.Warning, "shares IOMMU group 12 with 0000:04:00.0", "slot"},
	{"binding", "the kernel's, which shows no interface", unbound("ixgbe"), doctor.Options{}, doctor.Error, "ixgbe has it VFIO must have it before a process can; trapeze bind refuses", ""},
	{"binding", "an interface", all(unbound("ixgbe"), func(t *tree) {
		t.Netdev("ens1", "sys/devices/pci0000:00/0000:00:1c.0/0000:03:00.0/net/ens1")
	}), doctor.Options{}, doctor.Error, "for plain frames ixgbe may keep it: the address is afxdp:ens1, as the wire of a NIC eth:ens1", "trapeze bind 0000:03:00.0"},
	{"binding", "in use", all(unbound("ixgbe"), func(t *tree) {
		t.Netdev("ens1", "sys/devices/pci0000:00/0000:00:1c.0/0000:03:00.0/net/ens1")
		t.File("proc/net/route", "Iface\nens1\t00000000\t010200C0\t0003\t0\t0\t0\t00000000\t0\t0\t0\n")
	}), doctor.Options{}, doctor.Error, "the finding in-use says how", ""},
	{"made-for", "another's, with an interface", all(unbound("ixgbe"), file(nicDir+"/device", "0x1572"), func(t *tree) {
		t.Netdev("ens1", "sys/devices/pci0000:00/0000:00:1c.0/0000:03:00.0/net/ens1")
	}), doctor.Options{Drivers: ours}, doctor.Warning, "afxdp:ens1", ""},
	{"binding", "a NIC that no driver of ours is for", all(unbound("i40e"), file(nicDir+"/device", "0x1572"), func(t *tree) {
		t.Netdev("ens1", "sys/devices/pci0000:00/0000:00:1c.0/0000:03:00.0/net/ens1")
	}), doctor.Options{Drivers: ours}, doctor.Error, "no driver of this program is for it", "eth:ens1 in place of"},
	{"binding", "a host bridge", all(remove(nicDir+"/driver"), file(nicDir+"/class", "0x060000"), file(nicDir+"/device", "0x29c0")), doctor.Options{Drivers: ours},
		doctor.Error, "no network controller (PCI class 060000)", ""},
	{"binding", "nobody's", remove(nicDir + "/driver"), doctor.Options{}, doctor.Error, "no driver", "trapeze bind 0000:03:00.0"},
	{"node", "missing", remove("dev/vfio/12", nicDir+"/vfio-dev"), doctor.Options{}, doctor.Error, "/dev/vfio/12 is missing", "udevadm trigger"},
	{"node", "not in the container", all(remove("dev/vfio/12", nicDir+"/vfio-dev"), file("run/.containerenv", "")), doctor.Options{}, doctor.Error, "not in this container", "--device /dev/vfio/12"},
	{"node", "not for this user", func(t *tree) { t.Mode("dev/vfio/12", 0o600); t.Mode("dev/vfio/devices/vfio0", 0o600) }, doctor.Options{},
		doctor.Error, "/dev/vfio/12 is not for user 54321", "iommu_groups/%k/devices/0000:03:00.0"},
	{"node", "its own without the one for memory", func(t *tree) { t.Mode("dev/vfio/12", 0o600); t.Mode("dev/iommu", 0o600) }, doctor.Options{},
		doctor.Error, "/dev/iommu is not for user 54321", `SUBSYSTEM=="vfio-dev", KERNELS=="0000:03:00.0"`},
	{"holder", "busy", func(t *tree) { t.Process(77, "testpmd", "S", "dev/vfio/12") }, doctor.Options{}, doctor.Error, "process 77 (testpmd)", "kill 77"},
	{"stale-holder", "stuck", func(t *tree) { t.Process(78, "crashed", "D", "dev/vfio/devices/vfio0") }, doctor.Options{}, doctor.Warning, "state D", "kill -9 78"},
	{"vf-token", "needed", func(t *tree) {
		t.Function(hostpcitest.Function{Address: "0000:03:00.1", Behind: "0000:00:1c.0", Class: 0x020000, Driver: "vfio-pci", Group: 13})
		t.Link("sys/devices/pci0000:00/0000:00:1c.0/0000:03:00.0/physfn", "sys/devices/pci0000:00/0000:00:1c.0/0000:03:00.1")
	}, doctor.Options{}, doctor.Warning, "virtual function of 0000:03:00.1", "vf_token=UUID"},

	{"power", "off", file(nicDir+"/power_state", "D3cold"), doctor.Options{}, doctor.Warning, "D3cold", "echo 0 > /sys/bus/pci/devices/0000:03:00.0/d3cold_allowed"},
	{"power", "asleep", file(nicDir+"/power_state", "D3hot"), doctor.Options{}, doctor.Note, "D3hot", "disable_idle_d3=1"},
	{"power", "error", file(nicDir+"/power/runtime_status", "error"), doctor.Options{}, doctor.Warning, "state error", "echo on > "},
	{"bus-master", "off in use", func(t *tree) { t.Process(77, "driver", "S", "dev/vfio/12") }, doctor.Options{}, doctor.Warning, "bus mastering is off", "bit 2"},
	{"bars", "small", file(nicDir+"/resource", "0x00000000fe000000 0x00000000fe0000ff 0x0000000000040200"), doctor.Options{}, doctor.Note, "BAR0 (256 B)", ""},
	{"bars", "no addresses", file(nicDir+"/resource", "0x0000000000000000 0x0000000000000000 0x0000000000000000"), doctor.Options{}, doctor.Warning, "none of its memory BARs", "pci=realloc"},
	{"bars", "shared table page", config(func(b []byte) { b[0x42] = 7 }), doctor.Options{}, doctor.Note, "MSI-X table at 0x2000", ""},
	{"interrupts", "nomsi", file("proc/cmdline", "intel_iommu=on pci=realloc,nomsi"), doctor.Options{}, doctor.Warning, "pci=nomsi", "remove"},
	{"interrupts", "off on the bridge", file("sys/bus/pci/devices/0000:00:1c.0/msi_bus", "0"), doctor.Options{}, doctor.Warning, "0000:00:1c.0", "msi_bus"},
	{"interrupts", "fixed number", file("proc/sys/kernel/osrelease", "6.1.0"), doctor.Options{}, doctor.Note, "256 MSI-X vectors", "all vectors at once"},
	{"interrupts", "INTx only", config(func(b []byte) { b[6] = 0 }), doctor.Options{}, doctor.Note, "only interrupt is INTx", ""},
	{"interrupts", "none", config(func(b []byte) { b[6], b[0x3d] = 0, 0 }), doctor.Options{}, doctor.Note, "no interrupt at all", ""},
	{"iova", "39 bits", file("sys/class/iommu/dmar0/intel-iommu/cap", "d2008c40660462"), doctor.Options{}, doctor.Note, "reserved: 0xfee00000 to 0xfeefffff (msi)", "ranges"},
	{"dma-mask", "32 bits", all(unbound("e100"), file(nicDir+"/dma_mask_bits", "32")), doctor.Options{}, doctor.Note, "e100 uses 32 address bits", "2^32"},
	{"reset", "none", file(nicDir+"/reset_method", ""), doctor.Options{}, doctor.Note, "cannot be reset", ""},
	{"reset", "with others", all(file(nicDir+"/reset_method", "bus"), func(t *tree) {
		t.Function(hostpcitest.Function{Address: "0000:03:00.1", Behind: "0000:00:1c.0", Class: 0x020000, Driver: "ixgbe", Group: 13})
	}), doctor.Options{}, doctor.Note, "0000:03:00.1 (ixgbe) such a hot reset fails with EINVAL or EPERM", ""},
}

// unbound gives the NIC to a driver of the kernel's.
func unbound(driver string) func(*tree) {
	return func(t *tree) {
		t.Driver(driver)
		t.Bind(nic, driver)
	}
}

func noPages(t *tree) {
	t.Files("sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages = 0\nsys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages = 0")
}

// noVFIO is a kernel that tells by /proc/config.gz that it has no VFIO.
func noVFIO(t *tree) {
	var b strings.Builder
	w := gzip.NewWriter(&b)
	for _, s := range []string{"CONFIG_PCI=y\n", "# CONFIG_VFIO is not set\n"} {
		if _, err := w.Write([]byte(s)); err != nil {
			panic(err)
		}
	}
	if err := w.Close(); err != nil {
		panic(err)
	}
	t.File("proc/config.gz", b.String())
}

func find(r doctor.Report, check string) (doctor.Finding, bool) {
	list := r.Host
	for _, f := range r.Functions {
		list = append(list, f.Findings...)
	}
	for _, f := range list {
		if f.Check == check {
			return f, true
		}
	}
	return doctor.Finding{}, false
}

func TestBrokenMachines(t *testing.T) {
	for _, b := range breakages {
		t.Run(b.check+" "+b.name, func(t *testing.T) {
			tree := healthy(t)
			b.change(tree)
			r := must.Get(doctor.Run(t.Context(), tree.Root(), nic, b.options))(t)
			f, ok := find(r, b.check)
			must.Hold(t, ok, "no finding in %+v", r)
			text := f.What + " " + f.Why
			should.Hold(t, f.Severity == b.severity && strings.Contains(text, b.says), "%v: %q does not say %q as %v", f.Severity, text, b.says, b.severity)
			noRefusedBind(t, tree, r)
			fix := strings.Join(f.Fix, "\n")
			if b.check == "group-viable" && strings.Contains(f.What, "in use") && strings.Contains(fix, "unbind") {
				t.Errorf("fix %q takes what is in use", fix)
			}
			should.Hold(t, (b.fix == "") == (fix == "") && strings.Contains(fix, b.fix), "fix %q does not hold %q", fix, b.fix)
			if f.Severity == doctor.Error && r.CouldStart {
				t.Error("a driver could start nevertheless")
			}
		})
	}
}

// offers is a line of a fix that binds a function.
var offers = regexp.MustCompile(`trapeze bind (?:--group )?([0-9a-f:.]+)`)

// noRefusedBind: no finding offers to bind what bind refuses, as the host uses it.
func noRefusedBind(t *testing.T, tree *tree, r doctor.Report) {
	t.Helper()
	for _, of := range r.Functions {
		for _, f := range of.Findings {
			for _, m := range offers.FindAllStringSubmatch(strings.Join(f.Fix, "\n"), -1) {
				if hostpci.InUse(tree.Root(), m[1]) {
					t.Errorf("%s offers %q, which is refused", f.Check, m[0])
				}
			}
		}
	}
}

func TestHealthyMachine(t *testing.T) {
	for _, address := range []string{nic, ""} {
		r := must.Get(doctor.Run(t.Context(), healthy(t).Root(), address, doctor.Options{Drivers: ours}))(t)
		should.Hold(t, r.CouldStart && len(r.Functions) == 1 && r.Functions[0].CouldStart && r.Kernel == release, "%q: %+v", address, r)
		for _, f := range append(r.Host, r.Functions[0].Findings...) {
			should.Hold(t, f.Severity == doctor.OK && f.What != "" && len(f.Fix) == 0, "%+v", f)
		}
		should.Be(t, len(r.Host)+len(r.Functions[0].Findings), len(doctor.Checks()), "findings checks")
	}
}

// TestEveryCheckIsTested: each has a broken machine, each trap a check or a
// reason why none can find it.
func TestEveryCheckIsTested(t *testing.T) {
	seen := map[int]bool{}
	for _, c := range doctor.Checks() {
		should.Hold(t, slices.ContainsFunc(breakages, func(b breakage) bool { return b.check == c.Name }), "no broken machine for %s", c.Name)
		for _, n := range c.Traps {
			seen[n] = true
		}
	}
	for i, trap := range traps {
		if trap.number != i+1 || trap.symptom == "" || seen[trap.number] != (trap.unseen == "") {
			t.Errorf("trap %+v, found by a check: %v", trap, seen[trap.number])
		}
	}
	should.Be(t, len(traps), 26, "traps")
}

func TestACSCapability(t *testing.T) {
	tree := healthy(t)
	stranger(tree)
	b := make([]byte, 4096)
	b[14] = 1
	binary.LittleEndian.PutUint32(b[256:], 0x0001|1<<16|0x140<<20) // error reporting, then
	binary.LittleEndian.PutUint32(b[0x140:], 0x000d|1<<16)
	tree.File("sys/bus/pci/devices/0000:00:1c.0/config", string(b))
	check := func(want bool) {
		t.Helper()
		r := must.Get(doctor.Run(t.Context(), tree.Root(), nic, doctor.Options{}))(t)
		f, _ := find(r, "acs")
		should.Be(t, strings.Contains(f.Why, "no ACS on 0000:00:1c.0"), want, "%q", f.Why)
	}
	check(false)
	binary.LittleEndian.PutUint32(b[256:], 0x0001|1<<16|0x100<<20) // a loop
	tree.File("sys/bus/pci/devices/0000:00:1c.0/config", string(b))
	check(true)
}
