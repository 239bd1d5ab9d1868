// Package doctor says whether this host could run a NIC from user space through
// VFIO, what stands in the way, and what to do about it. It reads files, and
// asks an agent that runs. It opens no device and changes nothing.
package doctor

import (
	"context"
	"encoding/binary"
	"slices"

	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/vfio"
)

// Severity of a finding.
type Severity int

const (
	// OK: as it should be.
	OK Severity = iota
	// Note: good to know.
	Note
	// Warning: a driver starts, and may run into trouble later.
	Warning
	// Error: a driver cannot start.
	Error
)

func (s Severity) String() string {
	switch s {
	case OK:
		return "ok"
	case Note:
		return "note"
	case Warning:
		return "warning"
	}
	return "error"
}

// MarshalText writes the word.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is a result of a check.
type Finding struct {
	// Check is the name of the check that found it.
	Check    string   `json:"check"`
	Severity Severity `json:"severity" help:"ok, note, warning, error"`
	// What is the case, Why that matters, and Fix: commands, or lines of files
	// with the file before them. Fix is empty if there is nothing to do.
	What string   `json:"what"`
	Why  string   `json:"why,omitempty"`
	Fix  []string `json:"fix,omitempty"`
}

// Check looks at one thing.
type Check struct {
	// Name stands in findings.
	Name string
	// Traps are the numbers of the known traps that it finds, as the list of the tests has them.
	Traps []int
	// PerFunction says that it looks at a function, and not at the host.
	PerFunction bool
	// Run does it. The finding's name may be left empty.
	Run func(*Host) Finding
}

// Options say what for.
type Options struct {
	// Memory is the number of bytes that a driver will map for DMA; 0 if that is not known.
	Memory uint64
	// Drivers of ours, to say which functions they fit.
	Drivers []hostpci.Driver
}

// Report is all that was found.
type Report struct {
	// CouldStart says that a driver could start, on one of the functions, or that what is around them is as it must be.
	CouldStart bool `json:"could_start"`
	// Kernel is its release.
	Kernel string `json:"kernel,omitempty"`
	// Host has findings that concern every function.
	Host      []Finding        `json:"host"`
	Functions []FunctionReport `json:"functions"`
}

// FunctionReport has the findings about one function.
type FunctionReport struct {
	Address    string    `json:"address"`
	Name       string    `json:"name"`
	Driver     string    `json:"driver"`
	CouldStart bool      `json:"could_start"`
	Findings   []Finding `json:"findings"`
}

// Run makes every check on the host below root, for the function at address; or,
// if that is empty, for each network controller and each function that VFIO or
// one of our drivers is made for or has. It fails with vfio.ErrBadAddress,
// hostpci.ErrNoFunction, the error of ctx, and if sysfs cannot be read. Trouble
// with a host is no error but a finding.
func Run(ctx context.Context, root hostpci.Root, address string, o Options) (Report, error) {
	// With an error comes the list of those that could be read.
	functions, unread := candidates(root, address, o.Drivers)
	if unread != nil && len(functions) == 0 {
		return Report{}, unread
	}
	h, err := newHost(root, o)
	if err != nil {
		return Report{}, &vfio.Error{Op: "examine host below", Device: string(root), Err: err}
	}
	r := Report{Kernel: h.Release, Functions: []FunctionReport{}}
	for _, c := range Checks() {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		if !c.PerFunction {
			r.Host = append(r.Host, named(c.Name, c.Run(h)))
		}
	}
	if unread != nil {
		r.Host = append(r.Host, named("functions", found(Warning, unread.Error(), "functions that cannot be read are left out")))
	}
	if len(functions) == 0 {
		r.Host = append(r.Host, named("functions", found(Error, "there is no network controller on the PCI bus",
			"a driver needs a function to drive; the emulated NIC, emu:, needs none", "trapeze demo")))
	}
	for _, f := range functions {
		if err := ctx.Err(); err != nil {
			return r, err
		}
		r.Functions = append(r.Functions, h.examine(f))
	}
	healthy := worst(r.Host) < Error
	for i := range r.Functions {
		f := &r.Functions[i]
		f.CouldStart = healthy && worst(f.Findings) < Error
		r.CouldStart = r.CouldStart || f.CouldStart
	}
	return r, nil
}

// candidates are the functions to look at. With an error comes the list of
// those that could be read.
func candidates(root hostpci.Root, address string, drivers []hostpci.Driver) ([]hostpci.Function, error) {
	if address != "" {
		f, err := hostpci.Lookup(root, address)
		if err != nil {
			return nil, err
		}
		list := []hostpci.Function{f}
		hostpci.Fit(list, drivers)
		return list, nil
	}
	list, err := hostpci.AllFunctions(root)
	hostpci.Fit(list, drivers)
	return slices.DeleteFunc(list, func(f hostpci.Function) bool {
		return f.Class>>16 != hostpci.ClassNetwork && f.Fits == "" && !hostpci.IsVFIO(f.Driver)
	}), err
}

// examine makes the checks of one function.
func (h *Host) examine(f hostpci.Function) FunctionReport {
	of := *h
	of.Function = &f
	of.config, of.configErr = hostpci.Config(h.Root, f.Address)
	if len(of.config) >= 4 && f.SRIOV.Physical != "" && !gone(of.config) {
		// Virtual functions have no IDs there (PCIe base specification, 9.3.4.1);
		// the kernel knows them.
		binary.LittleEndian.PutUint16(of.config, f.Vendor)
		binary.LittleEndian.PutUint16(of.config[2:], f.Device)
	}
	r := FunctionReport{Address: f.Address, Driver: f.Driver, Name: f.Title()}
	if f.Fits != "" {
		r.Name += ", made for " + f.Fits
	}
	for _, c := range Checks() {
		if c.PerFunction {
			r.Findings = append(r.Findings, named(c.Name, c.Run(&of)))
		}
	}
	return r
}

// worst is the highest severity of findings.
func worst(list []Finding) Severity {
	s := OK
	for _, f := range list {
		s = max(s, f.Severity)
	}
	return s
}

// Checks lists all checks, in the order in which they are made.
func Checks() []Check {
	return slices.Concat(hostChecks, memoryChecks, netmemChecks, functionChecks, hardwareChecks)
}
