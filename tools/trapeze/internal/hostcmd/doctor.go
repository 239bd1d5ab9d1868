package hostcmd

import (
	"context"
	"fmt"
	"io"
	"os"
	"strings"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/hostpci"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/doctor"
)

// NotReadyError says that no driver could start. What is wrong has been printed.
type NotReadyError struct {
	// Address of the function that was asked about, empty for any.
	Address string
	// What could not be, if no function was asked about.
	What string
	// Errors is how many findings stand in the way.
	Errors int
}

func (e *NotReadyError) Error() string {
	what := "a driver could not start on any function"
	if e.What != "" {
		what = e.What
	}
	if e.Address != "" {
		what = "a driver could not start on " + e.Address
	}
	return fmt.Sprintf("%s: %d findings stand in the way", what, e.Errors)
}

func (x *commands) doctor() *cobra.Command {
	var root string
	var memory int64
	var everything, fabric, kubernetes bool
	c := &cobra.Command{
		Use:   "doctor [ADDRESS]",
		Short: "What keeps a driver from starting, and what to do about it",
		Long: `Look at everything that VFIO needs: IOMMU, modules, nodes and their permissions,
limits, huge pages; and at each NIC, or at the one whose address is given: its
group, its driver, who has it open, power, interrupts, BARs. Nothing is opened
or changed. As root it sees more.

The exit code is 0 only if a driver could start. An emulated NIC, emu:, needs
none of this.

--fabric looks at something else: at what MPI and other programs need to find
the provider of libfabric, in this environment. docs/mpi.md is about it.

--kubernetes looks at what a node needs to give NICs to pods: kubelet, runtime,
NICs that are safe to give away. An agent that runs is asked how its NICs are.
docs/kubernetes.md is about it.

` + keys.Of(doctor.Report{}) + "\n\nWith --fabric:\n" + keys.Of(doctor.FabricReport{}) +
			"\n\nWith --kubernetes:\n" + keys.Of(doctor.KubernetesReport{}),
		Example: `  sudo trapeze doctor
  trapeze doctor 0000:03:00.0 --memory 1073741824
  FI_PROVIDER_PATH=/opt/trapeze/lib trapeze doctor --fabric
  sudo trapeze doctor --kubernetes
  trapeze doctor --json | jq '.host[] | select(.severity == "error")'`,
		Args: cobra.MaximumNArgs(1),
		RunE: command.Run(func(ctx context.Context, args []string) error {
			address := ""
			if len(args) > 0 {
				address = args[0]
			}
			switch {
			case fabric && kubernetes:
				return option.Errorf("--fabric and --kubernetes: use one of them")
			case (fabric || kubernetes) && address != "":
				return option.Errorf("--fabric and --kubernetes look at no function of yours: leave out %s", address)
			case fabric:
				r := doctor.Fabric(hostpci.Root(root), os.Getenv)
				return x.runSurroundings(r, r.Findings, r.CouldStart, "programs do not find the provider of libfabric", everything)
			case kubernetes:
				r := doctor.Kubernetes(ctx, hostpci.Root(root), drivers)
				return x.runSurroundings(r, r.Findings, r.CouldStart, "pods of this node cannot get NICs", everything)
			}
			if memory < 0 {
				return option.Errorf("--memory %d: use a number of bytes", memory)
			}
			return x.runDoctor(ctx, hostpci.Root(root), address, everything, doctor.Options{Memory: uint64(memory), Drivers: drivers})
		}),
	}
	c.Flags().Int64Var(&memory, "memory", 0, "how many bytes a driver will map for DMA")
	c.Flags().BoolVar(&everything, "all", false, "print also what is as it should be")
	c.Flags().BoolVar(&fabric, "fabric", false, "look at what programs of libfabric need to find the provider")
	c.Flags().BoolVar(&kubernetes, "kubernetes", false, "look at what this node needs to give NICs to pods")
	rootFlag(c, &root)
	return c
}

// runSurroundings prints a report on what is around NICs, and fails with what could not be if
// errors are among the findings.
func (x *commands) runSurroundings(report any, findings []doctor.Finding, couldStart bool, what string, everything bool) error {
	err := x.Print(report, func(io.Writer) error {
		x.printFindings(findings, everything)
		return nil
	})
	if err != nil || couldStart {
		return err
	}
	return &NotReadyError{What: what, Errors: count(findings)}
}

func (x *commands) runDoctor(ctx context.Context, root hostpci.Root, address string, everything bool, o doctor.Options) error {
	r, err := doctor.Run(ctx, root, address, o)
	if err != nil {
		return marked(err)
	}
	err = x.Print(r, func(io.Writer) error { return x.printDoctor(r, everything) })
	if err != nil || r.CouldStart {
		return err
	}
	n := count(r.Host)
	for _, f := range r.Functions {
		n += count(f.Findings)
	}
	return &NotReadyError{Address: address, Errors: n}
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
