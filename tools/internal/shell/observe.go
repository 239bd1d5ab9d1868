package shell

import (
	"errors"
	"net"
	"net/http"
	_ "net/http/pprof" // registers itself with http.DefaultServeMux
	"time"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
)

// observeFlags are those by which a user looks into a command that runs.
type observeFlags struct {
	Format  string `flag:"log-format" oneof:"text,json" default:"text" help:"format of log lines on stderr: text, json"`
	Level   string `flag:"log-level" oneof:"debug,info,warn,error" help:"log from this level on: debug, info, warn, error (default what the command logs by itself)"`
	Address string `flag:"pprof" help:"serve profiles and traces to 'go tool pprof' and 'go tool trace' at this address, as in 127.0.0.1:6060; ssh -L reaches it from other hosts"`
}

// observe does what the flags say for a command that is about to run.
func (r *run) observe(c *cobra.Command) error {
	c.SetContext(command.WithLogging(c.Context(), r.Stderr, r.observed.Format, r.observed.Level))
	command.Logger(c.Context(), command.Quiet).Debug("command begins", "command", c.CommandPath())
	if r.observed.Address == "" {
		return nil
	}
	l, err := command.Listen(c.Context(), "--pprof", r.observed.Address)
	if err != nil {
		return err
	}
	if !l.Addr().(*net.TCPAddr).IP.IsLoopback() { // a profile shows the memory of the command
		return errors.Join(option.Errorf("--pprof %s can be reached from other hosts: use 127.0.0.1", r.observed.Address), l.Close())
	}
	r.profiles = &http.Server{Handler: command.OwnHost("", http.DefaultServeMux), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 1 << 14}
	go func() { _ = r.profiles.Serve(l) }() // until the command has ended
	r.Note("profiles are at http://%s/debug/pprof/", l.Addr())
	return nil
}
