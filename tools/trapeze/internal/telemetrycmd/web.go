package telemetrycmd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/spf13/cobra"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/keys"
	"github.com/trapeze-nic/trapeze/internal/option"
)

// webReport is printed by web when it serves.
type webReport struct {
	URL string `json:"url" help:"with the token"`
}

type webFlags struct {
	listen   string
	interval time.Duration
	open     bool
}

func (x *commands) web() *cobra.Command {
	var f webFlags
	c := &cobra.Command{
		Use:   "web",
		Short: "A page of all NICs of this host, for a browser",
		Long: `Serve a page that shows the NICs which processes of this host have open: rates, the
last transfers of a NIC's engines as they are made, queues, latencies, the control
program and its maps. The NICs are asked only while a browser shows the page.

Only the address that the command prints opens the page: it has a token, which is
new each time. The page shows all that this user may look at. It is not encrypted,
so show it to another machine by SSH:

    ssh -L 8080:127.0.0.1:8080 HOST

The command serves until it is interrupted, and ends with code 0 then.

` + keys.Of(webReport{}) + `
It prints them when it serves.`,
		Example: `  trapeze web
  trapeze web --listen 127.0.0.1:0 --interval 200ms`,
		Args: cobra.NoArgs,
		RunE: command.Run(func(ctx context.Context, _ []string) error { return x.runWeb(ctx, &f) }),
	}
	c.Flags().StringVarP(&f.listen, "listen", "l", "127.0.0.1:8080", "address to serve at; port 0 is any that is free")
	c.Flags().DurationVarP(&f.interval, "interval", "i", 500*time.Millisecond, "time from one look at the NICs to the next")
	c.Flags().BoolVar(&f.open, "no-token", false, "show the page to all users of this host, without a token")
	return c
}

func (x *commands) runWeb(ctx context.Context, f *webFlags) error {
	if err := checkInterval(f.interval, 50*time.Millisecond); err != nil {
		return err
	}
	name, _, err := net.SplitHostPort(f.listen)
	if err != nil {
		return &option.Error{Option: "--listen", Value: f.listen, Allowed: "an address and a port, such as 127.0.0.1:8080"}
	}
	var config net.ListenConfig
	l, err := config.Listen(ctx, "tcp", f.listen)
	if err != nil {
		return fmt.Errorf("%w: give another address or port with --listen", err)
	}
	at := l.Addr().(*net.TCPAddr)
	s := &site{feed: newFeed(ctx, f.interval), name: name, patience: webPatience}
	defer s.feed.close()
	shown := url.URL{Scheme: "http", Host: at.String(), Path: "/"}
	if at.IP.IsUnspecified() {
		shown.Host = net.JoinHostPort("127.0.0.1", fmt.Sprint(at.Port))
	}
	switch {
	case !f.open:
		s.token = rand.Text()
		shown.RawQuery = url.Values{"token": {s.token}}.Encode()
	case !at.IP.IsLoopback():
		return errors.Join(option.Errorf("--no-token: other machines can reach %s; listen at 127.0.0.1", at), l.Close())
	}
	if x.JSON {
		err = x.PrintJSON(webReport{shown.String()})
	} else {
		_, err = fmt.Fprintln(x.Stdout, shown.String())
		x.Note("serving; Ctrl-C ends it")
		if !at.IP.IsLoopback() {
			x.Note("other machines can reach the page, and what passes is not encrypted: ssh -L is safer")
		}
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	return s.serve(ctx, l)
}
