package doctor

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"os"
	"path"
	"strconv"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/units"
	"github.com/trapeze-nic/trapeze/vfio"
)

var hardwareChecks = []Check{
	{Name: "power", Traps: []int{8}, PerFunction: true, Run: checkPower},
	{Name: "bus-master", Traps: []int{7}, PerFunction: true, Run: checkBusMaster},
	{Name: "bars", Traps: []int{6}, PerFunction: true, Run: checkBARs},
	{Name: "interrupts", Traps: []int{9, 24}, PerFunction: true, Run: checkInterrupts},
	{Name: "iova", Traps: []int{4}, PerFunction: true, Run: checkIOVA},
	{Name: "dma-mask", Traps: []int{18}, PerFunction: true, Run: checkDMAMask},
	{Name: "reset", Traps: []int{16}, PerFunction: true, Run: checkReset},
}

func checkPower(h *Host) Finding {
	p := h.Function.Power
	const awake = "/etc/modprobe.d/trapeze.conf: options vfio-pci disable_idle_d3=1"
	switch {
	case p.Runtime == "error":
		return found(Warning, "its power management is in the state error", "it may not wake up when it is opened", "echo on > "+h.device("power/control"), awake)
	case p.State == "D3cold":
		return found(Warning, "it has no power (D3cold)", "opening it wakes it; a device that then says \"Unable to change power state from D3cold to D0\" does not",
			"echo 0 > "+h.device("d3cold_allowed"), "echo on > "+h.device("power/control"), awake)
	case p.State == "D3hot" && hostpci.IsVFIO(h.Function.Driver):
		return found(Note, "it sleeps (D3hot)", "VFIO puts idle functions to sleep, and opening wakes them; some devices do not bear that", awake)
	case p.State == "D3hot":
		return found(Note, "it sleeps (D3hot)", "opening it wakes it", "echo on > "+h.device("power/control"))
	}
	return fine("power state %s", cmp.Or(p.State, "unknown"))
}

func checkBusMaster(h *Host) Finding {
	if len(h.config) < 6 {
		return found(Note, "configuration space cannot be read", "")
	}
	on := binary.LittleEndian.Uint16(h.config[vfio.ConfigCommand:])&vfio.CommandBusMaster != 0
	list, err := h.holders()
	switch {
	case on:
		return fine("bus mastering is on")
	case err != nil:
		return found(Note, err.Error(), "")
	case len(list) == 0:
		return fine("bus mastering is off, as no program has it open: a driver turns it on")
	}
	return found(Warning, fmt.Sprintf("%s has it open, and bus mastering is off", list[0]),
		"the device then does no DMA, and reports no error either: VFIO turns it off when a device is opened, and its driver has to turn it on",
		fmt.Sprintf("in the driver: set bit 2 of the command register (setpci -s %s COMMAND=6:6 from outside)", h.Function.Address))
}

func checkBARs(h *Host) Finding {
	page := uint64(os.Getpagesize())
	var s []string
	memory := 0
	for _, b := range h.Function.BARs {
		if b.IO {
			continue
		}
		memory++
		if b.Size < page || b.Address%page != 0 {
			s = append(s, fmt.Sprintf("BAR%d (%s) is smaller than a page of %s or not aligned to one", b.Index, units.Size(b.Size), units.Size(page)))
		}
	}
	if memory == 0 {
		return found(Warning, "the kernel has given addresses to none of its memory BARs", "there is nothing to map; the bridge above may have no room", grub("pci=realloc")...)
	}
	if c, err := vfio.ParseConfig(h.config); err == nil && c.MSIX != nil {
		const entry = 16 // bytes
		start := uint64(c.MSIX.TableOffset)
		end := start + uint64(c.MSIX.Vectors)*entry
		if start%page != 0 || end%page != 0 {
			s = append(s, fmt.Sprintf("the MSI-X table at %#x of BAR%d does not fill its pages", start, c.MSIX.TableBAR))
		}
	}
	if len(s) > 0 {
		return found(Note, strings.Join(s, "; "), "mmap may fail there with EINVAL: older kernels leave such pages out, and registers are then read and written by system calls")
	}
	return fine("%d memory BARs can be mapped", memory)
}

func checkInterrupts(h *Host) Finding {
	const why = "without MSI or MSI-X there is one interrupt line at most, shared, which VFIO masks after each interrupt; drivers poll instead"
	if h.hasOption("pci", "nomsi") {
		fix := grub("")
		fix[0] = "/etc/default/grub: remove pci=nomsi from GRUB_CMDLINE_LINUX"
		return found(Warning, "MSI is off: the kernel was started with pci=nomsi", why, fix...)
	}
	for _, a := range append(h.Function.Bridges, h.Function.Address) {
		if hostpci.Attribute(h.Root, a, "msi_bus") == "0" {
			return found(Warning, "MSI is switched off for "+a, why, "echo 1 > /sys/bus/pci/devices/"+a+"/msi_bus")
		}
	}
	// Without privileges only the header can be read, and the chain breaks off.
	c, err := vfio.ParseConfig(h.config)
	if err != nil || len(h.config) < vfio.ConfigSize {
		return fine("nothing speaks against MSI (as root, this sees which interrupts it has)")
	}
	_, msi := c.Find(vfio.CapabilityMSI)
	switch {
	case c.MSIX != nil && !h.since(6, 5):
		return found(Note, fmt.Sprintf("%d MSI-X vectors, whose number cannot grow", c.MSIX.Vectors), "before Linux 6.5, vectors that are enabled later need all of them to be set up again",
			"in the driver: enable all vectors at once, and again after each reset")
	case c.MSIX != nil:
		return fine("%d MSI-X vectors", c.MSIX.Vectors)
	case msi:
		return fine("MSI")
	case c.InterruptPin == 0:
		return found(Note, "it has no interrupt at all", "a driver can only poll")
	}
	return found(Note, fmt.Sprintf("its only interrupt is INTx (pin %d, IRQ %s)", c.InterruptPin, cmp.Or(h.attribute("irq"), "unknown")), why)
}

// checkIOVA tells which bus addresses cannot be used.
func checkIOVA(h *Host) Finding {
	f := h.Function
	if f.IOMMUGroup < 0 || f.Unguarded {
		return fine("without an IOMMU, bus addresses are physical ones")
	}
	var holes []string
	for line := range strings.Lines(h.Root.Optional(fmt.Sprintf("sys/kernel/iommu_groups/%d/reserved_regions", f.IOMMUGroup))) {
		if w := strings.Fields(line); len(w) == 3 {
			holes = append(holes, fmt.Sprintf("%s to %s (%s)", short(w[0]), short(w[1]), w[2]))
		}
	}
	unit, err := h.Root.Link(path.Join("sys/bus/pci/devices", f.Address, "iommu"))
	if err != nil {
		return found(Warning, err.Error(), "")
	}
	reserved := "reserved: " + strings.Join(holes, ", ")
	if len(holes) == 0 {
		reserved = "nothing is reserved"
	}
	// Capability register, bits 21 to 16: MGAW, one less than the width (VT-d
	// specification, 11.4.2).
	if v, err := strconv.ParseUint(h.Root.Optional(path.Join("sys/class/iommu", unit, "intel-iommu/cap")), 16, 64); err == nil && unit != "" {
		if width := v>>16&0x3f + 1; width < 48 {
			return found(Note, fmt.Sprintf("the IOMMU translates %d bits; %s", width, reserved),
				"bus addresses that equal virtual ones do not fit; mapping fails with EINVAL", "in the driver: take bus addresses from the ranges that VFIO reports (this program does)")
		}
	}
	return fine("%s", reserved)
}

// short leaves out leading zeros.
func short(hex string) string {
	v, err := strconv.ParseUint(hex, 0, 64)
	if err != nil {
		return hex
	}
	return fmt.Sprintf("%#x", v)
}

// checkDMAMask tells of devices that cannot address all memory. VFIO does not
// know: with it the file shows the default.
func checkDMAMask(h *Host) Finding {
	if hostpci.IsVFIO(h.Function.Driver) || h.Function.Driver == "" {
		return fine("only a driver knows how many address bits it has")
	}
	bits, err := strconv.Atoi(h.attribute("dma_mask_bits"))
	if err != nil {
		return fine("the kernel does not tell how many address bits it has")
	}
	if bits < 64 {
		return found(Note, fmt.Sprintf("%s uses %d address bits", h.Function.Driver, bits), "VFIO does not enforce that: bus addresses beyond are cut off by the device",
			fmt.Sprintf("in the driver: keep bus addresses below 2^%d", bits))
	}
	return fine("64 address bits")
}

// checkReset tells how the function can be reset, and who else is reset then.
func checkReset(h *Host) Finding {
	f := h.Function
	methods := strings.Fields(h.attribute("reset_method"))
	if len(methods) == 0 {
		return found(Note, "it cannot be reset on its own", "what a driver leaves behind stays, unless the whole bus is reset, which takes owning everything on it")
	}
	if methods[0] != "bus" && methods[0] != "slot" {
		return fine("it can be reset: %s", strings.Join(methods, ", "))
	}
	bus := f.Address[:strings.LastIndex(f.Address, ":")+1]
	names, err := h.Root.Names("sys/bus/pci/devices")
	if err != nil {
		return found(Warning, err.Error(), "")
	}
	var others []string
	for _, n := range names {
		if n == f.Address || !strings.HasPrefix(n, bus) {
			continue
		}
		driver, err := hostpci.DriverOf(h.Root, n)
		if err != nil || driver != "" && !hostpci.IsVFIO(driver) {
			others = append(others, n+" ("+cmp.Or(driver, "unknown")+")")
		}
	}
	if len(others) == 0 {
		return fine("it can be reset with its bus, on which it is alone")
	}
	return found(Note, "it can be reset only with its bus, on which others are: "+strings.Join(others, ", "),
		"such a hot reset fails with EINVAL or EPERM unless all of them are bound to vfio-pci and held, which Trapeze does not do: "+
			"what a driver leaves behind stays")
}
