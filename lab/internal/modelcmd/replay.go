package modelcmd

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"
	"text/tabwriter"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/replay"
)

// errUnlike: the model cut fewer frames as the live NIC did than were asked for.
var errUnlike = errors.New("the model cuts too few frames as the live NIC did")

type replayFlags struct {
	Log     string  `flag:"log" help:"DMA log of a live NIC (required)"`
	Profile string  `flag:"profile" help:"platform whose costs the model has, a name or a TOML file (default: costs by the log)"`
	Least   float64 `flag:"min-alike" help:"percent of the frames that the model must cut as each live engine did"`
	Given   cmdtable.Given
}

func (x *commands) replay(ctx context.Context, f *replayFlags, _ []string) error {
	if err := between("--min-alike", f.Least, 0, 100, "percent"); err != nil {
		return err
	}
	recorded, err := readLog(f.Log)
	if err != nil {
		return err
	}
	var p *profile.Profile
	if f.Given("profile") {
		if p, err = loadProfile("--profile", f.Profile); err != nil {
			return err
		}
	}
	flows, err := replay.Run(ctx, recorded, p)
	if err != nil {
		return fmt.Errorf("--log %s: %w", f.Log, err)
	}
	var rows []replay.Engine
	for _, f := range flows {
		rows = append(rows, f.Engines...)
	}
	if err := x.Print(rows, func(w io.Writer) error { return writeReplay(w, flows) }); err != nil {
		return err
	}
	return alike(rows, f.Least)
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
