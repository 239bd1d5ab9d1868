package telemetrycmd

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"net/url"
	"time"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
)

// webReport is printed by web when it serves.
type webReport struct {
	URL string `json:"url" help:"with the token"`
}

type webFlags struct {
	Listen   string        `flag:"listen,l" default:"127.0.0.1:8080" help:"address to serve at; port 0 is any that is free"`
	Interval time.Duration `flag:"interval,i" default:"500ms" range:"50ms..1h" help:"time from one look at the NICs to the next"`
	NoToken  bool          `flag:"no-token" help:"show the page to all users of this host, without a token"`
}

func (x *commands) web(ctx context.Context, f *webFlags, _ []string) error {
	l, err := command.Listen(ctx, "--listen", f.Listen)
	if err != nil {
		return err
	}
	name, _, _ := net.SplitHostPort(f.Listen)
	at := l.Addr().(*net.TCPAddr)
	s := &site{feed: newFeed(ctx, f.Interval), name: name, timeout: webTimeout}
	defer s.feed.close()
	shown := url.URL{Scheme: "http", Host: at.String(), Path: "/"}
	if at.IP.IsUnspecified() {
		shown.Host = net.JoinHostPort("127.0.0.1", fmt.Sprint(at.Port))
	}
	switch {
	case !f.NoToken:
		s.token = rand.Text()
		shown.RawQuery = url.Values{"token": {s.token}}.Encode()
	case !at.IP.IsLoopback():
		return errors.Join(option.Errorf("--no-token: other machines can reach %s; listen at 127.0.0.1", at), l.Close())
	}
	err = x.Printf(webReport{shown.String()}, "%s\n", &shown)
	x.Note("serving; Ctrl-C ends it")
	if !at.IP.IsLoopback() {
		x.Note("other machines can reach the page, and what passes is not encrypted: ssh -L is safer")
	}
	if err != nil {
		return errors.Join(err, l.Close())
	}
	return s.serve(ctx, l)
}
