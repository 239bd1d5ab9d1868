package doctor

import (
	"errors"
	"strings"

	"golang.org/x/sys/unix"
)

// maxLog bounds how much of the kernel's log is read.
const maxLog = 4 << 20

// readLog reads the kernel's log, its oldest messages first. The node gives a
// record for each read and would wait for the next one at its end.
func (h *Host) readLog() ([]string, error) {
	fd, err := unix.Open(h.Root.Path("dev/kmsg"), unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	var log []byte
	record := make([]byte, 8192)
	for len(log) < maxLog {
		n, err := unix.Read(fd, record)
		if errors.Is(err, unix.EINTR) || errors.Is(err, unix.EPIPE) { // EPIPE: overwritten meanwhile
			continue
		}
		if errors.Is(err, unix.EAGAIN) || err == nil && n == 0 {
			break
		}
		if err != nil {
			return nil, err
		}
		log = append(log, record[:n]...)
	}
	var lines []string
	for line := range strings.Lines(string(log)) {
		// "priority,number,time,flags;message"; lines with a blank first belong to
		// the message before.
		if head, message, ok := strings.Cut(line, ";"); ok && !strings.HasPrefix(line, " ") && strings.Count(head, ",") >= 3 {
			lines = append(lines, strings.TrimSpace(message))
		}
	}
	return lines, nil
}

// complaints are messages of the kernel's that tell of a trap.
var complaints = []struct{ part, why, fix string }{
	{"RLIMIT_MEMLOCK", "a process wanted to map more memory than it may lock", "ulimit -l unlimited, or LimitMEMLOCK=infinity in the service"},
	{"is not sufficient for the mapped address", "a process wanted bus addresses that the IOMMU cannot translate", "choose low IOVAs, within the ranges that VFIO reports"},
	{"DMAR: [DMA", "a device has used an address that was not mapped for it", "look at the address: memory unmapped too early, or a device that cannot address 64 bits"},
	{"AMD-Vi: Event logged [IO_PAGE_FAULT", "a device has used an address that was not mapped for it", "look at the address: memory unmapped too early, or a device that cannot address 64 bits"},
	{"No device request channel registered", "the kernel wants a device back, and its driver does not listen", "end the process that holds it: fuser -v /dev/vfio/*"},
	{"blocked until released by user", "the kernel wants a device back, and its driver does not listen", "end the process that holds it: fuser -v /dev/vfio/*"},
	{"device inaccessible", "a device did not wake up", "/etc/modprobe.d/trapeze.conf: options vfio-pci disable_idle_d3=1"},
	{"No interrupt remapping support", "VFIO has refused the IOMMU", "/etc/default/grub: remove intremap=off from GRUB_CMDLINE_LINUX"},
}

// checkLog looks for complaints since the host was started; they may be about
// something long gone.
func checkLog(h *Host) Finding {
	lines, err := h.readLog()
	if errors.Is(err, unix.ENOENT) {
		return found(Note, "there is no kernel log to look at", "")
	}
	if err != nil {
		return found(Note, "the kernel's log may not be read: "+err.Error(), "it tells of some troubles that nothing else shows", "sudo trapeze doctor")
	}
	for i := len(lines) - 1; i >= 0; i-- {
		for _, c := range complaints {
			if strings.Contains(lines[i], c.part) {
				return found(Warning, "the kernel has said: "+lines[i], c.why, c.fix)
			}
		}
	}
	return fine("no complaint about VFIO in the kernel's log")
}
