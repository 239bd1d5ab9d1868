package telemetrycmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	tea "github.com/charmbracelet/bubbletea"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
)

type topFlags struct {
	Interval time.Duration `flag:"interval,i" default:"1s" help:"time from one look to the next"`
	Once     bool          `flag:"once" help:"print one screen, and end"`
}

func (x *commands) top(ctx context.Context, f *topFlags, _ []string) error {
	if err := checkInterval(f.Interval, 50*time.Millisecond); err != nil {
		return err
	}
	if x.JSON {
		return option.Errorf("top has no JSON: 'trapeze ps --json' and 'trapeze stats --json' have the figures")
	}
	m := &screen{ctx: ctx, sampler: newSampler(ctx), interval: f.Interval, width: command.Columns}
	defer m.sampler.close()
	if f.Once {
		m.take(m.sampler.next(ctx, nil))
		if err := command.Pause(ctx, f.Interval); err != nil {
			return err
		}
		m.take(m.sampler.next(ctx, nil))
		_, err := fmt.Fprintln(x.Stdout, m.table())
		return err
	}
	if !command.IsTerminal(os.Stdout) || !command.IsTerminal(x.Stdin) {
		return option.Errorf("top needs a terminal: use --once, or 'trapeze stats --watch'")
	}
	p := tea.NewProgram(m, tea.WithContext(ctx), tea.WithInput(x.Stdin), tea.WithOutput(os.Stdout),
		tea.WithAltScreen(), tea.WithoutSignalHandler())
	_, err := p.Run()
	m.asking.Wait()
	if errors.Is(err, tea.ErrProgramKilled) && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}
