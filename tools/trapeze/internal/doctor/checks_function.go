package doctor

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
)

var functionChecks = []Check{
	{Name: "answers", Traps: []int{8}, PerFunction: true, Run: checkAnswers},
	{Name: "made-for", PerFunction: true, Run: checkFit},
	{Name: "sr-iov", Traps: []int{21}, PerFunction: true, Run: checkSRIOV},
	{Name: "in-use", PerFunction: true, Run: checkInUse},
	{Name: "iommu-group", Traps: []int{12}, PerFunction: true, Run: checkGroup},
	{Name: "group-viable", Traps: []int{1}, PerFunction: true, Run: checkViable},
	{Name: "acs", Traps: []int{10}, PerFunction: true, Run: checkACS},
	{Name: "binding", Traps: []int{12, 14}, PerFunction: true, Run: checkBinding},
	{Name: "node", Traps: []int{14}, PerFunction: true, Run: checkNode},
	{Name: "holder", Traps: []int{13}, PerFunction: true, Run: checkHolder},
	{Name: "stale-holder", Traps: []int{19, 25}, PerFunction: true, Run: checkStale},
	{Name: "vf-token", Traps: []int{20}, PerFunction: true, Run: checkToken},
}

// device is a path of the function's in sysfs, as a shell takes it.
func (h *Host) device(name string) string {
	return "/sys/bus/pci/devices/" + path.Join(h.Function.Address, name)
}

func checkAnswers(h *Host) Finding {
	const why = "a device that is gone or without power reads as all ones; mapped registers then give 0xffffffff or SIGBUS"
	if h.configErr != nil {
		return found(Warning, "its configuration space cannot be read: "+h.configErr.Error(), why)
	}
	if len(h.config) > 0 && gone(h.config) {
		return found(Error, "it does not answer: configuration space reads as all ones (power state "+h.Function.Power.State+")", why,
			"echo on > "+h.device("power/control"), "echo 1 > "+h.device("remove")+"; echo 1 > /sys/bus/pci/rescan")
	}
	return fine("it answers")
}

// gone says whether configuration space reads as all ones. Its first bytes alone
// do not tell: those of virtual functions always read so.
func gone(config []byte) bool {
	return !slices.ContainsFunc(config[:min(len(config), 64)], func(b byte) bool { return b != 0xff })
}

func checkFit(h *Host) Finding {
	f := h.Function
	if len(h.Drivers) == 0 {
		return fine("%04x:%04x", f.Vendor, f.Device)
	}
	switch {
	case f.Untested:
		return found(Note, fmt.Sprintf("%s drives %04x:%04x, but was never run on one%s%s", f.Fits, f.Vendor, f.Device, board(f), asWire(f)),
			"it is written after what is public about the model; tell us how it goes")
	case f.Fits != "":
		return fine("%s drives %04x:%04x%s%s", f.Fits, f.Vendor, f.Device, board(f), asWire(f))
	}
	return found(Warning, fmt.Sprintf("%04x:%04x is no device that a driver of this program is made for", f.Vendor, f.Device),
		"another program may drive it through VFIO"+asFrames(f))
}

// board says which board it is, if the driver knows.
func board(f *hostpci.Function) string {
	if f.Board == "" {
		return ""
	}
	return "; it is " + f.Board
}

func checkSRIOV(h *Host) Finding {
	f := h.Function
	switch {
	case f.SRIOV.VFs == 0:
		return fine("no virtual functions are enabled")
	case hostpci.IsVFIO(f.Driver):
		return found(Note, fmt.Sprintf("it has %d virtual functions, and belongs to VFIO", f.SRIOV.VFs), "a program that opens one of those has to give its token")
	}
	what := fmt.Sprintf("it has %d virtual functions", f.SRIOV.VFs)
	const why = "VFIO refuses a function with SR-IOV enabled, with EBUSY"
	if slices.ContainsFunc(f.VirtualFunctions(h.Root), func(address string) bool { return hostpci.InUse(h.Root, address) }) {
		return found(Error, what+", and the host uses some of them", why, "bind a virtual function that is not in use")
	}
	return found(Error, what, why, "echo 0 > "+h.device("sriov_numvfs"), "or bind a virtual function instead")
}

func checkInUse(h *Host) Finding {
	uses, err := hostpci.Uses(h.Root, *h.Function)
	if err != nil {
		return found(Warning, err.Error(), "binding it may take away what the host needs")
	}
	if len(uses) == 0 {
		return fine("the host does not use it")
	}
	var s, fix []string
	for _, u := range uses {
		s = append(s, u.String())
		fix = append(fix, endOf(u))
	}
	if slices.ContainsFunc(uses, hostpci.Use.CutsOff) {
		// No command that the user may run over this very NIC.
		return found(Warning, strings.Join(s, "; "), "this host is reached over it: who takes it away from the network loses the host. trapeze bind refuses; "+
			"use another NIC, or give this host another way first")
	}
	if bindable(h.Function) {
		fix = append(fix, "or: trapeze bind --force "+h.Function.Address)
	}
	return found(Warning, strings.Join(s, "; "), "binding it takes that away: trapeze bind refuses", slices.Compact(fix)...)
}

// endOf returns the command that ends a use.
func endOf(u hostpci.Use) string {
	last := u.Detail[strings.LastIndexByte(u.Detail, ' ')+1:]
	switch u.Kind {
	case hostpci.UseEnslaved:
		return "ip link set dev " + u.Device + " nomaster"
	case hostpci.UseUpper:
		return "ip link delete " + last
	case hostpci.UseMount:
		return "umount what is there, and log out of iSCSI and NVMe over it"
	case hostpci.UseSwap:
		return "swapoff /dev/" + u.Device
	case hostpci.UseHidden:
		return "lsns -t net shows the network namespaces: ip link in each finds it"
	}
	return "ip address flush dev " + u.Device
}

func checkGroup(h *Host) Finding {
	f := h.Function
	switch {
	case f.IOMMUGroup < 0 && hostpci.UnsafeMode(h.Root):
		return found(Warning, "no IOMMU guards it", "bound to VFIO it can read and write all memory; the finding iommu says how to turn the IOMMU on")
	case f.IOMMUGroup < 0:
		return found(Error, "it is in no IOMMU group", "the IOMMU is off, or does not cover it: binding fails with EINVAL; the finding iommu says how to turn it on")
	case f.Unguarded && !h.Process.can(capSysRawIO):
		return found(Error, "no IOMMU guards it, and this process lacks CAP_SYS_RAWIO", "opening its group fails with EPERM", "sudo trapeze info --device 'pci:"+f.Address+"?backend=noiommu'")
	case f.Unguarded:
		return found(Warning, "no IOMMU guards it", "it can read and write all memory; the address must say so: pci:"+f.Address+"?backend=noiommu")
	}
	return fine("IOMMU group %d", f.IOMMUGroup)
}

func checkViable(h *Host) Finding {
	blockers := h.Function.Blockers()
	if len(blockers) == 0 {
		return fine("no other function keeps VFIO from its group")
	}
	refused := hostpci.InUse(h.Root, h.Function.Address)
	var s, fix []string
	for _, m := range blockers {
		if hostpci.InUse(h.Root, m.Address) {
			refused = true
			s = append(s, m.Address+" ("+m.Driver+", in use)")
			continue
		}
		s = append(s, m.Address+" ("+m.Driver+")")
		fix = append(fix, "or free it: echo "+m.Address+" > /sys/bus/pci/devices/"+m.Address+"/driver/unbind")
	}
	why := "VFIO hands out groups as a whole: opening fails with EPERM or EBUSY while another driver has a member"
	if refused {
		why += "; trapeze bind refuses members that the host uses: use a NIC of another group, or end what uses them"
		fix = nil
	} else if bindable(h.Function) {
		fix = append([]string{"trapeze bind --group " + h.Function.Address}, fix...)
	}
	return found(Error, fmt.Sprintf("IOMMU group %d is not viable: %s", h.Function.IOMMUGroup, strings.Join(s, ", ")), why, fix...)
}

// extendedACS is the capability of access control services (PCIe base
// specification, 7.7.11; linux/pci_regs.h).
const extendedACS = 0x0d

// checkACS explains groups that hold more than the functions of one device.
func checkACS(h *Host) Finding {
	f := h.Function
	slot, _, _ := strings.Cut(f.Address, ".")
	var strangers []string
	for _, m := range f.GroupMembers {
		if !m.Bridge && !strings.HasPrefix(m.Address, slot+".") {
			strangers = append(strangers, m.Address)
		}
	}
	if len(strangers) == 0 {
		return fine("it shares its group with no other device")
	}
	why := "devices that could reach each other behind the IOMMU's back are one group"
	var without []string
	for _, b := range f.Bridges {
		config, err := hostpci.Config(h.Root, b)
		switch {
		case err != nil || len(config) <= 256:
			why += "; configuration space tells which bridge lacks ACS, and is for root to read"
		case !hasExtended(config, extendedACS):
			without = append(without, b)
		}
	}
	if len(without) > 0 {
		why += "; no ACS on " + strings.Join(slices.Compact(without), ", ")
	}
	return found(Warning, fmt.Sprintf("it shares IOMMU group %d with %s", f.IOMMUGroup, strings.Join(strangers, ", ")), why,
		"put the card into another slot, turn on ACS in the firmware's setup, or use all of them together; pcie_acs_override only hides it")
}

// hasExtended walks the chain of extended capabilities, each of which is four
// bytes at least, so that a loop ends.
func hasExtended(config []byte, id uint16) bool {
	at := 256
	for range (4096 - 256) / 4 {
		if at < 256 || at+4 > len(config) {
			return false
		}
		v := binary.LittleEndian.Uint32(config[at:])
		if uint16(v) == id {
			return true
		}
		at = int(v >> 20 &^ 3)
	}
	return false
}

func checkBinding(h *Host) Finding {
	f := h.Function
	if hostpci.IsVFIO(f.Driver) {
		return fine("bound to %s", f.Driver)
	}
	what := "no driver has it"
	if f.Driver != "" {
		what = f.Driver + " has it"
	}
	switch {
	case !bindable(f):
		return found(Error, fmt.Sprintf("%s, and it is no network controller (PCI class %06x)", what, f.Class), "Linux keeps it; trapeze list shows the NICs of this host")
	case len(h.Drivers) > 0 && f.Fits == "" && len(f.Netdevs) > 0:
		return found(Error, what, "no driver of this program is for it"+asFrames(f), "eth:"+f.Netdevs[0]+" in place of eth:pci:"+f.Address)
	}
	why := "VFIO must have it before a process can" + asFrames(f)
	if hostpci.InUse(h.Root, f.Address) {
		return found(Error, what, why+"; trapeze bind refuses while the host uses it: the finding in-use says how it does")
	}
	return found(Error, what, why, "trapeze bind "+f.Address)
}

// bindable reports whether VFIO may be offered a function: Linux keeps all but NICs.
func bindable(f *hostpci.Function) bool { return f.Class>>16 == hostpci.ClassNetwork || f.Fits != "" }

// asWire says by which address an Ethernet controller is the wire of a NIC of ours.
func asWire(f *hostpci.Function) string {
	if f.Class>>8 != hostpci.ClassNetwork<<8 {
		return ""
	}
	return ": eth:pci:" + f.Address
}

// asFrames says how a function is used that the kernel's driver has, empty if none has.
func asFrames(f *hostpci.Function) string {
	var addresses, wires []string
	for _, n := range f.Netdevs {
		addresses, wires = append(addresses, "afxdp:"+n), append(wires, "eth:"+n)
	}
	if len(addresses) == 0 {
		return ""
	}
	return fmt.Sprintf("; for plain frames %s may keep it: the address is %s, as the wire of a NIC %s",
		f.Driver, strings.Join(addresses, " or "), strings.Join(wires, " or "))
}

func checkNode(h *Host) Finding {
	f := h.Function
	if !hostpci.IsVFIO(f.Driver) {
		return fine("its nodes appear when it is bound")
	}
	nodes, err := f.Nodes(h.Root)
	if err != nil {
		return found(Error, err.Error(), "")
	}
	if len(nodes) == 0 {
		where := "/" + cmp.Or(f.GroupNode(), "dev/vfio")
		if h.Container != "" {
			return found(Error, where+" is not in this container", "opening it fails with ENOENT", "docker run --device /dev/vfio/vfio --device "+where+" …")
		}
		return found(Error, where+" is missing", "opening it fails with ENOENT", "udevadm trigger --subsystem-match=vfio; udevadm settle", "trapeze unbind "+f.Address+"; trapeze bind "+f.Address)
	}
	var refused []string
	for _, n := range nodes {
		// Each goes with one that maps memory.
		other := "dev/vfio/vfio"
		if strings.HasPrefix(n, "dev/vfio/devices/") {
			other = "dev/iommu"
		}
		err := h.mayOpen(n)
		if err == nil {
			err = h.mayOpen(other)
		}
		if err == nil {
			return fine("/%s and /%s can be opened", n, other)
		}
		refused = append(refused, err.Error())
	}
	return found(Error, strings.Join(refused, "; "), "opening it fails with EACCES", nodeFix(f.Address)...)
}

// holders lists who has the function open.
func (h *Host) holders() ([]hostpci.Holder, error) {
	nodes, err := h.Function.Nodes(h.Root)
	if err != nil {
		return nil, err
	}
	return hostpci.Holders(h.Root, nodes)
}

// stale says whether a process will not let go on its own.
func stale(p hostpci.Holder) bool { return strings.Contains("DTtZX", p.State) && p.State != "" }

func checkHolder(h *Host) Finding {
	list, err := h.holders()
	if err != nil {
		return found(Warning, err.Error(), "")
	}
	var s, fix []string
	for _, p := range list {
		s = append(s, p.String())
		fix = append(fix, fmt.Sprintf("kill %d", p.PID))
	}
	if len(s) > 0 {
		return found(Error, strings.Join(s, ", ")+" has it open", "only one process can: opening it fails with EBUSY", fix...)
	}
	if h.Process.uid != 0 {
		return found(OK, "no program has it open, as far as this user sees", "")
	}
	return fine("no program has it open")
}

func checkStale(h *Host) Finding {
	list, err := h.holders()
	if err != nil {
		return found(Warning, err.Error(), "")
	}
	for _, p := range list {
		if stale(p) {
			return found(Warning, fmt.Sprintf("%s has it open and is in state %s", p, p.State),
				"unbinding and removal wait for it: the kernel repeats its request for the device until the process lets go", fmt.Sprintf("kill -9 %d", p.PID), "if that does not help: reboot")
		}
	}
	return fine("no stuck process has it open")
}

func checkToken(h *Host) Finding {
	physical := h.Function.SRIOV.Physical
	if physical == "" {
		return fine("it is no virtual function")
	}
	driver, err := hostpci.DriverOf(h.Root, physical)
	if err != nil {
		return found(Warning, err.Error(), "")
	}
	if !hostpci.IsVFIO(driver) {
		return fine("it is a virtual function of %s, which belongs to %s", physical, cmp.Or(driver, "none"))
	}
	return found(Warning, "it is a virtual function of "+physical+", which belongs to VFIO too", "opening it without the token that the driver of that one has set fails with EACCES",
		"pci:"+h.Function.Address+"?vf_token=UUID")
}
