package telemetrycmd

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	tea "github.com/charmbracelet/bubbletea"
	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
)

func (x *commands) top() *cobra.Command {
	var interval time.Duration
	var once bool
	c := &cobra.Command{
		Use:   "top",
		Short: "A screen of all NICs of this host, and what passes",
		Long: `Show the NICs that processes of this host have open: bytes and messages in a second,
frames that were sent again, descriptors in the queues, and latencies where they are
measured. Keys: up and down choose a NIC, Enter shows its endpoints and the decisions
of its delivery policy, Escape goes back, s changes the order, r turns it round, q
ends. RECVQ counts the receives of an endpoint that are posted: its peer has credit
for as many messages.

With --once it prints one screen, which needs no terminal.

JSON: none. 'trapeze ps --json' and 'trapeze stats --json' have the figures.`,
		Example: `  trapeze top
  trapeze top --once`,
		Args: cobra.NoArgs,
		RunE: command.Run(func(ctx context.Context, _ []string) error { return x.runTop(ctx, interval, once) }),
	}
	c.Flags().DurationVarP(&interval, "interval", "i", time.Second, "time from one look to the next")
	c.Flags().BoolVar(&once, "once", false, "print one screen, and end")
	return c
}

func (x *commands) runTop(ctx context.Context, interval time.Duration, once bool) error {
	if err := checkInterval(interval, 50*time.Millisecond); err != nil {
		return err
	}
	if x.JSON {
		return option.Errorf("top has no JSON: 'trapeze ps --json' and 'trapeze stats --json' have the figures")
	}
	m := &screen{ctx: ctx, sampler: newSampler(ctx), interval: interval, width: command.Columns}
	defer m.sampler.close()
	if once {
		m.take(m.sampler.next(ctx, nil))
		if err := pause(ctx, interval); err != nil {
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
