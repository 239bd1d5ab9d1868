package main

import (
	"fmt"
	"slices"
)

// scenario is one start of a guest: a kernel, devices and the tests to run. To
// test something else, add a test program to a scenario, and a device if it
// needs one.
type scenario struct {
	name string
	// stock is the kernel of the distribution, which has its modules; otherwise
	// it is our own, with everything built in.
	stock bool
	// iommu gives the guest a virtual IOMMU.
	iommu bool
	// append is added to the kernel's command line.
	append string
	// devices are QEMU's -device arguments, netdevs its -netdev arguments.
	devices, netdevs []string
	// nics is the number of our NICs that the guest has: they run outside of it, behind
	// vfio-user, each behind a port of its own, so that its bus can be reset.
	nics int
	// cables lead out of the guest: each is a netdev of its own, cable0 and so on, and at
	// its end a program waits for the file that the guest is to send.
	cables int
	// tests run one after the other.
	tests []test
}

// test is a package's tests, linked statically, in a guest.
type test struct {
	pkg string   // below the module, such as "ci/vm/guest"
	env []string // NAME=value
	run string   // -test.run; empty for all
}

// only returns the scenario with nothing but the tests that match a pattern, if
// there is one.
func (s scenario) only(pattern string) scenario {
	if pattern == "" {
		return s
	}
	s.tests = slices.Clone(s.tests)
	for i := range s.tests {
		s.tests[i].run = pattern
	}
	return s
}

// hardware is common to all guests: devices of other authors.
var hardware = []string{
	// On the root bus, alone in its IOMMU group: no reset of any kind.
	"edu,addr=3",
	// Behind a port of its own: can be reset with its bus.
	"pcie-root-port,id=port1,chassis=1,addr=4", "edu,bus=port1",
	// A PCI Express NIC: MSI-X and function reset; and a device behind a port
	// that reports its errors.
	"igb,addr=5,romfile=",
	"pcie-root-port,id=port3,chassis=3,addr=8", "virtio-rng-pci,bus=port3,id=fails,aer=on,disable-legacy=on",
	// A NIC of two functions, which the kernel knows to be isolated: two groups.
	"pcie-root-port,id=port5,chassis=5,addr=9," + slowPort, "igb,bus=port5,addr=0.0,multifunction=on,x-pcie-ari-nextfn-1=on,romfile=", "igb,bus=port5,addr=0.1,romfile=",
	// Two functions behind a conventional bridge, so in one IOMMU group.
	"pcie-root-port,id=port2,chassis=2,addr=6", "pcie-pci-bridge,id=bridge,bus=port2",
	"edu,bus=bridge,addr=1", "edu,bus=bridge,addr=2",
	// The same with NICs that the stock kernel has a driver for.
	"pcie-root-port,id=port4,chassis=4,addr=7", "pcie-pci-bridge,id=bridge2,bus=port4",
	"e1000,bus=bridge2,addr=1,romfile=", "e1000,bus=bridge2,addr=2,romfile=",
}

// withoutIOMMU: physical addresses are anywhere in the guest's 512 MiB, which
// edu reaches only if it is told that it can.
var withoutIOMMU = []string{"edu,addr=3,dma_mask=0xffffffff", "pcie-root-port,id=port1,chassis=1,addr=4",
	"edu,bus=port1,dma_mask=0xffffffff", "igb,addr=5,romfile=",
	"pcie-root-port,id=port3,chassis=3,addr=8", "virtio-rng-pci,bus=port3,id=fails,aer=on,disable-legacy=on",
	"pcie-root-port,id=port5,chassis=5,addr=9," + slowPort, "igb,bus=port5,addr=0.0,multifunction=on,x-pcie-ari-nextfn-1=on,romfile=", "igb,bus=port5,addr=0.1,romfile="}

// pairs are NICs of which two and two are on one hub: ours, which can be pulled out of its
// port, and one that Linux drives.
func pairs(models ...string) (devices []string) {
	for i, m := range models {
		devices = append(devices, fmt.Sprintf("pcie-root-port,id=pair%d,chassis=%d,addr=%d,%s", i, 30+i, 3+i, slowPort),
			fmt.Sprintf("%s,bus=pair%d,netdev=end%d,mac=02:00:00:00:01:%02x,romfile=", m, i, i, i))
	}
	return devices
}

// hubs are the ends of cables, by hub.
func hubs(list ...int) (netdevs []string) {
	for i, hub := range list {
		netdevs = append(netdevs, fmt.Sprintf("hubport,id=end%d,hubid=%d", i, hub))
	}
	return netdevs
}

const guarded = ",disable-legacy=on,iommu_platform=on"

var scenarios = []scenario{
	{
		name: "group", stock: true, iommu: true, devices: hardware,
		tests: []test{{pkg: "ci/vm/guest", env: []string{"TRAPEZE_BACKEND=group"}}},
	},
	{
		name: "cdev", iommu: true, devices: hardware,
		tests: []test{{pkg: "ci/vm/guest", env: []string{"TRAPEZE_BACKEND=cdev"}}},
	},
	{
		name: "nic-group", stock: true, iommu: true, nics: 2,
		// The suites run over cdev, once is enough.
		tests: []test{{pkg: "ci/vm/nic", env: []string{"TRAPEZE_BACKEND=group"}, run: "Test[^V]"}},
	},
	{
		name: "nic-vis", iommu: true, nics: 2,
		tests: []test{{pkg: "ci/vm/nic", env: []string{"TRAPEZE_BACKEND=cdev"}, run: "TestVIA/VIs"}},
	},
	{
		name: "nic-cdev", iommu: true, nics: 2,
		tests: []test{
			{pkg: "ci/vm/nic", env: []string{"TRAPEZE_BACKEND=cdev"}, run: "Test[^V]"},
			{pkg: "ci/vm/nic", env: []string{"TRAPEZE_BACKEND=cdev"}, run: "TestVIA/^[^V]"},
		},
	},
	{
		name: "nic-noiommu", append: "vfio.enable_unsafe_noiommu_mode=1", nics: 2,
		// Without an IOMMU memory in one piece ends with a huge page: no large
		// messages, and no files, whose messages are large.
		tests: []test{{pkg: "ci/vm/nic", env: []string{"TRAPEZE_BACKEND=noiommu"},
			run: "TestDriver/^[^L]|TestEnumerated|TestInterrupts|TestReset$|TestUnbind"}},
	},
	{
		name: "igb", stock: true, iommu: true,
		devices: pairs("igb,id=ours", "igb,id=theirs", "e1000e", "vmxnet3"), netdevs: hubs(0, 0, 0, 0),
		tests: []test{{pkg: "ci/vm/guest", env: []string{"TRAPEZE_BACKEND=group", "TRAPEZE_PAIR=igb"}, run: "TestPair"}},
	},
	{
		// QEMU 11.1 forgets to ask for notifications of a packed ring with event index whose
		// frame had to wait for the receiver. Linux then sends no more; our driver does.
		name: "virtio", stock: true, iommu: true,
		devices: pairs("virtio-net-pci,id=ours,packed=off"+guarded, "virtio-net-pci,id=theirs,packed=off"+guarded,
			"virtio-net-pci,id=ours2,packed=on"+guarded, "virtio-net-pci,id=theirs2,packed=on,event_idx=off"+guarded),
		netdevs: hubs(0, 0, 1, 1),
		tests:   []test{{pkg: "ci/vm/guest", env: []string{"TRAPEZE_BACKEND=group", "TRAPEZE_PAIR=virtio"}, run: "TestPair"}},
	},
	{
		name: "noiommu", append: "vfio.enable_unsafe_noiommu_mode=1", devices: withoutIOMMU,
		tests: []test{{pkg: "ci/vm/guest", env: []string{"TRAPEZE_BACKEND=noiommu"}}},
	},
	{
		// VIA over NICs that are not ours, to a program outside of the guest.
		name: "cables", stock: true, iommu: true, cables: 2,
		devices: []string{
			"pcie-root-port,id=out0,chassis=1,addr=3," + slowPort, "igb,bus=out0,netdev=cable0,mac=02:00:00:00:02:00,romfile=",
			"pcie-root-port,id=out1,chassis=2,addr=4," + slowPort, "igb,bus=out1,netdev=cable1,mac=02:00:00:00:02:01,romfile=",
		},
		tests: []test{{pkg: "ci/vm/guest", env: []string{"TRAPEZE_BACKEND=group", "TRAPEZE_CABLES=/cables"}, run: "TestSend"}},
	},
}
