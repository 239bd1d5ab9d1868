package agentlink_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/agentlink"
)

// TestAskPrintable: what a fake agent says is no command to a terminal, and no line of its own.
func TestAskPrintable(t *testing.T) {
	leaktest.Check(t)
	const evil, tame = "\x1b]0;x\x07a\nb", "?]0;x?a?b"
	for _, answer := range []agentlink.Message{
		{Kind: agentlink.Refuse, Why: evil},
		{Kind: agentlink.List, NICs: []agentlink.NIC{{Name: evil, State: evil}},
			Clients: []agentlink.Client{{NIC: evil, Station: evil, Program: evil, Grant: evil}}},
	} {
		path := filepath.Join(t.TempDir(), "s")
		l := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))(t)
		sent := make(chan error, 1)
		go func() {
			found, err := l.AcceptUnix()
			if err == nil {
				agent := agentlink.New(found)
				_, _, err = agent.Receive(time.Now().Add(time.Minute))
				err = errors.Join(err, agent.Send(answer), found.Close())
			}
			sent <- err
		}()
		nics, clients, err := agentlink.Ask(t.Context(), path)
		said := fmt.Sprint(nics, clients, err)
		if strings.ContainsAny(said, "\x1b\x07\n") || !strings.Contains(said, tame) {
			t.Errorf("%q", said)
		}
		should.OK(t, errors.Join(<-sent, l.Close()))
	}
	should.Be(t, (&agentlink.RefusedError{Why: evil}).Error(), "the agent refuses: "+tame)
}

// TestAsk: what is asked ends with ctx, and an agent that answers something else is none. Nothing that it passes stays open.
func TestAsk(t *testing.T) {
	leaktest.Check(t)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	for name, c := range map[string]struct {
		answer func(*agentlink.Conn) error
		want   error
	}{
		"it refuses": {func(c *agentlink.Conn) error {
			return c.Send(agentlink.Message{Kind: agentlink.Refuse, Why: "no"})
		}, agentlink.ErrMessage},
		"it passes a descriptor": {func(c *agentlink.Conn) error {
			return c.Send(agentlink.Message{Kind: agentlink.List}, int(os.Stdin.Fd()))
		}, agentlink.ErrMessage},
		"it says nothing that can be read": {func(c *agentlink.Conn) error {
			_, err := c.UnixConn.Write([]byte{0, 0, 0, 1, '{'})
			return err
		}, agentlink.ErrMessage},
		"it says nothing": {func(*agentlink.Conn) error {
			cancel()
			return nil
		}, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			asking := t.Context()
			if errors.Is(c.want, context.Canceled) {
				asking = ctx
			}
			path := filepath.Join(t.TempDir(), "s")
			l, err := net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
			must.OK(t, err)
			defer l.Close()
			asked, done := make(chan struct{}), make(chan error, 1)
			go func() {
				found, err := l.AcceptUnix()
				if err == nil {
					defer found.Close()
					err = c.answer(agentlink.New(found))
				}
				done <- err
				<-asked
			}()
			_, _, err = agentlink.Ask(asking, path)
			close(asked)
			should.Fail(t, err, c.want)
			should.OK(t, <-done)
		})
	}
	// Whenever ctx ends, its error is that of Ask.
	path := filepath.Join(t.TempDir(), "silent")
	l := must.Get(net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"}))(t)
	defer l.Close()
	for range 100 { // fewer than a socket's backlog
		ctx, cancel := context.WithCancel(t.Context())
		go cancel()
		if _, _, err := agentlink.Ask(ctx, path); !errors.Is(err, context.Canceled) {
			t.Fatalf("%v, want %v", err, context.Canceled)
		}
	}
	if _, _, err := agentlink.Ask(t.Context(), filepath.Join(t.TempDir(), "s")); !errors.Is(err, unix.ENOENT) {
		t.Errorf("no agent: %v", err)
	}
}
