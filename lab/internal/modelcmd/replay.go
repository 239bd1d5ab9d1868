package modelcmd

import (
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/replay"
)

// errUnlike: the model cut fewer frames as the live NIC did than were asked for.
var errUnlike = errors.New("the model cuts too few frames as the live NIC did")

func replayCommand(e *command.Env) *cobra.Command {
	var log, platform string
	var least float64
	cmd := &cobra.Command{
		Use:   "replay --log FILE",
		Short: "Run the frames of a live NIC's log through the model, and say where they differ",
		Long: `Takes the frames of a log that --dma-log has written: how long each is, and when the NIC
knew of it. It runs them in virtual time under the policy and with the bursts of the log,
and holds what each engine did against the live one: into which transfers frames were cut,
how long a transfer took, and when a frame had left.

The costs of a transfer are those of the log: an overhead and a time for each byte, by a
line through the median times of all sizes. With --profile they are those of a platform.
Frames behind the first that did not go through all engines of the log are left out.

With --min-alike the exit code is 1 if the model cuts a smaller share of the frames into
just those transfers of the live engine.

` + keys.Array(replay.Engine{}),
		Example: `  trapeze demo --dma-log live.log && trapeze-lab model replay --log live.log
  trapeze-lab model replay --log live.log --min-alike 80 --json
  trapeze-lab model replay --log live.log --profile pcie5-x16-400g`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if err := between("--min-alike", least, 0, 100, "percent"); err != nil {
				return err
			}
			recorded, err := readLog(log)
			if err != nil {
				return err
			}
			var p *profile.Profile
			if cmd.Flags().Changed("profile") {
				if p, err = loadProfile("--profile", platform); err != nil {
					return err
				}
			}
			flows, err := replay.Run(cmd.Context(), recorded, p)
			if err != nil {
				return fmt.Errorf("--log %s: %w", log, err)
			}
			var rows []replay.Engine
			for _, f := range flows {
				rows = append(rows, f.Engines...)
			}
			if err := e.Print(rows, func(w io.Writer) error { return writeReplay(w, flows) }); err != nil {
				return err
			}
			return alike(rows, least)
		},
	}
	cmd.Flags().StringVar(&log, "log", "", "DMA log of a live NIC (required)")
	cmd.Flags().StringVar(&platform, "profile", "", "platform whose costs the model has, a name or a TOML file (default: costs by the log)")
	cmd.Flags().Float64Var(&least, "min-alike", 0, "percent of the frames that the model must cut as each live engine did")
	return cmd
}

// alike refuses a replay in which an engine of the model cut too few frames as the live one.
func alike(rows []replay.Engine, least float64) error {
	for _, r := range rows {
		if got := 100 * float64(r.Alike) / float64(r.Frames); got < least {
			return fmt.Errorf("%w: %s %d of %d, %.1f %%, at least %s %%", errUnlike, r.Engine, r.Alike, r.Frames, got, strconv.FormatFloat(least, 'f', -1, 64))
		}
	}
	return nil
}

func writeReplay(w io.Writer, flows []replay.Flow) error {
	for _, f := range flows {
		fmt.Fprintf(w, "%s: %d frames of flow %d", f.Platform.Name, f.Frames, f.Number)
		if f.Left > 0 {
			fmt.Fprintf(w, "; %d more did not go through all engines of the log", f.Left)
		}
		const header = "\n\ttransfers\t\tmedian bytes\t\tmedian us\t\tframe left after us\t\tcut alike\tworst frame\tby us\t\n" +
			"engine\tlive\tmodel\tlive\tmodel\tlive\tmodel\tlive\tmodel\t\t\t\t"
		if err := command.Table(w, tabwriter.AlignRight, header, f.Engines, func(r replay.Engine) string {
			return fmt.Sprintf("%s\t%d\t%d\t%d\t%d\t%.2f\t%.2f\t%.2f\t%.2f\t%.1f %%\t%d\t%+.2f\t", r.Engine, r.Live.Transfers, r.Model.Transfers, r.Live.Bytes, r.Model.Bytes,
				r.Live.Took.Microseconds(), r.Model.Took.Microseconds(), r.Live.Left.Microseconds(), r.Model.Left.Microseconds(),
				100*float64(r.Alike)/float64(r.Frames), r.Worst, r.WorstBy.Microseconds())
		}); err != nil {
			return err
		}
	}
	return nil
}
