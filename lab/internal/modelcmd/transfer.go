package modelcmd

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/coherence"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
)

// Defaults of the flags.
const (
	defaultPlatform = "sonic-via"
	defaultBytes    = 1024
)

// transferFlags describe a transfer, mechanism and size aside.
type transferFlags struct {
	platform, order, until, receiving string
	rate                              float64
	seed                              uint64
	cmd                               *cobra.Command
}

func (f *transferFlags) register(cmd *cobra.Command) {
	f.cmd = cmd
	flags := cmd.Flags()
	flags.StringVar(&f.platform, "platform", defaultPlatform, "memory system by name, or a TOML file")
	flags.Float64Var(&f.rate, "dma-rate", 0, "rate of the NIC's DMA engine in MB/s (default: the platform's)")
	flags.StringVar(&f.order, "order", string(coherence.Sequential), "order in which the program writes the words: sequential, stride (of one block) or random")
	flags.Uint64Var(&f.seed, "seed", 1, "seed of the random order")
	flags.StringVar(&f.until, "until", string(coherence.Delivered), "end of the time: wire (the first byte leaves), delivered, or consumed (the program has read all)")
	flags.StringVar(&f.receiving, "receiving", string(coherence.WriteBack), "how edt receives: write-back (with valid bits), or coherent")
}

// options loads the platform and takes the flags over.
func (f *transferFlags) options() (coherence.Options, error) {
	if f.cmd.Flags().Changed("dma-rate") && f.rate == 0 {
		return coherence.Options{}, usage("--dma-rate", "0", "1 MB/s to the platform's")
	}
	s, err := builtIn("--platform", f.platform, profile.Systems)
	return coherence.Options{System: s, DMARate: f.rate, Order: coherence.Order(f.order), Seed: f.seed,
		Until: coherence.Until(f.until), Receiving: coherence.Receiving(f.receiving)}, err
}

// flagError says of an option that the model refuses which flag it was.
func flagError(err error, flags map[string]string) error {
	var e *coherence.Error
	if !errors.As(err, &e) {
		return err
	}
	return &option.Error{Option: "--" + cmp.Or(flags[e.Field], e.Field), Value: e.Value, Allowed: e.Allowed}
}

// transferred is the JSON object of "trapeze-lab model transfer".
type transferred struct {
	User         profile.Time            `json:"user_us"`
	Transfer     profile.Time            `json:"transfer_us"`
	Transport    profile.Time            `json:"transport_us"`
	Total        profile.Time            `json:"total_us"`
	Count        int                     `json:"bus_transactions"`
	Transactions []coherence.Transaction `json:"transactions"`
}

func transferCommand(e *command.Env) *cobra.Command {
	var f transferFlags
	var mechanism string
	var bytes int
	cmd := &cobra.Command{
		Use:   "transfer",
		Short: "Compute how a message gets from memory into the NIC, by EDT or another mechanism",
		Long: `Moves one message from a program's memory through the NICs into another program's, in
virtual time, and counts what goes over the memory bus: a processor with two levels of
cache, memory and the NIC, in whole cycles of arbitration, address and data. On PCIe the
NIC reads and writes host memory, and the host pushes blocks.

user_us       programs: making message, descriptor and doorbell; seeing the completion
transfer_us   moving descriptor and data between host and NIC
transport_us  the NICs' message layers
total_us      all three; no network time

Mechanisms:
` + mechanismHelp() + `
Platforms: ` + strings.Join(profile.Systems.Names(), ", ") + `,
or a TOML file (trapeze-lab model platforms NAME prints one to start from; base = "NAME" takes
from another what the file does not say).

` + keys.Of(transferred{}),
		Example: `  trapeze-lab model transfer --platform sonic-via --mechanism edt --bytes 1024 --dma-rate 1600 --json
  trapeze-lab model transfer --mechanism edt --bytes 256 --order stride
  trapeze-lab model transfer --platform pcie5-x16-400g --mechanism inline --bytes 64 --until wire`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			o, err := f.options()
			if err != nil {
				return err
			}
			o.Mechanism, o.Bytes = coherence.Mechanism(mechanism), bytes
			r, err := coherence.Run(cmd.Context(), o)
			if err != nil {
				return flagError(err, nil)
			}
			return e.Print(transferred{r.User, r.Transfer, r.Transport, r.Total(), len(r.Transactions), r.Transactions}, func(w io.Writer) error { return writeTransfer(w, &o, r) })
		},
	}
	f.register(cmd)
	cmd.Flags().StringVar(&mechanism, "mechanism", string(coherence.EDT), "how the message gets to the NIC")
	cmd.Flags().IntVar(&bytes, "bytes", defaultBytes, "bytes of the message")
	return cmd
}

// mechanismHelp lists the mechanisms, and what they are on PCIe if that differs.
func mechanismHelp() string {
	var b strings.Builder
	for _, m := range coherence.Mechanisms(nil) {
		fmt.Fprintf(&b, "  %-13s %s\n", m, m.Summary(false))
		if p := m.Summary(true); p != m.Summary(false) {
			fmt.Fprintf(&b, "  %-13s on PCIe: %s\n", "", p)
		}
	}
	return b.String()
}

func writeTransfer(w io.Writer, o *coherence.Options, r *coherence.Result) error {
	fmt.Fprintf(w, `%s, %s, %d bytes, %s
user               %10.3f us
data transfer      %10.3f us   initiation %.3f, execution %.3f, interrupt %.3f
transport          %10.3f us   sending %.3f, receiving %.3f
total              %10.3f us
transactions       %10d
`, o.System.Name, o.Mechanism, o.Bytes, o.Order, r.User.Microseconds(), r.Transfer.Microseconds(),
		r.Initiation.Microseconds(), r.Execution().Microseconds(), r.Interrupt.Microseconds(),
		r.Transport.Microseconds(), r.SendTransport.Microseconds(), (r.Transport - r.SendTransport).Microseconds(),
		r.Total().Microseconds(), len(r.Transactions))
	type what struct {
		coherence.Side
		coherence.Agent
		coherence.Kind
		coherence.Region
	}
	counts := map[what]int{}
	var order []what
	for _, x := range r.Transactions {
		k := what{x.Side, x.Agent, x.Kind, x.Region}
		if !slices.Contains(order, k) {
			order = append(order, k)
		}
		counts[k]++
	}
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, k := range order {
		fmt.Fprintf(t, "  %s\t%s\t%s\t%s\t%d\n", k.Side, k.Agent, k.Kind, k.Region, counts[k])
	}
	return t.Flush()
}

// transferPicture draws the bars of the EDT paper.
func transferPicture(e *command.Env) *cobra.Command {
	var f transferFlags
	var names []string
	cmd := picture(e, "transfer", "Bars of a message's latency in three parts, by size and by mechanism, and a breakdown into seven parts at 256 bytes",
		"--platform sonic-via --dma-rate 1600", func(ctx context.Context) ([]byte, error) {
			o, err := f.options()
			if err != nil {
				return nil, err
			}
			if f.cmd.Flags().Changed("mechanisms") && (len(names) == 0 || len(names) > len(coherence.Mechanisms(nil))) {
				return nil, usage("--mechanisms", strings.Join(names, ","), fmt.Sprintf("1 to %d of them", len(coherence.Mechanisms(nil))))
			}
			var mechanisms []coherence.Mechanism
			for _, n := range names {
				mechanisms = append(mechanisms, coherence.Mechanism(n))
			}
			svg, err := report.Transfers(ctx, o, mechanisms)
			return svg, flagError(err, map[string]string{"mechanism": "mechanisms"})
		})
	f.register(cmd)
	cmd.Flags().StringSliceVar(&names, "mechanisms", nil, "mechanisms to show (default: by size those that the paper simulated, on PCIe edt, inline and dma; at 256 bytes all)")
	return cmd
}
