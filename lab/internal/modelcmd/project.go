package modelcmd

import (
	"cmp"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
	"github.com/trapeze-nic/trapeze/lab/internal/search"
)

// maxFactor bounds the factors of a projection.
const maxFactor = 1000

// Buses and links of a projection on PCIe: one profile for each generation, and the rates of
// Ethernet in Gb/s.
var (
	pcieBuses = []string{"pcie3-x8-10g", "pcie4-x16-100g", "pcie5-x16-400g", "pcie6-x16-800g"}
	ethernets = []float64{10, 25, 50, 100, 200, 400, 800}
)

// projectFlags describe a projection.
type projectFlags struct {
	profile, policy, bus, link string
	payload                    int
	pcie                       bool
	cmd                        *cobra.Command
}

// factors reads "1,2,4" or "1..8", which doubles from one to the next.
func factors(flag, text string) (all []float64, err error) {
	const allowed = "factors from 0.001 to 1000, as in 1,2,4 or 1..8 (each twice the one before)"
	low, high, doubled := strings.Cut(text, "..")
	list := strings.Split(text, ",")
	if doubled {
		list = []string{low, high}
	}
	for _, word := range list {
		f, err := strconv.ParseFloat(strings.TrimSpace(word), 64)
		if err != nil || !(f >= 1.0/maxFactor && f <= maxFactor) {
			return nil, usage(flag, text, allowed)
		}
		all = append(all, f)
	}
	if !doubled {
		return all, nil
	}
	if all[1] < all[0] {
		return nil, usage(flag, text, allowed)
	}
	last := all[1]
	for all = all[:1]; all[len(all)-1]*2 <= last; {
		all = append(all, all[len(all)-1]*2)
	}
	return all, nil
}

// projection checks the flags and loads the profiles.
func (f *projectFlags) projection() (o report.Projection, err error) {
	longest := 1 << 20
	if f.policy == "optimal" {
		longest = search.MaxPayload
	}
	if err := cmp.Or(checkPolicies("--policy", f.policy), between("--payload", f.payload, 1, longest, "bytes")); err != nil {
		return o, err
	}
	o = report.Projection{Policy: f.policy, Payload: f.payload}
	if !f.pcie {
		return f.scaled(o)
	}
	for _, flag := range []string{"profile", "bus", "link"} {
		if f.cmd.Flags().Changed(flag) {
			return o, usage("--"+flag, f.cmd.Flags().Lookup(flag).Value.String(), "without --pcie, which has buses and links of its own")
		}
	}
	for _, name := range pcieBuses {
		p, err := profile.Hosts.Load(name)
		if err != nil {
			return o, err
		}
		o.Buses, o.Labels = append(o.Buses, p), append(o.Labels, name[:strings.LastIndex(name, "-")])
	}
	for _, gigabits := range ethernets {
		o.Links = append(o.Links, gigabits*1000/8)
	}
	return o, nil
}

// scaled makes the buses and links of one profile faster.
func (f *projectFlags) scaled(o report.Projection) (report.Projection, error) {
	buses, err := factors("--bus", f.bus)
	if err != nil {
		return o, err
	}
	links, err := factors("--link", f.link)
	if err != nil {
		return o, err
	}
	p, err := loadProfile("--profile", f.profile)
	if err != nil {
		return o, err
	}
	for _, b := range buses {
		o.Buses, o.Labels = append(o.Buses, report.FasterBus(p, b)), append(o.Labels, fmt.Sprintf("bus x %g", b))
	}
	for _, l := range links {
		o.Links = append(o.Links, p.Link.Pulse.Bandwidth()*l)
	}
	return o, nil
}

func projectCommand(e *command.Env) *cobra.Command {
	f := &projectFlags{}
	var output outputFile
	cmd := &cobra.Command{
		Use:   "project",
		Short: "Compute what faster buses and links would do to latency and bandwidth",
		Long: `Computes a platform whose buses and link have more bandwidth, in virtual time: each bus
beside each link. Overheads, firmware and hosts stay as the profile has them. --pcie takes
the buses and the firmware of PCIe 3 to 6 instead, beside links of 10 to 800 Gb/s.

store_and_forward_us, latency_us  one way, a lone payload, without and with the policy
reduction_percent  by how much the second is less than the first
bandwidth_mb_s     of a stream with the policy

` + keys.Array(report.Projected{}) + ` With --output the file has a picture of the
reductions, and stdout file, bytes.`,
		Example: `  trapeze-lab model project --profile alcor --bus 1..8 --link 1..8
  trapeze-lab model project --pcie --policy auto --output project.svg`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("output") {
				if err := output.check(); err != nil {
					return err
				}
			}
			o, err := f.projection()
			if err != nil {
				return err
			}
			rows, err := o.Run(cmd.Context())
			if err != nil {
				return err
			}
			if output.name == "" {
				return e.Print(rows, func(w io.Writer) error { return writeProjection(w, rows) })
			}
			svg, err := o.Draw(rows)
			if err != nil {
				return err
			}
			return output.write(e, svg)
		},
	}
	f.cmd = cmd
	flags := cmd.Flags()
	flags.StringVar(&f.profile, "profile", defaultProfile, "platform by name, or a TOML file")
	flags.StringVar(&f.policy, "policy", defaultPolicy, "delivery policy beside store and forward")
	flags.IntVar(&f.payload, "payload", defaultPayload, "bytes of each payload")
	flags.StringVar(&f.bus, "bus", "1..8", "factors of the buses' bandwidth: 1,2,4 or 1..8")
	flags.StringVar(&f.link, "link", "1..8", "factors of the link's bandwidth: 1,2,4 or 1..8")
	flags.BoolVar(&f.pcie, "pcie", false, "PCIe 3 to 6 beside 10 to 800 Gb/s instead of factors")
	output.register(cmd, "picture of the reductions, SVG file to write instead, whole or not at all")
	return cmd
}

func writeProjection(w io.Writer, rows []report.Projected) error {
	const header = "bus\tlink MB/s\tstore and forward us\tlatency us\tless %\tstream MB/s\t"
	return command.Table(w, tabwriter.AlignRight, header, rows, func(r report.Projected) string {
		return fmt.Sprintf("%s\t%.0f\t%.3f\t%.3f\t%.1f\t%.1f\t", r.Bus, r.Link, r.Whole.Microseconds(), r.Latency.Microseconds(), r.Reduction, r.Bandwidth)
	})
}
