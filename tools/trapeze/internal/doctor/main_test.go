package doctor_test

import (
	"encoding/binary"
	"os"
	"testing"

	"go.uber.org/goleak"

	"github.com/trapeze-nic/trapeze/ci/kit/hostpcitest"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

// TestMain has hosts made in memory where it can: on a disk their hundreds of small files take far longer to make and
// remove than the tests take to read them.
func TestMain(m *testing.M) {
	const memory = "/dev/shm"
	if folder, err := os.MkdirTemp(memory, "trapeze-doctor-"); err == nil {
		_ = os.Remove(folder)
		_ = os.Setenv("TMPDIR", memory)
	}
	goleak.VerifyTestMain(m)
}

const (
	nic     = "0000:03:00.0"
	nicDir  = "sys/bus/pci/devices/0000:03:00.0"
	release = "6.12.1-test"
)

// ours are the drivers of the program.
var ours = []hostpci.Driver{{Name: "trapeze", Vendor: 0x1234, Device: 0x7250}, {Name: "igb", Vendor: 0x1234, Device: 0x1533, Untested: true}}

// nicConfig is configuration space with a PCI Express capability and an MSI-X
// table that fills a page.
func nicConfig() []byte {
	b := make([]byte, 4096)
	le := binary.LittleEndian
	le.PutUint16(b, 0x1234)
	le.PutUint16(b[2:], 0x7250)
	b[6] = 0x10                     // it has capabilities
	le.PutUint32(b[0x10:], 4)       // BAR0 is 64-bit
	b[0x34], b[0x3d] = 0x40, 1      // the first one; INTA
	copy(b[0x40:], []byte{0x11, 0}) // MSI-X, the last one
	le.PutUint16(b[0x42:], 255)     // 256 vectors of 16 bytes
	le.PutUint32(b[0x44:], 0x2000)
	le.PutUint32(b[0x48:], 0x3000)
	return b
}

// healthy is a machine on which a driver could start: the NIC at 0000:03:00.0
// is bound to VFIO, alone in its group but for the root port, and for everybody.
func healthy(t *testing.T) *hostpcitest.Tree {
	t.Helper()
	tree := hostpcitest.New(t)
	tree.Files(`
		proc/sys/kernel/osrelease = ` + release + `
		proc/cmdline = BOOT_IMAGE=/vmlinuz root=/dev/sda1 ro intel_iommu=on iommu=pt quiet
		proc/cpuinfo = vendor_id : GenuineIntel
		proc/1/cgroup = 0::/init.scope
		proc/sys/vm/unprivileged_userfaultfd = 1
		proc/mounts = hugetlbfs /dev/hugepages hugetlbfs rw 0 0
		sys/firmware/acpi/tables/DMAR = DMAR
		sys/class/iommu/dmar0/intel-iommu/cap = d2008c402f0462
		sys/class/iommu/dmar0/intel-iommu/ecap = f050de
		sys/module/vfio/parameters/enable_unsafe_noiommu_mode = N
		sys/module/vfio_iommu_type1/parameters/dma_entry_limit = 65535
		sys/module/vfio_iommu_type1/parameters/allow_unsafe_interrupts = N
		sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages = 512
		sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages = 500
		sys/devices/system/node/node0/hugepages/hugepages-2048kB/nr_hugepages = 512
		sys/devices/system/node/node0/hugepages/hugepages-2048kB/free_hugepages = 500
		sys/kernel/security/lockdown = [none] integrity confidentiality
		dev/kmsg = 6,1,100,-;Linux version 6.12.1`)
	process(tree, "67108864", "0000000000000000")
	tree.Function(hostpcitest.Function{Address: "0000:00:1c.0", Vendor: 0x8086, Device: 0xa110, Class: 0x060400, Driver: "pcieport", Group: 12})
	f := hostpcitest.NIC()
	f.Driver, f.Config = "vfio-pci", nicConfig()
	tree.Function(f)
	tree.Link("sys/devices/pci0000:00/0000:00:1c.0/0000:03:00.0/iommu", "sys/class/iommu/dmar0")
	tree.Dir(nicDir + "/vfio-dev/vfio0")
	tree.File("boot/config-"+release, "CONFIG_VFIO=m\nCONFIG_INTEL_IOMMU=y\nCONFIG_AMD_IOMMU=y\nCONFIG_USERFAULTFD=y\nCONFIG_PTE_MARKER_UFFD_WP=y\n")
	tree.File("dev/iommu", "")
	tree.File("dev/vfio/devices/vfio0", "")
	for _, n := range []string{"dev/iommu", "dev/vfio/vfio", "dev/vfio/12", "dev/vfio/devices/vfio0"} {
		tree.Mode(n, 0o666)
	}
	return tree
}

// process is who asks: a user that owns nothing, with a limit of locked memory
// and capabilities.
func process(tree *hostpcitest.Tree, memlock, caps string) {
	tree.Files("proc/self/limits = Max locked memory         " + memlock + "              " + memlock + "              bytes")
	tree.File("proc/self/status", "Name:\ttrapeze\nUid:\t54321\t54321\t54321\t54321\nGid:\t54321\t54321\t54321\t54321\nGroups:\t54322\nCapEff:\t"+caps+"\n")
}
