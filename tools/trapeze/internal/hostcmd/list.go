package hostcmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

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
	Vendor       string        `json:"vendor"`
	Device       string        `json:"device"`
	Class        string        `json:"class"`
	VendorName   string        `json:"vendor_name"`
	DeviceName   string        `json:"device_name"`
	ClassName    string        `json:"class_name"`
	Driver       string        `json:"driver"`
	Override     string        `json:"driver_override"`
	IOMMUGroup   *int          `json:"iommu_group" help:"null for none"`
	GroupMembers []listMember  `json:"group_members"`
	NUMANode     *int          `json:"numa_node" help:"null for none"`
	Link         hostpci.Link  `json:"link" help:"0 for none"`
	Netdevs      []string      `json:"netdevs"`
	SRIOV        hostpci.SRIOV `json:"sriov"`
	Power        string        `json:"power_state"`
	BARs         []hostpci.BAR `json:"bars"`
	AFXDP        []string      `json:"afxdp" help:"addresses of its interfaces as ports of plain frames, which need no binding"`
	Fits         string        `json:"fits" help:"driver of this program for the function, empty for none"`
	Untested     bool          `json:"untested" help:"that driver was never run on one"`
	Board        string        `json:"board" help:"its name, if the driver knows boards by their subsystem; else empty"`
	Backends     []string      `json:"backends" help:"by which it can be opened now"`
	InUse        []string      `json:"in_use"`
	title        string
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
	return cmp.Or(x.Print(r, func(io.Writer) error { return x.printList(r) }), listErr)
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
		GroupMembers: []listMember{}, title: f.Title(), BARs: append([]hostpci.BAR{}, f.BARs...), AFXDP: []string{},
	}
	for _, n := range f.Netdevs {
		d.AFXDP = append(d.AFXDP, ethernet.SchemeAFXDP+":"+n)
	}
	for _, m := range f.GroupMembers {
		d.GroupMembers = append(d.GroupMembers, listMember{m, m.Blocks()})
	}
	return d
}

func (x *commands) printList(r listReport) error {
	on, off := x.Emphasis()
	if len(r.Functions) == 0 {
		fmt.Fprintf(x.Stdout, "%sno network controllers on the PCI bus%s\n", on, off)
	} else {
		fmt.Fprintf(x.Stdout, "%snetwork controllers on the PCI bus%s\n", on, off)
	}
	for _, f := range r.Functions {
		fmt.Fprintf(x.Stdout, "  %s%s%s  %s\n", on, f.Address, off, f.title)
		w := tabwriter.NewWriter(x.Stdout, 0, 8, 2, ' ', 0)
		for _, line := range details(f) {
			fmt.Fprintf(w, "      %s\t%s\n", line[0], line[1])
		}
		if err := w.Flush(); err != nil {
			return err
		}
	}
	if len(r.Functions) > 0 && !slices.Contains(r.Schemes, "pci") {
		fmt.Fprintln(x.Stdout, "  (this version of trapeze cannot open them)")
	}
	fmt.Fprintf(x.Stdout, "\n%semulated NICs%s\n", on, off)
	w := tabwriter.NewWriter(x.Stdout, 0, 8, 2, ' ', 0)
	for _, e := range r.Emulated {
		fmt.Fprintf(w, "  %s\t%s\n", e.Address, e.Description)
	}
	return w.Flush()
}

// details are the lines about a function, with their headings.
func details(f listFunction) [][2]string {
	lines := [][2]string{{"driver", cmp.Or(f.Driver, "none")}}
	if f.Override != "" && f.Override != f.Driver {
		lines[0][1] += ", only " + f.Override + " may have it"
	}
	add := func(heading, format string, a ...any) {
		lines = append(lines, [2]string{heading, fmt.Sprintf(format, a...)})
	}
	switch {
	case f.Untested:
		add("made for", "%s, which was never run on this model", f.Fits)
	case f.Fits != "":
		add("made for", "%s", f.Fits)
	}
	if f.Board != "" {
		add("board", "%s", f.Board)
	}
	if f.Fits != "" && f.Fits != ours {
		add("as a wire", "eth:%s", f.Address)
	}
	if len(f.Backends) > 0 {
		add("opens by", "%s", strings.Join(f.Backends, ", "))
	}
	group := "none: no IOMMU guards it"
	if f.IOMMUGroup != nil {
		group = fmt.Sprint(*f.IOMMUGroup)
		var others []string
		for _, m := range f.GroupMembers {
			s := m.Address + " (" + cmp.Or(m.Driver, "no driver")
			if m.Bridge {
				s += ", a bridge"
			}
			others = append(others, s+")")
		}
		if len(others) > 0 {
			group += ", with " + strings.Join(others, ", ")
		}
	}
	add("IOMMU group", "%s", group)
	if f.NUMANode != nil {
		add("NUMA node", "%d", *f.NUMANode)
	}
	if f.Link.Width > 0 {
		add("link", "x%d at %g GT/s, at most x%d at %g GT/s", f.Link.Width, f.Link.Speed, f.Link.MaxWidth, f.Link.MaxSpeed)
	}
	if len(f.Netdevs) > 0 {
		add("interfaces", "%s", strings.Join(f.Netdevs, ", "))
		add("plain frames", "%s, while %s keeps it", strings.Join(f.AFXDP, ", "), f.Driver)
	}
	if f.SRIOV.TotalVFs > 0 {
		add("SR-IOV", "%d of %d virtual functions", f.SRIOV.VFs, f.SRIOV.TotalVFs)
	}
	if f.SRIOV.Physical != "" {
		add("SR-IOV", "virtual function of %s", f.SRIOV.Physical)
	}
	if f.Power != "" && f.Power != "D0" && f.Power != "unknown" {
		add("power", "%s", f.Power)
	}
	for _, u := range f.InUse {
		add("in use", "%s", u)
	}
	return lines
}
