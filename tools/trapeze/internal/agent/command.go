package agent

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"sync"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
	"github.com/spf13/cobra"
	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/internal/cmdtable"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/activation"
)

// DefaultFile is the agent's file.
const DefaultFile = "/etc/trapeze/agent.toml"

// agentReport has the keys that agent --json prints once it is ready, and agent --check --json.
type agentReport struct {
	Socket string `json:"socket"`
	NICs   []NIC  `json:"nics"`
	// Grants are tried in their order: the first that fits decides.
	Grants []*Grant `json:"grants" help:"the first that fits a program decides"`
}

type listReport struct {
	NICs    []agentlink.NIC    `json:"nics"`
	Clients []agentlink.Client `json:"clients"`
}

type commands struct{ *command.Env }

// help has the help of the commands, see cmdtable.New.
//
//go:embed help.txt
var help string

// Command is trapeze agent.
func Command(e *command.Env) *cobra.Command {
	x := &commands{e}
	t := cmdtable.New(help, map[string]string{"file": DefaultFile, "socket": agentlink.Socket()})
	c := t.Command(cmdtable.Does("agent", x.agent, agentReport{}))
	c.AddCommand(t.Command(cmdtable.Does("agent list", x.list, listReport{})))
	return c
}

type agentFlags struct {
	File    string `flag:"file" default:"{file}" help:"file with NICs and grants"`
	Check   string `flag:"check" excludes:"replace" help:"check this file and open nothing"`
	Replace bool   `flag:"replace" help:"take over from the agent at the socket of the file, which ends"`
	Verbose bool   `flag:"verbose,v" help:"log on stderr clients that come, go and are refused"`
}

func (x *commands) agent(ctx context.Context, f *agentFlags, _ []string) error {
	if f.Check != "" {
		return x.check(f.Check)
	}
	return x.run(ctx, f.File, f.Replace, f.Verbose)
}

func (x *commands) check(file string) error {
	config, err := Load(file)
	if err != nil {
		return err
	}
	return x.Report(reportOf(config))
}

func reportOf(c *Config) agentReport { return agentReport{c.Socket, c.NICs, c.Grants} }

func (x *commands) run(ctx context.Context, file string, replace, verbose bool) (err error) {
	config, err := Load(file)
	if errors.Is(err, fs.ErrNotExist) {
		return shell.Hinted(err, "write it as docs/agent.md explains, or give another with --file")
	}
	if err != nil {
		return err
	}
	level := slog.LevelWarn
	if verbose {
		level = slog.LevelInfo
	}
	log := command.Logger(ctx, level)
	a, l, err := begin(ctx, config, log, replace)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, a.Close()) }()
	// At once: after a take-over clients wait.
	served := make(chan error, 1)
	go func() { served <- a.Serve(ctx, l) }()
	leave := a.show(log)
	defer leave()
	watched, stop := context.WithCancel(ctx)
	var watching sync.WaitGroup
	watching.Go(func() { watch(watched, a, log) })
	if err := x.ready(reportOf(config)); err != nil {
		a.end(err)
	}
	err = <-served
	stop()
	watching.Wait()
	x.stopping(a, log)
	return err
}

// begin opens what the file says, or takes it over.
func begin(ctx context.Context, c *Config, log *slog.Logger, replace bool) (*Agent, *unixsocket.Listener, error) {
	if replace {
		a, l, err := TakeOver(ctx, c, log)
		if err != nil {
			return nil, nil, &command.DeviceError{Err: fmt.Errorf("take over at %s: %w", c.Socket, err)}
		}
		return a, l, nil
	}
	l, err := listener(ctx, c)
	if err != nil {
		return nil, nil, err
	}
	a, err := New(ctx, c, log)
	if err != nil {
		return nil, nil, errors.Join(&command.DeviceError{Err: err}, l.Close())
	}
	return a, l, nil
}

// stopping tells users and the service manager that the agent ends, or which process goes on for it.
func (x *commands) stopping(a *Agent, log *slog.Logger) {
	state := daemon.SdNotifyStopping
	pid, replaced := a.Successor()
	if replaced {
		state = fmt.Sprintf("MAINPID=%d", pid)
		x.Note("process %d serves in place of this one", pid)
	}
	if replaced && pid < 0 {
		return // in another PID namespace, of which the service manager does not know
	}
	if err := activation.Notify(state); err != nil {
		log.Warn("cannot tell the service manager", "error", err)
	}
}

// listener is the socket of the service manager, or else of the file.
func listener(ctx context.Context, c *Config) (*unixsocket.Listener, error) {
	handed, err := activation.Sockets()
	if err != nil {
		return nil, err
	}
	switch len(handed) {
	case 0:
		l, err := Listen(ctx, c)
		if err != nil {
			err = fmt.Errorf("listen at %s: %w", c.Socket, err)
		}
		if errors.Is(err, unix.EADDRINUSE) {
			err = shell.Hinted(err, "--replace takes over from an agent")
		}
		return l, err
	case 1:
		c.Socket = handed[0].Addr().String()
		return handed[0], nil
	}
	for _, s := range handed {
		err = errors.Join(err, s.Close())
	}
	return nil, errors.Join(fmt.Errorf("the service manager has handed over %d sockets, and the agent has one", len(handed)), err)
}

func (x *commands) ready(r agentReport) error {
	if x.JSON {
		if err := x.PrintJSON(r); err != nil {
			return err
		}
	} else {
		for _, n := range r.NICs {
			fmt.Fprintf(x.Stdout, "agent:%s  %s\n", n.Name, n.Address)
		}
		x.Note("serving at %s; Ctrl-C ends it", r.Socket)
	}
	return activation.Notify(daemon.SdNotifyReady)
}

// watch tells the service manager that the agent lives, as long as each NIC passes frames on.
func watch(ctx context.Context, a *Agent, log *slog.Logger) {
	every, err := daemon.SdWatchdogEnabled(false)
	if err != nil || every <= 0 {
		return
	}
	tick := time.NewTicker(every / 2)
	defer tick.Stop()
	for before := a.Moves(); ; {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		now := a.Moves()
		stuck := false
		for i := range now {
			stuck = stuck || now[i] == before[i]
		}
		if stuck {
			log.Error("a NIC passes no frames on")
			continue
		}
		before = now
		if err := activation.Notify(daemon.SdNotifyWatchdog); err != nil {
			log.Warn("cannot tell the service manager", "error", err)
		}
	}
}

type listFlags struct {
	Socket string `flag:"socket" default:"{socket}" help:"socket of the agent"`
}

func (x *commands) list(ctx context.Context, f *listFlags, _ []string) error {
	nics, clients, err := agentlink.Ask(ctx, f.Socket)
	var none *net.OpError
	switch {
	case errors.Is(err, fs.ErrPermission):
		return &command.DeviceError{Err: shell.Hinted(err, "mode and group in the agent's file do not let this user in")}
	case errors.As(err, &none) && none.Op == "dial":
		return &command.DeviceError{Err: shell.Hinted(err, "start trapeze agent, or give its socket with --socket")}
	case err != nil:
		return err
	}
	r := listReport{append([]agentlink.NIC{}, nics...), append([]agentlink.Client{}, clients...)}
	return x.Report(r)
}
