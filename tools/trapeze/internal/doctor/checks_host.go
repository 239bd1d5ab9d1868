package doctor

import (
	"fmt"
	"path"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

// found makes a finding.
func found(s Severity, what, why string, fix ...string) Finding {
	return Finding{Severity: s, What: what, Why: why, Fix: fix}
}

// fine makes a finding that all is well.
func fine(format string, a ...any) Finding {
	return Finding{What: fmt.Sprintf(format, a...)}
}

// named gives a finding the name of its check.
func named(check string, f Finding) Finding {
	f.Check = check
	return f
}

var hostChecks = []Check{
	{Name: "kernel", Traps: []int{9}, Run: checkKernel},
	{Name: "container", Traps: []int{14}, Run: checkContainer},
	{Name: "iommu", Traps: []int{12}, Run: checkIOMMU},
	{Name: "interrupt-remapping", Run: checkRemapping},
	{Name: "modules", Traps: []int{14, 15}, Run: checkModules},
	{Name: "nodes", Traps: []int{14, 15}, Run: checkNodes},
	{Name: "unsafe-options", Traps: []int{10}, Run: checkUnsafe},
	{Name: "lockdown", Traps: []int{17}, Run: checkLockdown},
	{Name: "kernel-log", Traps: []int{2, 4, 8, 18, 19}, Run: checkLog},
}

// checkKernel names what the VFIO of this version of Linux cannot do yet.
func checkKernel(h *Host) Finding {
	if h.Release == "" {
		return found(Note, "the kernel does not tell its version", "what its VFIO can do depends on it")
	}
	var lacks []string
	for _, f := range []struct {
		major, minor int
		lack         string
	}{
		{5, 4, "tells no usable IOVA ranges (5.4)"},
		{6, 5, "cannot add MSI-X vectors later (6.5): enable all of them at once"},
		{6, 6, "has no node for each function (6.6): VFIO goes by IOMMU group"},
	} {
		if !h.since(f.major, f.minor) {
			lacks = append(lacks, f.lack)
		}
	}
	if len(lacks) > 0 {
		return found(Note, "Linux "+h.Release+" "+strings.Join(lacks, "; it "), "VFIO works, with less")
	}
	return fine("Linux %s", h.Release)
}

func checkContainer(h *Host) Finding {
	if h.Container == "" {
		return fine("not in a container")
	}
	return found(Note, "this runs in a container ("+h.Container+")",
		"nodes of VFIO must be handed in, the limit of locked memory is the container's, and binding is the host's business",
		"docker run --device /dev/vfio/vfio --device /dev/vfio/GROUP --ulimit memlock=-1 --cap-add IPC_LOCK IMAGE",
		"Kubernetes: trapeze-kubernetes or another driver that hands out /dev/vfio/GROUP, and a LimitMEMLOCK of the container runtime's service that suffices")
}

// grub returns the steps that put words onto the kernel's command line.
func grub(words string) []string {
	return []string{
		`/etc/default/grub: GRUB_CMDLINE_LINUX="… ` + words + `"`,
		"update-grub || grub2-mkconfig -o /boot/grub2/grub.cfg",
		"reboot",
	}
}

// table returns the firmware's name for the description of an IOMMU, and that of the
// switch for it.
type table struct{ acpi, option, flag, setting string }

var tables = map[string]table{
	"GenuineIntel": {"DMAR", "CONFIG_INTEL_IOMMU", "intel_iommu", "VT-d"},
	"AuthenticAMD": {"IVRS", "CONFIG_AMD_IOMMU", "amd_iommu", "AMD-Vi (IOMMU)"},
	"arm":          {"IORT", "CONFIG_ARM_SMMU_V3", "arm-smmu.disable_bypass", "SMMU"},
}

const whyIOMMU = "VFIO gives a function to a process only behind an IOMMU; without one, binding fails with EINVAL"

func checkIOMMU(h *Host) Finding {
	guarded, err := hostpci.Groups(h.Root)
	if err != nil {
		return found(Error, err.Error(), whyIOMMU)
	}
	if guarded > 0 {
		return fine("the IOMMU is on: %d groups", guarded)
	}
	f := whyNoGroups(h)
	if hostpci.UnsafeMode(h.Root) {
		f.Severity = Warning
		f.Why = "VFIO's no-IOMMU mode is on: root can use functions, which can then read and write all memory"
		return f
	}
	f.Severity = Error
	return f
}

// whyNoGroups says why there are no IOMMU groups.
func whyNoGroups(h *Host) Finding {
	t, known := tables[h.Vendor]
	if !known {
		return found(Error, "there are no IOMMU groups", whyIOMMU)
	}
	for _, name := range []string{"iommu", t.flag} {
		if v, _ := h.flag(name); v == "off" {
			fix := grub("")
			fix[0] = "/etc/default/grub: remove " + name + "=off from GRUB_CMDLINE_LINUX"
			return found(Error, "the IOMMU is off: the kernel was started with "+name+"=off", whyIOMMU, fix...)
		}
	}
	if h.kernel.lacks(t.option) && h.kernel.lacks("CONFIG_VIRTIO_IOMMU") {
		return found(Error, "the kernel was built without a driver for the IOMMU", whyIOMMU, "use a kernel with "+t.option+"=y: those of distributions have it")
	}
	const dir = "sys/firmware/acpi/tables"
	switch {
	case h.Root.Exists(dir) && !h.Root.Exists(dir+"/"+t.acpi) && h.Virtual:
		return found(Error, "this virtual machine has no IOMMU", whyIOMMU,
			"QEMU: -machine q35,kernel-irqchip=split -device intel-iommu,intremap=on,caching-mode=on",
			"libvirt: <iommu model='intel'><driver intremap='on' caching_mode='on'/></iommu> and <ioapic driver='qemu'/>",
			"where that cannot be had: modprobe vfio enable_unsafe_noiommu_mode=1, with no protection of memory at all")
	case h.Root.Exists(dir) && !h.Root.Exists(dir+"/"+t.acpi):
		return found(Error, "the firmware shows no IOMMU (no ACPI table "+t.acpi+")", whyIOMMU, "turn on "+t.setting+" in the firmware's setup, and reboot")
	case h.Vendor == "GenuineIntel":
		// The second option leaves only the processor's own graphics out.
		byDefault := h.kernel["CONFIG_INTEL_IOMMU_DEFAULT_ON"] == "y" || h.kernel["CONFIG_INTEL_IOMMU_DEFAULT_ON_INTGPU_OFF"] == "y"
		if v, _ := h.flag(t.flag); !strings.HasPrefix(v, "on") && !byDefault {
			return found(Error, "the IOMMU is there and off: the kernel waits for intel_iommu=on", whyIOMMU, grub("intel_iommu=on iommu=pt")...)
		}
	}
	return found(Error, "there are no IOMMU groups", whyIOMMU, "dmesg | grep -i -e DMAR -e AMD-Vi -e smmu -e iommu")
}

// checkRemapping looks for interrupt remapping on x86, without which a device
// can send any interrupt: VFIO then refuses its IOMMU with EPERM.
func checkRemapping(h *Host) Finding {
	off := ""
	if v, _ := h.flag("intremap"); v == "off" {
		off = "the kernel was started with intremap=off"
	}
	if _, given := h.flag("nointremap"); given {
		off = "the kernel was started with nointremap"
	}
	units, err := h.Root.Names("sys/class/iommu")
	if err != nil {
		return found(Warning, err.Error(), "")
	}
	for _, u := range units {
		// Extended capability register, bit 3: IR (VT-d specification, 11.4.3).
		v, err := strconv.ParseUint(h.Root.Optional(path.Join("sys/class/iommu", u, "intel-iommu/ecap")), 16, 64)
		if err == nil && v&8 == 0 {
			off = u + " cannot remap interrupts"
		}
	}
	if off == "" {
		return fine("nothing speaks against interrupt remapping")
	}
	for _, m := range []string{"vfio_iommu_type1", "iommufd"} {
		if h.Root.Optional("sys/module/"+m+"/parameters/allow_unsafe_interrupts") == "Y" {
			return found(Warning, off+", and "+m+" accepts that", "a device can send any interrupt to the host")
		}
	}
	fix := []string{"QEMU: intremap=on for intel-iommu, and kernel-irqchip=split; real machines: remove the flag, or update the firmware",
		"if devices and drivers are trusted: /etc/modprobe.d/trapeze.conf: options vfio_iommu_type1 allow_unsafe_interrupts=1"}
	return found(Error, off, "VFIO refuses an IOMMU that does not remap interrupts, with EPERM", fix...)
}

func checkModules(h *Host) Finding {
	const why = "VFIO needs vfio-pci, and vfio_iommu_type1 or iommufd; without the latter opening fails with \"no supported IOMMU extensions\""
	type1, fd := h.module(modType1), h.module(modIOMMUFD)
	back := min(type1, fd)
	pci := h.module(modPCI)
	switch {
	case pci == stateThere && back == stateThere:
		var have []string
		for _, m := range []struct {
			module
			state
		}{{modPCI, pci}, {modType1, type1}, {modIOMMUFD, fd}} {
			if m.state == stateThere {
				have = append(have, m.name)
			}
		}
		return fine("the kernel has %s", strings.Join(have, ", "))
	case h.kernel.lacks(modVFIO.option):
		return found(Error, "the kernel was built without VFIO", why, "use a kernel with CONFIG_VFIO=m and CONFIG_VFIO_PCI=m: those of distributions have them")
	case pci == stateMissing || back == stateMissing:
		return found(Error, "modules of VFIO are not installed for Linux "+h.Release, why, "apt install linux-image-$(uname -r) || dnf install kernel-modules")
	}
	var load, missing []string
	if pci != stateThere {
		load, missing = append(load, "modprobe vfio-pci"), append(missing, modPCI.name)
	}
	if back != stateThere {
		load, missing = append(load, "modprobe vfio_iommu_type1"), append(missing, modType1.name)
	}
	load = append(load, "/etc/modules-load.d/trapeze.conf: "+strings.Join(missing, ", ")+", a line each, for the next start")
	return found(Error, strings.Join(missing, " and ")+" not loaded", why, load...)
}

// checkNodes looks at the two nodes that do not belong to a function.
func checkNodes(h *Host) Finding {
	const why = "one of them is needed to map memory for a device: /dev/vfio/vfio with a group's node, /dev/iommu with a function's own"
	var usable, refused []string
	for _, n := range []string{"dev/vfio/vfio", "dev/iommu"} {
		switch err := h.mayOpen(n); {
		case !h.Root.Exists(n):
		case err != nil:
			refused = append(refused, err.Error())
		default:
			usable = append(usable, "/"+n)
		}
	}
	switch {
	case len(usable) == 2:
		return fine("%s can be opened", strings.Join(usable, " and "))
	case len(usable) == 1 && len(refused) > 0:
		return found(Note, usable[0]+" can be opened; "+refused[0], "the other way to a device is closed to this process", sharedNodeFix...)
	case len(usable) == 1 && usable[0] == "/dev/iommu":
		return found(Note, "there is no /dev/vfio/vfio", "programs that know the older interface only get ENOENT or ENOTTY; this one takes /dev/iommu")
	case len(usable) == 1:
		return fine("%s can be opened; there is no /dev/iommu", usable[0])
	case len(refused) > 0:
		return found(Error, strings.Join(refused, "; "), why, sharedNodeFix...)
	case h.Container != "":
		return found(Error, "the container has neither /dev/vfio/vfio nor /dev/iommu", why, "docker run --device /dev/vfio/vfio --device /dev/vfio/GROUP …")
	}
	return found(Error, "there is neither /dev/vfio/vfio nor /dev/iommu", why, "modprobe vfio-pci", "modprobe vfio_iommu_type1")
}

// rules is the file that gives a group of users access to nodes.
const rules = "/etc/udev/rules.d/60-trapeze-nodes.rules: "

// sharedNodeFix gives access to the nodes that belong to no function, and by which
// alone no function can be reached.
var sharedNodeFix = []string{
	rules + `SUBSYSTEM=="misc", KERNEL=="vfio|iommu", GROUP="trapeze", MODE="0660"`,
	"groupadd --system trapeze; usermod -aG trapeze USER",
	"udevadm control --reload; udevadm trigger --subsystem-match=misc",
}

// nodeFix gives access to the nodes of one function, and to no others that VFIO has.
func nodeFix(address string) []string {
	return []string{
		rules + `SUBSYSTEM=="vfio", TEST=="/sys/kernel/iommu_groups/%k/devices/` + address + `", GROUP="trapeze", MODE="0660"`,
		rules + `SUBSYSTEM=="vfio-dev", KERNELS=="` + address + `", GROUP="trapeze", MODE="0660"`,
		rules + `SUBSYSTEM=="misc", KERNEL=="iommu", GROUP="trapeze", MODE="0660"`,
		"groupadd --system trapeze; usermod -aG trapeze USER",
		"udevadm control --reload; udevadm trigger --subsystem-match=vfio --subsystem-match=vfio-dev --subsystem-match=misc",
	}
}

func checkUnsafe(h *Host) Finding {
	var on, fix []string
	if _, given := h.flag("pcie_acs_override"); given {
		on = append(on, "pcie_acs_override is on the kernel's command line: IOMMU groups look smaller than they are")
		fix = append(fix, "/etc/default/grub: remove pcie_acs_override from GRUB_CMDLINE_LINUX")
	}
	if hostpci.UnsafeMode(h.Root) {
		on = append(on, "VFIO's no-IOMMU mode is on")
		fix = append(fix, "echo N > /sys/module/vfio/parameters/enable_unsafe_noiommu_mode")
	}
	for _, m := range []string{"vfio_iommu_type1", "iommufd"} {
		if p := "sys/module/" + m + "/parameters/allow_unsafe_interrupts"; h.Root.Optional(p) == "Y" {
			on = append(on, m+" accepts IOMMUs that do not remap interrupts")
			fix = append(fix, "echo N > /"+p)
		}
	}
	if len(on) > 0 {
		return found(Warning, strings.Join(on, "; "), "a device or its driver can reach what is not theirs; for experiments only", fix...)
	}
	return fine("no option that gives up protection is set")
}

func checkLockdown(h *Host) Finding {
	// Four bytes of attributes, then the variable (Documentation/filesystems/efivarfs.rst).
	boot := h.Root.Optional("sys/firmware/efi/efivars/SecureBoot-8be4df61-93ca-11d2-aa0d-00e098032b8c")
	secure := len(boot) == 5 && boot[4] == 1
	level := ""
	if _, rest, ok := strings.Cut(h.Root.Optional("sys/kernel/security/lockdown"), "["); ok {
		level, _, _ = strings.Cut(rest, "]")
	}
	var s []string
	if secure {
		s = append(s, "Secure Boot is on")
	}
	if level != "" && level != "none" {
		s = append(s, "the kernel is locked down ("+level+")")
	}
	if len(s) == 0 {
		return fine("no Secure Boot, no lockdown")
	}
	return found(Note, strings.Join(s, ", "),
		"mapping BARs through sysfs, /dev/mem and unsigned modules are refused with EPERM; VFIO works, and needs none of them")
}
