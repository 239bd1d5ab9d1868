package kernel

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/vfio"
)

// explainMap makes the error of a mapping that the kernel refused. The caller
// holds the domain's lock.
func (d *Device) explainMap(op string, size uint64, err error) error {
	switch {
	case errors.Is(err, unix.ENOMEM):
		return d.fail(op, err, hintMemlock(size, d.host.root))
	case errors.Is(err, unix.ENOSPC):
		return d.fail(op, err, d.hintMappings())
	case errors.Is(err, unix.EEXIST), errors.Is(err, unix.EADDRINUSE):
		return d.fail(op, fmt.Errorf("%w: %w", vfio.ErrIOVAInUse, err), "")
	case errors.Is(err, unix.EINVAL), errors.Is(err, unix.EADDRNOTAVAIL):
		return d.fail(op, fmt.Errorf("%w: %w", vfio.ErrIOVARange, err), fmt.Sprint("usable: ", d.domain.known.ranges))
	case errors.Is(err, unix.EFAULT):
		return d.fail(op, err, "the memory cannot be pinned")
	}
	return d.fail(op, err, "")
}

// hintMappings says how many mappings there are and can be.
func (d *Device) hintMappings() string {
	hint := fmt.Sprintf("%d mappings are in use", len(d.domain.maps))
	if l, err := d.domain.limits(); err == nil && l.available != unknown {
		hint += fmt.Sprintf(", the kernel takes %d more", l.available)
	}
	hint += ": map larger pieces"
	const parameter = "sys/module/vfio_iommu_type1/parameters/dma_entry_limit"
	if limit := d.host.root.Optional(parameter); limit != "" {
		hint += fmt.Sprintf(", or raise /%s, now %s, before the device is opened", parameter, limit)
	}
	return hint
}

// hintMemlock says how much may be locked, is, and should be.
func hintMemlock(want uint64, root hostpci.Root) string {
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_MEMLOCK, &r); err != nil {
		return ""
	}
	hint := fmt.Sprintf("memory is pinned, %d bytes are wanted and ", want)
	if r.Cur == unix.RLIM_INFINITY {
		return hint + "the limit of locked memory is infinite: the kernel has run out of memory, or the user's limit counts other processes"
	}
	locked := locked(root)
	kib := (locked + want + 1023) / 1024
	return hint + fmt.Sprintf("%d are locked or pinned already, of at most %d (RLIMIT_MEMLOCK): ulimit -l %d, "+
		"memlock in /etc/security/limits.conf, or LimitMEMLOCK=%dK in a systemd unit; CAP_IPC_LOCK has no limit", locked, r.Cur, kib, kib)
}

// locked returns how many bytes this process has locked and pinned.
func locked(root hostpci.Root) uint64 {
	var sum uint64
	for line := range strings.Lines(root.Optional("proc/self/status")) {
		name, rest, _ := strings.Cut(line, ":")
		fields := strings.Fields(rest)
		if name != "VmLck" && name != "VmPin" || len(fields) == 0 {
			continue
		}
		if kib, err := strconv.ParseUint(fields[0], 10, 54); err == nil {
			sum += kib << 10
		}
	}
	return sum
}
