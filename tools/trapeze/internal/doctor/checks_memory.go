package doctor

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/units"
)

var memoryChecks = []Check{
	{Name: "memlock", Traps: []int{2}, Run: checkMemlock},
	{Name: "mappings", Traps: []int{3}, Run: checkMappings},
	{Name: "hugepages", Traps: []int{11}, Run: checkHugePages},
	{Name: "hugepages-node", Traps: []int{11}, PerFunction: true, Run: checkHugePagesNode},
	{Name: "memlock-bars", Traps: []int{26}, PerFunction: true, Run: checkMemlockBARs},
}

const (
	// leastMemlock is one huge page: less does not even hold a queue or two.
	leastMemlock = 2 << 20
	// usualMemlock is the memory that a modest program maps, if it does not say.
	usualMemlock = 64 << 20
)

// memlockFix raises the limit in a shell, for logins, and in services.
func memlockFix(bytes uint64) []string {
	kib := (bytes + 1023) / 1024
	return []string{
		fmt.Sprintf("ulimit -l %d", kib),
		fmt.Sprintf("/etc/security/limits.d/60-trapeze.conf: @trapeze - memlock %d", kib),
		"in the unit of a service, [Service]: LimitMEMLOCK=infinity",
	}
}

func checkMemlock(h *Host) Finding {
	const why = "memory that a device may use is locked; what goes over the limit fails with ENOMEM"
	limit := h.Process.memlock
	wanted := max(h.Memory, leastMemlock)
	switch {
	case limit == unlimited:
		return fine("no limit of locked memory")
	case h.Process.can(capIPCLock):
		return fine("the limit of locked memory, %s, does not hold for this process (CAP_IPC_LOCK)", units.Size(limit))
	case limit < wanted:
		return found(Error, fmt.Sprintf("%s may be locked, %s is needed", units.Size(limit), units.Size(wanted)), why, memlockFix(max(wanted, usualMemlock))...)
	case h.Memory == 0 && limit < usualMemlock:
		return found(Warning, units.Size(limit)+" may be locked", why, memlockFix(usualMemlock)...)
	}
	return fine("%s may be locked", units.Size(limit))
}

// defaultEntries is the default limit of a container's mappings
// (drivers/vfio/vfio_iommu_type1.c).
const defaultEntries = 65535

func checkMappings(h *Host) Finding {
	const file = "sys/module/vfio_iommu_type1/parameters/dma_entry_limit"
	const why = "each mapping takes an entry; when there is none left mapping fails with ENOSPC"
	text := h.Root.Optional(file)
	if text == "" {
		return fine("no limit of mappings is known (vfio_iommu_type1 is not loaded, or older than 5.1)")
	}
	limit, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return found(Warning, file+": "+err.Error(), why)
	}
	fix := func(n uint64) []string {
		return []string{fmt.Sprintf("echo %d > /%s", n, file),
			fmt.Sprintf("/etc/modprobe.d/trapeze.conf: options vfio_iommu_type1 dma_entry_limit=%d", n), "or map memory in larger pieces"}
	}
	const piece = 2 << 20
	switch pieces := (h.Memory + piece - 1) / piece; {
	case pieces > limit:
		return found(Warning, fmt.Sprintf("%d mappings are allowed, %s in pieces of 2 MiB takes %d", limit, units.Size(h.Memory), pieces), why, fix(pieces+defaultEntries)...)
	case limit < defaultEntries:
		return found(Warning, fmt.Sprintf("only %d mappings are allowed, usual are %d", limit, defaultEntries), why, fix(defaultEntries)...)
	}
	return fine("%d mappings are allowed", limit)
}

// pool is huge pages of one size.
type pool struct {
	kib         uint64
	total, free uint64
}

func (p pool) String() string {
	return fmt.Sprintf("%d of %d free of %s", p.free, p.total, units.Size(p.kib<<10))
}

// readPools reads the pools of the host, or of a node; sizes ascend.
func (h *Host) readPools(dir string) ([]pool, error) {
	names, err := h.Root.Names(dir)
	if err != nil {
		return nil, err
	}
	var list []pool
	for _, n := range names {
		var p pool
		if _, err := fmt.Sscanf(n, "hugepages-%dkB", &p.kib); err != nil {
			continue
		}
		for file, to := range map[string]*uint64{"nr_hugepages": &p.total, "free_hugepages": &p.free} {
			if *to, err = strconv.ParseUint(h.Root.Optional(path.Join(dir, n, file)), 10, 64); err != nil {
				return nil, fmt.Errorf("%s/%s: %w", n, file, err)
			}
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(a, b pool) int { return int(int64(a.kib) - int64(b.kib)) })
	return list, nil
}

func describePools(list []pool) string {
	var s []string
	for _, p := range list {
		if p.total > 0 {
			s = append(s, p.String())
		}
	}
	return strings.Join(s, ", ")
}

func sum(list []pool) (total, free uint64) {
	for _, p := range list {
		total, free = total+p.total, free+p.free
	}
	return total, free
}

const whyHuge = "an IOMMU with 4 KiB pages is slow; without an IOMMU, memory for devices must be huge pages"

// pagesFor returns the number of pages of 2 MiB to reserve.
func (h *Host) pagesFor() uint64 {
	return max((h.Memory+leastMemlock-1)/leastMemlock, 256)
}

func checkHugePages(h *Host) Finding {
	list, err := h.readPools("sys/kernel/mm/hugepages")
	if err != nil {
		return found(Warning, err.Error(), whyHuge)
	}
	if len(list) == 0 {
		return found(Warning, "the kernel has no huge pages (CONFIG_HUGETLBFS)", whyHuge)
	}
	n := h.pagesFor()
	fix := []string{fmt.Sprintf("sysctl -w vm.nr_hugepages=%d", n), fmt.Sprintf("/etc/sysctl.d/60-trapeze.conf: vm.nr_hugepages = %d", n)}
	severity := Warning
	if hostpci.UnsafeMode(h.Root) {
		severity = Error
	}
	switch total, free := sum(list); {
	case total == 0:
		return found(severity, "no huge pages are reserved", whyHuge, fix...)
	case free == 0:
		return found(severity, "all huge pages are in use ("+describePools(list)+")", whyHuge+"; a program that was killed may have left files in a hugetlbfs",
			append([]string{"ls -l /dev/hugepages"}, fix...)...)
	}
	for line := range strings.Lines(h.Root.Optional("proc/mounts")) {
		if f := strings.Fields(line); len(f) > 2 && f[2] == "hugetlbfs" {
			return fine("huge pages: %s", describePools(list))
		}
	}
	return found(Note, "huge pages: "+describePools(list)+"; no hugetlbfs is mounted", "this program needs no mount, DPDK and others do",
		"mount -t hugetlbfs none /dev/hugepages")
}

// checkHugePagesNode looks at the memory next to the function.
func checkHugePagesNode(h *Host) Finding {
	node := h.Function.NUMANode
	if node < 0 {
		return fine("the function belongs to no NUMA node")
	}
	dir := fmt.Sprintf("sys/devices/system/node/node%d/hugepages", node)
	list, err := h.readPools(dir)
	if err != nil {
		return found(Warning, err.Error(), whyHuge)
	}
	elsewhere, err := h.readPools("sys/kernel/mm/hugepages")
	if err != nil {
		return found(Warning, err.Error(), whyHuge)
	}
	_, free := sum(list)
	if _, all := sum(elsewhere); len(list) == 0 || all == 0 || free > 0 {
		return fine("NUMA node %d: %s", node, describePools(list))
	}
	return found(Warning, fmt.Sprintf("no huge page is free on NUMA node %d, where the function is", node), "memory of another node is slower for the device",
		fmt.Sprintf("echo %d > /%s/hugepages-2048kB/nr_hugepages", h.pagesFor(), dir))
}

// checkMemlockBARs: some kernels count BARs that are mapped for DMA.
func checkMemlockBARs(h *Host) Finding {
	var bars uint64
	for _, b := range h.Function.BARs {
		if !b.IO {
			bars += b.Size
		}
	}
	limit := h.Process.memlock
	if limit == unlimited || h.Process.can(capIPCLock) || !slices.Contains(h.Function.Backends, "cdev") {
		return fine("BARs do not count against a limit")
	}
	if wanted := max(h.Memory, leastMemlock) + bars; limit < wanted {
		return found(Warning, fmt.Sprintf("%s may be locked; with the function's BARs, %s, it takes %s", units.Size(limit), units.Size(bars), units.Size(wanted)),
			"/dev/iommu counts locked memory per user, and some kernels count BARs that another device may reach", memlockFix(wanted)...)
	}
	return fine("the limit of locked memory leaves room for the BARs, %s", units.Size(bars))
}

// netmemChecks are about memory that is mapped from other machines (package netmem). A driver
// does without.
var netmemChecks = []Check{
	{Name: "userfaultfd", Run: checkUserfaultfd},
	{Name: "memory-limit", Run: checkMemoryLimit},
}

// capSysPtrace lets a process handle faults of the kernel (userfaultfd(2)).
const capSysPtrace = 19

func checkUserfaultfd(h *Host) Finding {
	const why = "memory of other machines can then be read and written, but not mapped (netmem.Map)"
	const file = "proc/sys/vm/unprivileged_userfaultfd"
	if h.kernel.lacks("CONFIG_USERFAULTFD") {
		return found(Note, "the kernel has no userfaultfd", why, netmem.HintNoUserfaultfd)
	}
	if !h.since(5, 19) || h.kernel.lacks("CONFIG_PTE_MARKER_UFFD_WP") {
		return found(Note, "the kernel's userfaultfd cannot protect files in memory against writing", why, netmem.HintUserfaultfdTooOld)
	}
	if h.Process.can(capSysPtrace) || h.Root.Optional(file) == "1" || h.mayOpen("dev/userfaultfd") == nil {
		return fine("userfaultfd, with faults of the kernel")
	}
	return found(Note, "userfaultfd is for faults of user mode only",
		"system calls such as read(2) into mapped memory that is not there fail with EFAULT",
		"sysctl -w vm.unprivileged_userfaultfd=1", "/etc/sysctl.d/60-trapeze.conf: vm.unprivileged_userfaultfd = 1")
}

func checkMemoryLimit(h *Host) Finding {
	limit, file := netmem.MemoryLimit(h.Root.Optional)
	switch {
	case file == "":
		return fine("no control group limits memory")
	case limit < usualMemlock:
		return found(Warning, file+" allows "+units.Size(limit), "a process that takes more is killed: memory for devices and the local part of mapped memory count",
			"in the unit of a service, [Service]: MemoryMax=1G", "systemd-run --scope -p MemoryMax=1G trapeze ...")
	}
	return fine("%s allows %s", file, units.Size(limit))
}
