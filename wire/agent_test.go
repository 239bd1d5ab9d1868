package wire_test

import (
	"context"
	"encoding/binary"
	"errors"
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
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
	"github.com/trapeze-nic/trapeze/wire"
)

// TestBadAgent: a program believes no agent. What is not the answer that it should be is an error of the right kind, soon,
// and no descriptor stays.
func TestBadAgent(t *testing.T) {
	leaktest.Check(t)
	welcome := agentlink.Message{Kind: agentlink.Welcome, Version: agentlink.Version, NIC: "n", Station: "02:00:00:00:00:01", MTU: 9000, VIs: 1}
	with := func(change func(m *agentlink.Message)) agentlink.Message {
		m := welcome
		change(&m)
		return m
	}
	file := must.Get(os.CreateTemp(t.TempDir(), ""))(t)
	defer file.Close()
	memory := must.Get(unix.MemfdCreate("not sealed", unix.MFD_CLOEXEC))(t)
	defer unix.Close(memory)
	stream := must.Get(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))(t)
	defer unix.Close(stream[0])
	defer unix.Close(stream[1])
	packets := must.Get(unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0))(t)
	defer unix.Close(packets[0])
	defer unix.Close(packets[1])
	says := func(m agentlink.Message, fd int) func(c *agentlink.Conn, raw *net.UnixConn) error {
		return func(c *agentlink.Conn, _ *net.UnixConn) error { return c.Send(m, fd) }
	}
	writes := func(b string, fds ...int) func(c *agentlink.Conn, raw *net.UnixConn) error {
		return func(_ *agentlink.Conn, raw *net.UnixConn) error {
			_, _, err := raw.WriteMsgUnix([]byte(b), unix.UnixRights(fds...), nil)
			return err
		}
	}
	wires := func(do func(other int) error) func(c *agentlink.Conn, raw *net.UnixConn) error {
		return func(c *agentlink.Conn, _ *net.UnixConn) error {
			pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
			if err != nil {
				return err
			}
			return errors.Join(do(pair[1]), c.Send(welcome, pair[0]), unix.Close(pair[0]), unix.Close(pair[1]))
		}
	}
	for name, c := range map[string]struct {
		do   func(c *agentlink.Conn, raw *net.UnixConn) error
		want error
		says string
	}{
		"no descriptor":            {says(welcome, -1), agentlink.ErrMessage, "with a descriptor"},
		"a file":                   {says(welcome, int(file.Fd())), agentlink.ErrMessage, "no connection of the kind"},
		"memory":                   {says(welcome, memory), agentlink.ErrMessage, "no connection of the kind"},
		"a stream":                 {says(welcome, stream[0]), agentlink.ErrMessage, "no connection of the kind"},
		"two wires":                {writes("\x00\x00\x00\x02{}", packets[0], packets[1]), agentlink.ErrMessage, "2 descriptors"},
		"another version":          {says(with(func(m *agentlink.Message) { m.Version = 2 }), packets[0]), agentlink.ErrMessage, "version 2"},
		"another kind":             {says(with(func(m *agentlink.Message) { m.Kind = agentlink.List }), packets[0]), agentlink.ErrMessage, `kind "list"`},
		"no station":               {says(with(func(m *agentlink.Message) { m.Station = "" }), packets[0]), agentlink.ErrMessage, "no station"},
		"a group for a station":    {says(with(func(m *agentlink.Message) { m.Station = "03:00:00:00:00:01" }), packets[0]), agentlink.ErrMessage, "no station"},
		"a negative MTU":           {says(with(func(m *agentlink.Message) { m.MTU = -1 }), packets[0]), wire.ErrOptions, "MTU"},
		"an MTU that is too long":  {says(with(func(m *agentlink.Message) { m.MTU = 1 << 30 }), packets[0]), wire.ErrOptions, "MTU"},
		"no message":               {writes("\x00\x00\x00\x04open"), agentlink.ErrMessage, "invalid"},
		"a huge message":           {writes("\x7f\xff\xff\xff"), agentlink.ErrMessage, "2147483647 bytes"},
		"nothing":                  {func(*agentlink.Conn, *net.UnixConn) error { return nil }, nil, "EOF"},
		"half a message":           {writes("\x00\x00\x00\x10{\"kind\""), nil, "EOF"},
		"no":                       {says(agentlink.Message{Kind: agentlink.Refuse, Version: 1, Why: "vis=9", Errno: uint32(unix.EPERM)}, packets[0]), unix.EPERM, "vis=9"},
		"a wire that says nothing": {wires(func(int) error { return nil }), wire.ErrGone, ""},
		"a wire of garbage": {wires(func(other int) error {
			b := binary.LittleEndian.AppendUint64(nil, 0xffff_ffff_ffff_ffff)
			return unix.Sendmsg(other, b, unix.UnixRights(memory), nil, 0)
		}), nil, "agent:n"},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			l := must.Get(unixsocket.Listen(t.Context(), "unix", path, 0o600))(t)
			done := make(chan error, 1)
			go func() {
				raw, err := l.AcceptUnix()
				if err != nil {
					done <- err
					return
				}
				agent := agentlink.New(raw)
				defer agent.Close()
				if _, _, err = agent.Receive(time.Now().Add(time.Minute)); err == nil {
					err = c.do(agent, raw)
				}
				done <- err
			}()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			p, _, err := wire.NewAgent(ctx, wire.AgentOptions{Socket: path, NIC: "n"})
			if err == nil {
				_ = p.Close()
				t.Fatal("it is taken for an agent")
			}
			var e *wire.Error
			if !errors.As(err, &e) || c.want != nil && !errors.Is(err, c.want) || !strings.Contains(err.Error(), c.says) {
				t.Errorf("%v, want %v and %q", err, c.want, c.says)
			}
			should.OK(t, errors.Join(<-done, l.Close()))
		})
	}
}
