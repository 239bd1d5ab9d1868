package doctor

import (
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/units"
)

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
