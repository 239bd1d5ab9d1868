package agent_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/agent"
	"github.com/trapeze-nic/trapeze/via"
)

// serve runs an agent with a file, and returns the address of its socket as an option.
func serve(t testing.TB, text string) (socket string) {
	t.Helper()
	socket = filepath.Join(t.TempDir(), "s")
	start(t, "socket = \""+socket+"\"\n"+text)
	return socket
}

func start(t testing.TB, text string) (stop func()) {
	t.Helper()
	c := must.Get(agent.Parse("agent.toml", []byte(text)))(t)
	a := must.Get(agent.New(t.Context(), c, slog.New(slog.DiscardHandler)))(t)
	l := must.Get(agent.Listen(t.Context(), c))(t)
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- a.Serve(ctx, l) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		should.OK(t, errors.Join(<-done, a.Close()))
	}
	t.Cleanup(stop)
	return stop
}

func open(t *testing.T, address string) *via.NIC {
	t.Helper()
	n := must.Get(via.Open(t.Context(), address, via.Options{NoTelemetry: true}))(t)
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// exchange sends a message from one NIC to another and compares it.
func exchange(t *testing.T, from, to *via.NIC, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	l := must.Get(via.Listen(to, name, takeSmall))(t)
	defer l.Close()
	want := bytes.Repeat([]byte("0123456789abcdef"), 4096)
	sent := make(chan error, 1)
	go func() {
		c, err := via.Dial(ctx, from, l.Address().String(), small)
		if err == nil {
			defer c.Close()
			err = c.Send(ctx, want[:4<<10])
		}
		sent <- err
		<-ctx.Done()
	}()
	c := must.Get(l.Accept(ctx))(t)
	defer c.Close()
	got, err := c.Receive(ctx)
	if err != nil || !bytes.Equal(got, want[:4<<10]) {
		select {
		case err := <-sent:
			t.Logf("sender: %v", err)
		default:
		}
		t.Fatalf("%d bytes, %v", len(got), err)
	}
	cancel()
	should.OK(t, <-sent)
}

const local = "[nic.local]\naddress = \"emu:\"\n[[grant]]\nusers = [\"*\"]\n"

func TestClientsExchange(t *testing.T) {
	for name, text := range map[string]string{"direct": local, "through the agent": local + "direct = false\n", "with a rate": local + "rate = \"50M\"\n"} {
		t.Run(name, func(t *testing.T) {
			at := "agent:local?engine=thread&socket=" + serve(t, text)
			exchange(t, open(t, at), open(t, at), "hello")
		})
	}
}

// TestConnectionOutlivesAgent: a connection through the agent goes on when the next one comes soon. Each
// message arrives once, in order.
func TestConnectionOutlivesAgent(t *testing.T) {
	text := "socket = \"" + filepath.Join(t.TempDir(), "s") + "\"\n" + local + "direct = false\n"
	at := "agent:local?engine=thread&socket=" + strings.Split(text, "\"")[1]
	stop := start(t, text)
	from, to := open(t, at), open(t, at)
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	l := must.Get(via.Listen(to, "stream", via.ListenOptions{}))(t)
	defer l.Close()
	const messages, before = 400, 100
	sent := make(chan error, 1)
	go func() {
		c, err := via.Dial(ctx, from, l.Address().String(), via.ConnOptions{})
		for i := range messages {
			if err == nil {
				err = c.Send(ctx, []byte{byte(i), byte(i >> 8)})
			}
		}
		if sent <- err; c != nil {
			<-ctx.Done()
			_ = c.Close()
		}
	}()
	c := must.Get(l.Accept(ctx))(t)
	defer c.Close()
	for i := range messages {
		if i == before {
			stop()
			start(t, text)
		}
		got, err := c.Receive(ctx)
		must.Hold(t, err == nil && len(got) == 2 && int(got[0])|int(got[1])<<8 == i, "message %d: %x, %v", i, got, err)
		must.OK(t, c.Release())
	}
	should.OK(t, <-sent)
}

func list(t *testing.T, socket string) (clients []agentlink.Client) {
	t.Helper()
	waittest.Until(t, "the agent answers in time", func() bool { // not at once where the machine is busy
		var err error
		if _, clients, err = agentlink.Ask(t.Context(), socket); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Fatal(err)
		}
		return err == nil
	})
	return clients
}

func TestTwoAgents(t *testing.T) {
	socket := serve(t, local)
	c := must.Get(agent.Parse("f", []byte("socket = \""+socket+"\"\n"+local)))(t)
	should.Refuse(agent.Listen(t.Context(), c))(t, unix.EADDRINUSE, "a second agent")
	var listed bytes.Buffer
	list := agent.Command(&command.Env{JSON: true, Stdout: &listed, Stderr: &listed})
	list.SetArgs([]string{"list", "--socket", socket})
	err := list.ExecuteContext(t.Context())
	should.Hold(t, err == nil && strings.Contains(listed.String(), `"clients": []`), "an agent without clients: %v, %s", err, &listed)
}

func TestFile(t *testing.T) {
	if _, err := agent.Load("../../../../examples/agent.toml"); err != nil {
		t.Error(err)
	}
	for text, want := range map[string]string{
		"x = 1": "f: x: there is no such key", "[nic.a": "f:1", local + "vis = 0": "f: grant[0].vis", local + "rate = \"1\"": "f: grant[0].rate",
		local + "nics = [\"b\"]": "f: grant[0].nics", local + "users2 = 1": "f: grant[0].users2: there is no such key; did you mean users?",
		local + "clients = {}":     "f: grant[0].clients: such a value cannot stand there",
		local + "clients = [1, 2]": "f: grant[0].clients", local + "cgroups = []": "f: grant[0].cgroups: it is empty",
		"mode = \"9\"\n" + local:                                   "f: mode",
		local + "rate = \"1M\"\ndirect = true":                     "f: grant[0].direct",
		"socket = \"/" + strings.Repeat("x", 107) + "\"\n" + local: "f: socket: path", "socket = \"@\"\n" + local: "f: socket: path",
		"[nic.a]\naddress = \"usb:1\"\n":                   "f: nic.a.address",
		"[nic.a]\naddress = \"emu:?rite=1M\"\n":            "f: nic.a.address: open emu:?rite=1M: bad device address: unknown option \"rite\" (did you mean rate?)",
		"[nic.a]\naddress = \"emu:?wire=mem:a\"\n":         "f: nic.a.address: open emu:?wire=mem:a: bad device address: it has no wire that can be shared",
		"[nic.a]\naddress = \"eth:\"\n":                    "f: nic.a.address",
		"[nic.a]\naddress = \"pci:0000:03:00.0\"\n":        "f: nic.a.address: \"pci:0000:03:00.0\" is no port: give that of an Ethernet NIC, as eth:eth0",
		"[nic.a]\naddress = \"vfio-user:/run/nic.sock\"\n": "or a wire, as emu:?wire=udp:",
		local + "stations = [\"ff:ff:ff:ff:ff:ff\"]":       "grant[0].stations", "": "nic", "[nic.a]\naddress = \"emu:\"": "grant",
	} {
		_, err := agent.Parse("f", []byte(text))
		var bad *agent.ConfigError
		should.Hold(t, errors.As(err, &bad) && strings.Contains(err.Error(), want), "%q: %v, want %q", text, err, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add([]byte(local))
	f.Add([]byte(local + "stations = [\"02:00:00:00:01:00/40\"]\nrate = \"1M\"\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		_, err := agent.Parse("f", text)
		var bad *agent.ConfigError
		if err != nil && !errors.As(err, &bad) {
			t.Errorf("%v is no ConfigError", err)
		}
	})
}
