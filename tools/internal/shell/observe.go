package shell

import (
	"context"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
)

// observed are the flags by which a user looks into a command that runs.
type observed struct {
	format, level string
	address       string
	remote        bool

	profiles *http.Server // nil without --pprof
}

func (o *observed) register(f *pflag.FlagSet) {
	f.StringVar(&o.format, "log-format", "text", "format of log lines on stderr: text, json")
	f.StringVar(&o.level, "log-level", "", "log from this level on: debug, info, warn, error (default what the command logs by itself)")
	f.StringVar(&o.address, "pprof", "", "serve profiles and traces to 'go tool pprof' and 'go tool trace' at this address of the host, as in 127.0.0.1:6060")
	f.BoolVar(&o.remote, "pprof-remote", false, "let other hosts reach the address of --pprof: they can slow the command, and see its memory")
}

// begin does what the flags say for a command that is about to run.
func (o *observed) begin(c *cobra.Command, e *command.Env) error {
	ctx, err := command.WithLogging(c.Context(), e.Stderr, o.format, o.level)
	if err != nil {
		return err
	}
	c.SetContext(ctx)
	command.Logger(ctx, command.Quiet).Debug("command begins", "command", c.CommandPath())
	if o.address == "" {
		if o.remote {
			return option.Errorf("--pprof-remote is about --pprof, which is missing")
		}
		return nil
	}
	l, err := o.listen(ctx)
	if err != nil {
		return err
	}
	o.profiles = &http.Server{Handler: o.handler(), ReadHeaderTimeout: 10 * time.Second, MaxHeaderBytes: 1 << 14}
	go func() { _ = o.profiles.Serve(l) }() // until end closes it
	e.Note("profiles are at http://%s/debug/pprof/", l.Addr())
	return nil
}

// listen opens the address of --pprof, which is one of the host's own unless the user wants more.
func (o *observed) listen(ctx context.Context) (net.Listener, error) {
	host, port, err := net.SplitHostPort(o.address)
	if err != nil {
		return command.Listen(ctx, "--pprof", o.address) // which refuses it
	}
	if host == "" && !o.remote || host == "localhost" {
		host = "127.0.0.1"
	}
	ip, err := netip.ParseAddr(host)
	if host != "" && err != nil {
		return nil, &option.Error{Option: "--pprof", Value: o.address, Allowed: "an IP address, or localhost"}
	}
	if !o.remote && !ip.IsLoopback() {
		return nil, option.Errorf("--pprof %s can be reached from other hosts, who then see the memory of the command: use 127.0.0.1:%s, or add --pprof-remote", o.address, port)
	}
	return command.Listen(ctx, "--pprof", net.JoinHostPort(host, port))
}

// handler answers as net/http/pprof does.
func (o *observed) handler() http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	if o.remote {
		return mux
	}
	return command.OwnHost("", mux)
}

// end stops what begin has started.
func (o *observed) end() error {
	if o.profiles == nil {
		return nil
	}
	return o.profiles.Close()
}
