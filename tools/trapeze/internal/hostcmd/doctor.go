package hostcmd

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/doctor"
)

// NotReadyError says that no driver could start. What is wrong has been printed.
type NotReadyError struct {
	// What could not be.
	What string
	// Errors is the number of findings that stand in the way.
	Errors int
}

func (e *NotReadyError) Error() string {
	return fmt.Sprintf("%s: %d findings stand in the way", e.What, e.Errors)
}

type doctorFlags struct {
	rootFlag
	Memory     uint64 `flag:"memory" help:"how many bytes a driver will map for DMA"`
	All        bool   `flag:"all" help:"print also what is as it should be"`
	Fabric     bool   `flag:"fabric" help:"look at what programs of libfabric need to find the provider"`
	Kubernetes bool   `flag:"kubernetes" help:"look at what this node needs to give NICs to pods"`
}

func (x *commands) doctor(ctx context.Context, f *doctorFlags, args []string) (err error) {
	address := ""
	if len(args) > 0 {
		address = args[0]
	}
	var r doctor.Report
	what := "a driver could not start on " + cmp.Or(address, "any function")
	switch {
	case f.Fabric && f.Kubernetes:
		return option.Errorf("--fabric and --kubernetes: use one of them")
	case (f.Fabric || f.Kubernetes) && address != "":
		return option.Errorf("--fabric and --kubernetes look at no function of yours: leave out %s", address)
	case f.Fabric:
		r, what = doctor.Fabric(f.Root, os.Getenv), "programs do not find the provider of libfabric"
	case f.Kubernetes:
		r, what = doctor.Kubernetes(ctx, f.Root, drivers), "pods of this node cannot get NICs"
	default:
		if r, err = doctor.Run(ctx, f.Root, address, doctor.Options{Memory: f.Memory, Drivers: drivers}); err != nil {
			return marked(err)
		}
	}
	err = x.Print(r, func(io.Writer) error { return x.printDoctor(r, f.All) })
	if err != nil || r.CouldStart {
		return err
	}
	n := count(r.Host)
	for _, f := range r.Functions {
		n += count(f.Findings)
	}
	return &NotReadyError{What: what, Errors: n}
}

// count counts the errors among findings.
func count(list []doctor.Finding) int {
	n := 0
	for _, f := range list {
		if f.Severity == doctor.Error {
			n++
		}
	}
	return n
}

func (x *commands) printDoctor(r doctor.Report, everything bool) error {
	on, off := x.Emphasis()
	fmt.Fprintf(x.Stdout, "%sthis host%s\n", on, off)
	x.printFindings(r.Host, everything)
	for _, f := range r.Functions {
		verdict := "a driver could not start"
		if f.CouldStart {
			verdict = "a driver could start"
		}
		fmt.Fprintf(x.Stdout, "\n%s%s%s  %s: %s\n", on, f.Address, off, f.Name, verdict)
		x.printFindings(f.Findings, everything)
	}
	_, err := fmt.Fprintln(x.Stdout)
	return err
}

// printFindings prints what is not as it should be, and says how much is.
func (x *commands) printFindings(list []doctor.Finding, everything bool) {
	on, off := x.Emphasis()
	var well []string
	for _, f := range list {
		if f.Severity == doctor.OK && !everything {
			well = append(well, f.Check)
			continue
		}
		fmt.Fprintf(x.Stdout, "  %-8s%s%s%s: %s\n", f.Severity, on, f.Check, off, f.What)
		if f.Why != "" {
			fmt.Fprintf(x.Stdout, "          %s\n", f.Why)
		}
		for _, s := range f.Fix {
			fmt.Fprintf(x.Stdout, "          > %s\n", s)
		}
	}
	if len(well) > 0 {
		fmt.Fprintf(x.Stdout, "  %-8s%s\n", doctor.OK, strings.Join(well, ", "))
	}
}
