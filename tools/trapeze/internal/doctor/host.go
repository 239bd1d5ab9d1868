package doctor

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

// Host is the machine that checks look at.
type Host struct {
	Root hostpci.Root
	Options
	// Release of the kernel, and its version as numbers.
	Release      string
	Major, Minor int
	// Cmdline is the kernel's command line, by words.
	Cmdline []string
	// Vendor of the processor: "GenuineIntel", "AuthenticAMD", or "arm" for what
	// does not call itself anything.
	Vendor string
	// Virtual says that this is a virtual machine.
	Virtual bool
	// Container is the kind of container this runs in, empty for none.
	Container string
	// Process is who asks.
	Process process
	// Function is the one to look at, nil in checks of the host.
	Function *hostpci.Function
	config   []byte
	// configErr is why there is no config.
	configErr error
	kernel    kernelConfig
}

// process is this one, as proc shows it.
type process struct {
	uid, gid int
	groups   []int
	caps     uint64
	// memlock is the limit of locked memory in bytes, or unlimited.
	memlock uint64
}

const unlimited = 1<<64 - 1

// capabilities (linux/capability.h).
const (
	capDACOverride = 1
	capIPCLock     = 14
	capSysRawIO    = 17
)

func (p process) can(capability uint) bool { return p.caps>>capability&1 != 0 }

var version = regexp.MustCompile(`^(\d+)\.(\d+)`)

func newHost(root hostpci.Root, o Options) (*Host, error) {
	h := &Host{Root: root, Options: o}
	h.Release = root.Optional("proc/sys/kernel/osrelease")
	if m := version.FindStringSubmatch(h.Release); m != nil {
		// The pattern allows digits only; too many of them give the largest number.
		h.Major, _ = strconv.Atoi(m[1])
		h.Minor, _ = strconv.Atoi(m[2])
	}
	h.Cmdline = strings.Fields(root.Optional("proc/cmdline"))
	h.Vendor = "arm"
	cpu := root.Optional("proc/cpuinfo")
	for line := range strings.Lines(cpu) {
		name, value, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(name) {
		case "vendor_id":
			h.Vendor = strings.TrimSpace(value)
		case "flags":
			h.Virtual = h.Virtual || strings.Contains(" "+value+" ", " hypervisor ")
		}
	}
	h.Virtual = h.Virtual || root.Optional("sys/hypervisor/type") != "" || virtualBoard(root.Optional("sys/class/dmi/id/sys_vendor"))
	h.Container = containerOf(root)
	h.kernel = readKernelConfig(root, h.Release)
	var err error
	h.Process, err = readProcess(root)
	return h, err
}

// virtualBoard says whether a machine's maker makes virtual ones.
func virtualBoard(maker string) bool {
	for _, v := range []string{"QEMU", "VMware", "Xen", "innotek", "Amazon EC2", "Google", "Bochs", "Parallels"} {
		if strings.HasPrefix(maker, v) {
			return true
		}
	}
	return false
}

// since says whether the kernel is as new as a version. One that does not tell
// its version counts as new.
func (h *Host) since(major, minor int) bool {
	return h.Release == "" || h.Major > major || h.Major == major && h.Minor >= minor
}

// flag returns the value of a word of the kernel's command line, the last one
// if there are several.
func (h *Host) flag(name string) (value string, given bool) {
	for _, w := range h.Cmdline {
		n, v, _ := strings.Cut(w, "=")
		// The kernel takes - for _ in names.
		if strings.ReplaceAll(n, "-", "_") == strings.ReplaceAll(name, "-", "_") {
			value, given = v, true
		}
	}
	return value, given
}

// hasOption says whether a comma-separated flag holds a value.
func (h *Host) hasOption(name, value string) bool {
	for _, w := range h.Cmdline {
		if n, v, _ := strings.Cut(w, "="); n == name {
			for o := range strings.SplitSeq(v, ",") {
				if o == value {
					return true
				}
			}
		}
	}
	return false
}

// containerOf names the kind of container, as far as it leaves traces.
func containerOf(r hostpci.Root) string {
	switch {
	case r.Exists("run/secrets/kubernetes.io") || r.Exists("var/run/secrets/kubernetes.io"):
		return "Kubernetes"
	case r.Exists(".dockerenv"):
		return "Docker"
	case r.Exists("run/.containerenv"):
		return "Podman"
	}
	if kind := r.Optional("run/systemd/container"); kind != "" {
		return kind
	}
	groups := r.Optional("proc/1/cgroup")
	for _, k := range []struct{ part, name string }{{"/kubepods", "Kubernetes"}, {"/docker", "Docker"}, {"/lxc", "lxc"}} {
		if strings.Contains(groups, k.part) {
			return k.name
		}
	}
	return ""
}

// readProcess reads who asks. A tree without that is one of a host where
// no process does: user 0 without a limit.
func readProcess(r hostpci.Root) (process, error) {
	p := process{memlock: unlimited}
	text := r.Optional("proc/self/status")
	if text == "" {
		p.caps = unlimited
	}
	for line := range strings.Lines(text) {
		name, value, _ := strings.Cut(line, ":")
		fields := strings.Fields(value)
		if len(fields) == 0 {
			continue
		}
		var err error
		switch name {
		case "Uid": // real, effective, saved, of the file system
			p.uid, err = strconv.Atoi(fields[min(1, len(fields)-1)])
		case "Gid":
			p.gid, err = strconv.Atoi(fields[min(1, len(fields)-1)])
		case "CapEff":
			p.caps, err = strconv.ParseUint(fields[0], 16, 64)
		case "Groups":
			for _, f := range fields {
				var g int
				if g, err = strconv.Atoi(f); err == nil {
					p.groups = append(p.groups, g)
				}
			}
		}
		if err != nil {
			return p, fmt.Errorf("proc/self/status: %s: %w", name, err)
		}
	}
	for line := range strings.Lines(r.Optional("proc/self/limits")) {
		if rest, ok := strings.CutPrefix(line, "Max locked memory"); ok {
			fields := strings.Fields(rest)
			if len(fields) == 0 || fields[0] == "unlimited" {
				continue
			}
			var err error
			if p.memlock, err = strconv.ParseUint(fields[0], 10, 64); err != nil {
				return p, fmt.Errorf("proc/self/limits: %w", err)
			}
		}
	}
	return p, nil
}

// attribute reads a file of the function.
func (h *Host) attribute(name string) string {
	return hostpci.Attribute(h.Root, h.Function.Address, name)
}

// mayOpen says why this process may not open a node for reading and writing.
func (h *Host) mayOpen(name string) error {
	refused := func(i fs.FileInfo) error {
		return fmt.Errorf("/%s is not for user %d: mode %v: %w", name, h.Process.uid, i.Mode(), fs.ErrPermission)
	}
	info, err := os.Stat(h.Root.Path(name))
	if err != nil {
		return err
	}
	if h.Root.Live() {
		// The kernel knows better: access lists, read-only mounts.
		err := unix.Faccessat(unix.AT_FDCWD, h.Root.Path(name), unix.R_OK|unix.W_OK, unix.AT_EACCESS)
		if errors.Is(err, unix.EACCES) {
			return refused(info)
		}
		return err
	}
	if h.Process.can(capDACOverride) {
		return nil
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !ok {
		return nil
	}
	bits := info.Mode().Perm()
	switch {
	case int(owner.Uid) == h.Process.uid:
		bits >>= 6
	case int(owner.Gid) == h.Process.gid, slices.Contains(h.Process.groups, int(owner.Gid)):
		bits >>= 3
	}
	if bits&6 != 6 {
		return refused(info)
	}
	return nil
}
