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

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/lab/internal/coherence"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/report"
)

// transferFlags describe a transfer, mechanism and size aside.
type transferFlags struct {
	Platform  string              `flag:"platform" default:"sonic-via" help:"memory system by name, or a TOML file"`
	Rate      float64             `flag:"dma-rate" help:"rate of the NIC's DMA engine in MB/s (default: the platform's)"`
	Order     coherence.Order     `flag:"order" default:"sequential" help:"order in which the program writes the words: sequential, stride (of one block) or random"`
	Seed      uint64              `flag:"seed" default:"1" help:"seed of the random order"`
	Until     coherence.Until     `flag:"until" default:"delivered" help:"end of the time: wire (the first byte leaves), delivered, or consumed (the program has read all)"`
	Receiving coherence.Receiving `flag:"receiving" default:"write-back" help:"how edt receives: write-back (with valid bits), or coherent"`
	Given     cmdtable.Given
}

// options loads the platform and takes the flags over.
func (f *transferFlags) options() (coherence.Options, error) {
	if f.Given("dma-rate") && f.Rate == 0 {
		return coherence.Options{}, usage("--dma-rate", "0", "1 MB/s to the platform's")
	}
	s, err := builtIn("--platform", f.Platform, profile.Systems)
	return coherence.Options{System: s, DMARate: f.Rate, Order: f.Order, Seed: f.Seed, Until: f.Until, Receiving: f.Receiving}, err
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

type transferOneFlags struct {
	transferFlags
	Mechanism coherence.Mechanism `flag:"mechanism" default:"edt" help:"how the message gets to the NIC"`
	Bytes     int                 `flag:"bytes" default:"1024" help:"bytes of the message"`
}

func (x *commands) transfer(ctx context.Context, f *transferOneFlags, _ []string) error {
	o, err := f.options()
	if err != nil {
		return err
	}
	o.Mechanism, o.Bytes = f.Mechanism, f.Bytes
	r, err := coherence.Run(ctx, o)
	if err != nil {
		return flagError(err, nil)
	}
	return x.Print(transferred{r.User, r.Transfer, r.Transport, r.Total(), len(r.Transactions), r.Transactions}, func(w io.Writer) error { return writeTransfer(w, &o, r) })
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
	return strings.TrimSuffix(b.String(), "\n")
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

// transferPicture is of the bars of the EDT paper.
type transferPicture struct {
	transferFlags
	Mechanisms []string `flag:"mechanisms" split:"comma" help:"mechanisms to show (default: by size those that the paper simulated, on PCIe edt, inline and dma; at 256 bytes all)"`
}

func (f *transferPicture) draw(ctx context.Context) ([]byte, error) {
	o, err := f.options()
	if err != nil {
		return nil, err
	}
	if most := len(coherence.Mechanisms(nil)); f.Given("mechanisms") && (len(f.Mechanisms) == 0 || len(f.Mechanisms) > most) {
		return nil, usage("--mechanisms", strings.Join(f.Mechanisms, ","), fmt.Sprintf("1 to %d of them", most))
	}
	var mechanisms []coherence.Mechanism
	for _, n := range f.Mechanisms {
		mechanisms = append(mechanisms, coherence.Mechanism(n))
	}
	svg, err := report.Transfers(ctx, o, mechanisms)
	return svg, flagError(err, map[string]string{"mechanism": "mechanisms"})
}
