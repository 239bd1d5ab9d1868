package modelcmd

import (
	"context"
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/lab/internal/profile"
	"github.com/trapeze-nic/trapeze/lab/internal/replay"
)

// errUnlike: the model cut fewer frames as the live NIC did than were asked for.
var errUnlike = errors.New("the model cuts too few frames as the live NIC did")

type replayFlags struct {
	Log     string  `flag:"log" help:"DMA log of a live NIC (required)"`
	Profile string  `flag:"profile" help:"platform whose costs the model has, a name or a TOML file (default: costs by the log)"`
	Least   float64 `flag:"min-alike" range:"0..100" help:"percent of the frames that the model must cut as each live engine did"`
	Given   cmdtable.Given
}

func (x *commands) replay(ctx context.Context, f *replayFlags, _ []string) error {
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
	engines, err := replay.Run(ctx, recorded, p)
	if err != nil {
		return fmt.Errorf("--log %s: %w", f.Log, err)
	}
	if err := x.Report(engines); err != nil {
		return err
	}
	for _, e := range engines {
		if e.Share < f.Least {
			return fmt.Errorf("%w: %s %d of %d, %.1f %%, at least %g %%", errUnlike, e.Engine, e.Alike, e.Frames, e.Share, f.Least)
		}
	}
	return nil
}
