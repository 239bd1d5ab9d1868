package hostcmd

import (
	"cmp"
	"context"
	"fmt"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/vfio"
)

// listReport is the JSON output of list.
type listReport struct {
	Functions []listFunction `json:"functions"`
	Emulated  []listEmulated `json:"emulated"`
	Schemes   []string       `json:"schemes" help:"kinds of address that this program can open"`
}

type listFunction struct {
	Address      string        `json:"address"`
	Name         string        `json:"name"`
	Vendor       string        `json:"vendor" text:"-"`
	Device       string        `json:"device" text:"-"`
	Class        string        `json:"class" text:"-"`
	VendorName   string        `json:"vendor_name" text:"-"`
	DeviceName   string        `json:"device_name" text:"-"`
	ClassName    string        `json:"class_name" text:"-"`
	Driver       string        `json:"driver"`
	Override     string        `json:"driver_override"`
	IOMMUGroup   *int          `json:"iommu_group" help:"null for none"`
	GroupMembers []listMember  `json:"group_members"`
	NUMANode     *int          `json:"numa_node" help:"null for none"`
	Link         hostpci.Link  `json:"link" text:"some" help:"0 for none"`
	Netdevs      []string      `json:"netdevs"`
	SRIOV        hostpci.SRIOV `json:"sriov" text:"some"`
	Power        string        `json:"power_state"`
	BARs         []hostpci.BAR `json:"bars" text:"-"`
	AFXDP        []string      `json:"afxdp" help:"addresses of its interfaces as ports of plain frames, which need no binding"`
	Fits         string        `json:"fits" help:"driver of this program for the function, empty for none"`
	Untested     bool          `json:"untested" help:"that driver was never run on one"`
	Wire         string        `json:"wire,omitempty" help:"address of an emulated NIC that has it as its wire"`
	Board        string        `json:"board" help:"its name, if the driver knows boards by their subsystem; else empty"`
	Backends     []string      `json:"backends" help:"by which it can be opened now"`
	InUse        []string      `json:"in_use"`
}

type listMember struct {
	hostpci.Member
	Blocks bool `json:"blocks"`
}

type listEmulated struct {
	Address     string `json:"address"`
	Description string `json:"description"`
}

// emulatedForms are the addresses that work on every machine.
var emulatedForms = []listEmulated{
	{"emu:", "an emulated NIC whose wire ends at itself"},
	{"emu:?wire=mem:NAME", "two of them with the same NAME in one process are wired to each other"},
	{"emu:?wire=udp://HOST:PORT", "frames in UDP datagrams; answers each sender"},
	{"emu:?wire=udp://HOST:PORT&peer=HOST:PORT", "the same, and knows whom to send to first"},
	{"emu:?wire=udp://HOST:PORT&key=FILE", "the same, encrypted; the key in FILE, which is the same at both ends, is from 'openssl rand -hex 32'"},
	{"emu:?wire=shm:PATH", "frames in memory that two processes share; @NAME for PATH makes no file"},
	{"emu:?wire=host:NAME", "the NICs of a user on this host that have the same NAME, any number of them"},
	{"agent:NAME", "a share of a NIC that the agent of this host owns, for programs without rights"},
	{"emu:?wire=memif:PATH&role=server", "a memif, as DPDK and VPP have it; role=client at the other end"},
	{"eth:pci:FUNCTION", "the wire is an Ethernet NIC that a driver of ours fits; short for emu:?wire=pci:FUNCTION"},
	{"eth:INTERFACE", "the wire is an interface of Linux, by AF_XDP"},
	{"eth:vhost-user:PATH", "the wire is a port of a virtual switch, such as DPDK's or VPP's"},
	{"eth:vfio-user:PATH", "the wire is a NIC that another process serves, such as a simulation of its gates"},
	{"emu:?wire=…&loss=0.2", "any of them with a bad wire: loss, duplicate, reorder, corrupt (0 to 1), seed"},
}

func (x *commands) list(_ context.Context, f *rootFlag, _ []string) error {
	// With an error comes the list of those that could be read.
	functions, listErr := hostpci.Functions(f.Root)
	if listErr != nil && len(functions) == 0 {
		return listErr
	}
	hostpci.Fit(functions, drivers)
	r := listReport{Functions: []listFunction{}, Emulated: emulatedForms, Schemes: append([]string{}, vfio.Schemes()...)}
	for _, function := range functions {
		d := describe(function)
		uses, err := hostpci.Uses(f.Root, function)
		if err != nil {
			listErr = cmp.Or(listErr, err)
		}
		for _, u := range uses {
			d.InUse = append(d.InUse, u.String())
		}
		r.Functions = append(r.Functions, d)
	}
	err := cmp.Or(x.Report(r), listErr)
	if err == nil && len(functions) == 0 {
		x.Note("there are no network controllers on the PCI bus")
	}
	return err
}

func describe(f hostpci.Function) listFunction {
	known := func(n int) *int {
		if n < 0 {
			return nil
		}
		return &n
	}
	d := listFunction{
		Address: "pci:" + f.Address,
		Vendor:  fmt.Sprintf("%04x", f.Vendor), Device: fmt.Sprintf("%04x", f.Device), Class: fmt.Sprintf("%06x", f.Class),
		VendorName: f.VendorName, DeviceName: f.DeviceName, ClassName: f.ClassName,
		Driver: f.Driver, Override: f.Override, IOMMUGroup: known(f.IOMMUGroup), NUMANode: known(f.NUMANode),
		Link: f.Link, Netdevs: append([]string{}, f.Netdevs...), SRIOV: f.SRIOV, Power: f.Power.State,
		Fits: f.Fits, Untested: f.Untested, Board: f.Board, Backends: append([]string{}, f.Backends...), InUse: []string{},
		GroupMembers: []listMember{}, Name: f.Title(), BARs: append([]hostpci.BAR{}, f.BARs...), AFXDP: []string{},
	}
	for _, n := range f.Netdevs {
		d.AFXDP = append(d.AFXDP, ethernet.SchemeAFXDP+":"+n)
	}
	if f.Fits != "" && f.Fits != ours {
		d.Wire = "eth:" + d.Address
	}
	for _, m := range f.GroupMembers {
		d.GroupMembers = append(d.GroupMembers, listMember{m, m.Blocks()})
	}
	return d
}
