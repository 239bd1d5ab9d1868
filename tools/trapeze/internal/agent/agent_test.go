package agent_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math/rand/v2"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

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
	c, err := agent.Parse("agent.toml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	a, err := agent.New(t.Context(), c, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	l, err := agent.Listen(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
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
		if err := errors.Join(<-done, a.Close()); err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func open(t *testing.T, address string) *via.NIC {
	t.Helper()
	n, err := via.Open(t.Context(), address, via.Options{NoTelemetry: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = n.Close() })
	return n
}

// exchange sends a message from one NIC to another and compares it.
func exchange(t *testing.T, from, to *via.NIC, name string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	l, err := via.Listen(to, name, takeSmall)
	if err != nil {
		t.Fatal(err)
	}
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
	c, err := l.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
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
	if err := <-sent; err != nil {
		t.Error(err)
	}
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

// TestAgentReturns: a client that is there goes on with the next agent.
func TestAgentReturns(t *testing.T) {
	text := "socket = \"" + filepath.Join(t.TempDir(), "s") + "\"\n" + local + "direct = false\n"
	at := "agent:local?engine=thread&socket=" + strings.Split(text, "\"")[1]
	stop := start(t, text)
	one, two := open(t, at), open(t, at)
	exchange(t, one, two, "before")
	stop()
	start(t, text)
	exchange(t, one, two, "after")
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
	l, err := via.Listen(to, "stream", via.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
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
	c, err := l.Accept(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	for i := range messages {
		if i == before {
			stop()
			start(t, text)
		}
		got, err := c.Receive(ctx)
		if err != nil || len(got) != 2 || int(got[0])|int(got[1])<<8 != i {
			t.Fatalf("message %d: %x, %v", i, got, err)
		}
		if err := c.Release(); err != nil {
			t.Fatal(err)
		}
	}
	if err := <-sent; err != nil {
		t.Error(err)
	}
}

func TestRefuses(t *testing.T) {
	socket := serve(t, local+"vis = 8\nmemory = \"1M\"\nclients = 1\nstations = [\"02:00:00:00:01:00/40\"]\n")
	for options, want := range map[string]string{"local?vis=9": "vis=9", "local?memory=2M": "memory=", "other?": "no NIC", "local?mac=02:00:00:00:02:00": "does not grant"} {
		_, err := via.Open(t.Context(), "agent:"+options+"&socket="+socket, via.Options{NoTelemetry: true})
		var refused *agentlink.RefusedError
		if !errors.As(err, &refused) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", options, err, want)
		}
	}
	open(t, "agent:?socket="+socket)
	if _, err := via.Open(t.Context(), "agent:?socket="+socket, via.Options{NoTelemetry: true}); !errors.Is(err, unix.EAGAIN) {
		t.Errorf("a second NIC: %v", err)
	}
}

// TestVanish: clients that break off at any step leave nothing behind, and hold up no other.
func TestVanish(t *testing.T) {
	socket := serve(t, local)
	request := []byte("\x00\x00\x00\x1d{\"kind\":\"open\",\"version\":1}   \xff\xff\xff\xff")
	for range 200 {
		c, err := net.Dial("unix", socket)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = c.Write(request[:rand.IntN(len(request)+1)])
		_ = c.Close()
	}
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(5 * time.Millisecond) {
		if n := len(list(t, socket)); n == 0 {
			break
		} else if time.Now().After(end) {
			t.Fatalf("%d clients stay", n)
		}
	}
	at := "agent:?engine=thread&socket=" + socket
	exchange(t, open(t, at), open(t, at), "still")
}

func list(t *testing.T, socket string) []agentlink.Client {
	t.Helper()
	_, clients, err := agentlink.Ask(t.Context(), socket)
	if err != nil {
		t.Fatal(err)
	}
	return clients
}

func TestTwoAgents(t *testing.T) {
	socket := serve(t, local)
	c, err := agent.Parse("f", []byte("socket = \""+socket+"\"\n"+local))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := agent.Listen(t.Context(), c); !errors.Is(err, unix.EADDRINUSE) {
		t.Errorf("a second agent: %v", err)
	}
	var listed bytes.Buffer
	list := agent.Command(&command.Env{JSON: true, Stdout: &listed, Stderr: &listed})
	list.SetArgs([]string{"list", "--socket", socket})
	if err := list.ExecuteContext(t.Context()); err != nil || !strings.Contains(listed.String(), `"clients": []`) {
		t.Errorf("an agent without clients: %v, %s", err, &listed)
	}
}

func TestFile(t *testing.T) {
	if _, err := agent.Load("../../../../examples/agent.toml"); err != nil {
		t.Error(err)
	}
	for text, want := range map[string]string{
		"x = 1": "f:1: x", "[nic.a": "f:1", local + "vis = 0": "f:5: grant[0].vis", local + "rate = \"1\"": "f:5: grant[0].rate",
		local + "nics = [\"b\"]": "f:5: grant[0].nics", local + "users2 = 1": "f:5: grant.users2",
		local + "Users = [\"*\"]": "f:5: grant.Users: there is no such key", "[[Grant]]\nusers = [\"*\"]\n": "f:1: Grant: there is no such key",
		local + "clients = \"1\"":                                  "f:5: grant.clients: it takes a whole number",
		"mode = \"9\"\n" + local:                                   "f:1: mode",
		local + "rate = \"1M\"\ndirect = true":                     "f:6: grant[0].direct",
		"socket = \"/" + strings.Repeat("x", 107) + "\"\n" + local: "f:1: socket: path", "socket = \"@\"\n" + local: "f:1: socket: path",
		"[nic.a]\naddress = \"usb:1\"\n":                   "f:2: nic.a.address",
		"[nic.a]\naddress = \"emu:?rite=1M\"\n":            "f:2: nic.a.address: open emu:?rite=1M: bad device address: unknown option \"rite\" (did you mean rate?)",
		"[nic.a]\naddress = \"emu:?wire=mem:a\"\n":         "f:2: nic.a.address: open emu:?wire=mem:a: bad device address: it has no wire that can be shared",
		"[nic.a]\naddress = \"eth:\"\n":                    "f:2: nic.a.address",
		"[nic.a]\naddress = \"pci:0000:03:00.0\"\n":        "f:2: nic.a.address: \"pci:0000:03:00.0\" is no port: give that of an Ethernet NIC, as eth:eth0",
		"[nic.a]\naddress = \"vfio-user:/run/nic.sock\"\n": "or a wire, as emu:?wire=udp:",
		local + "stations = [\"ff:ff:ff:ff:ff:ff\"]":       "grant[0].stations", "": "nic", "[nic.a]\naddress = \"emu:\"": "grant",
	} {
		_, err := agent.Parse("f", []byte(text))
		var bad *agent.ConfigError
		if !errors.As(err, &bad) || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
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
