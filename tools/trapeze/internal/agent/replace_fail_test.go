package agent_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/internal/agentlink"
	"github.com/trapeze-nic/trapeze/internal/unixsocket"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/agent"
	"github.com/trapeze-nic/trapeze/via"
)

// dialAgent connects with an agent.
func dialAgent(t testing.TB, socket string) *agentlink.Conn {
	t.Helper()
	c := must.Get(net.Dial("unix", socket))(t)
	return agentlink.New(c.(*net.UnixConn))
}

// take waits for a message of a kind, and closes what it passes.
func take(t testing.TB, c *agentlink.Conn, kind string) agentlink.Message {
	t.Helper()
	m, fds, err := c.ReceiveMany(time.Now().Add(20*time.Second), agentlink.MaxPassed)
	agentlink.Drop(fds)
	must.Hold(t, err == nil && m.Kind == kind, "kind %q, want %q: %s, %v", m.Kind, kind, m.Why, err)
	return m
}

// TestReplaceBroken: a new agent that dies, refuses or talks nonsense in any step has the old one go on. Up to the
// last step the connections do not notice; behind it they begin anew.
func TestReplaceBroken(t *testing.T) {
	const give = ""
	steps := []struct{ send, await string }{
		{agentlink.Replace, agentlink.State}, {give, agentlink.Lent}, {give, agentlink.Lent}, {agentlink.Checked, agentlink.Closed},
		{agentlink.Opened, agentlink.Over},
	}
	for name, fail := range map[string]func(c *agentlink.Conn){
		"dies":    func(*agentlink.Conn) {},
		"refuses": func(c *agentlink.Conn) { _ = c.Send(agentlink.Message{Kind: agentlink.Refuse, Why: "a reason"}) },
		"lies":    func(c *agentlink.Conn) { _ = c.Send(agentlink.Message{Kind: agentlink.Serving}) },
	} {
		t.Run(name, func(t *testing.T) {
			checkAll(t)
			text, socket := indirect(t)
			a := begin(t, text)
			from, to := shared(t, socket)
			var s stream
			s.begin(t, from, to)
			for reach := range len(steps) {
				s.progress(t, 10)
				c := dialAgent(t, socket)
				for i, step := range steps[:reach+1] {
					if name == "lies" && i == len(steps)-1 {
						break // behind it, that it serves would be the truth
					}
					if step.send != give {
						must.OK(t, c.Send(agentlink.Message{Kind: step.send, Version: agentlink.Version}))
					}
					take(t, c, step.await)
				}
				fail(c)
				c.Leave() // as TakeOver
				s.progress(t, 50)
				_, ok := a.agent.Successor()
				must.Hold(t, !ok, "replaced after step %d", reach)
			}
			s.end(t)
			exchange(t, from, to, "after")
			a = a.replaced(t, text) // another one can
			_, _ = from.Close(), to.Close()
			a.end(t)
		})
	}
}

// TestReplaceRefused: other users, a second new agent, and another version get no answer but no.
func TestReplaceRefused(t *testing.T) {
	checkAll(t)
	socket := fmt.Sprintf("@trapeze-replace-test-%d", unix.Getpid()) // to which all can connect
	text := "socket = \"" + socket + "\"\n" + local
	a := begin(t, text)
	first := dialAgent(t, socket)
	defer first.Close()
	replace := agentlink.Message{Kind: agentlink.Replace, Version: agentlink.Version}
	must.OK(t, first.Send(replace))
	take(t, first, agentlink.State)
	first.Close()
	waittest.Until(t, "it goes on", func() bool { return listening(socket) })
	old := dialAgent(t, socket)
	defer old.Close()
	must.OK(t, old.Send(agentlink.Message{Kind: agentlink.Replace, Version: agentlink.Version + 1}))
	take(t, old, agentlink.Refuse)
	t.Run("another user", func(t *testing.T) {
		if unix.Geteuid() != 0 {
			t.Skip("it takes root")
		}
		why := make(chan string, 1)
		go func() {
			runtime.LockOSThread() // of another user from now on; it ends with the goroutine
			const nobody = 65534
			if _, _, errno := unix.RawSyscall(unix.SYS_SETRESUID, nobody, nobody, nobody); errno != 0 {
				why <- errno.Error()
				return
			}
			fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
			if err == nil {
				err = unix.Connect(fd, &unix.SockaddrUnix{Name: socket})
			}
			if err != nil {
				_ = unix.Close(fd)
				why <- err.Error()
				return
			}
			c, err := unixsocket.TakeConn(fd, unix.SOCK_STREAM)
			if err != nil {
				why <- err.Error()
				return
			}
			l := agentlink.New(c)
			defer l.Close()
			_ = l.Send(replace)
			m, _, err := l.Receive(time.Now().Add(20 * time.Second))
			why <- fmt.Sprint(m.Kind, " ", m.Why, " ", err)
		}()
		should.Contain(t, <-why, "refuse user 65534 may not replace it")
	})
	a.end(t)
	if _, _, err := agent.TakeOver(t.Context(), parse(t, text), quiet); !errors.Is(err, unix.ECONNREFUSED) {
		t.Errorf("without an agent: %v", err)
	}
}

// TestReplaceNIC: if the new agent cannot open its NIC the old one opens it again, and connections to elsewhere go on.
func TestReplaceNIC(t *testing.T) {
	checkAll(t)
	text, socket := indirect(t)
	here := filepath.Join(t.TempDir(), "wire")
	wired := func(path string) string {
		return strings.Replace(text, "\"emu:\"", "\"emu:?wire=shm:"+path+"&role=listen\"", 1)
	}
	a := begin(t, wired(here))
	at := "agent:local?engine=thread&socket=" + socket
	from := must.Get(via.Open(t.Context(), at, via.Options{NoTelemetry: true}))(t)
	to := must.Get(via.Open(t.Context(), "emu:?engine=thread&wire=shm:"+here+"&role=connect", via.Options{NoTelemetry: true}))(t)
	var s stream
	s.begin(t, from, to)
	for range 3 {
		s.progress(t, 20)
		_, _, err := agent.TakeOver(t.Context(), parse(t, wired("/proc/no/such/folder")), quiet)
		must.Hold(t, err != nil, "taken over without the NIC")
		s.progress(t, 20)
		a = a.replaced(t, wired(here))
	}
	s.progress(t, 20)
	s.end(t)
	_, _ = from.Close(), to.Close()
	a.end(t)
}

// TestReplaceGrants: the new agent's file decides. A client that it grants nothing is let go, and refused when it asks.
func TestReplaceGrants(t *testing.T) {
	checkAll(t)
	text, socket := indirect(t)
	a := begin(t, text)
	from, to := shared(t, socket)
	exchange(t, from, to, "before")
	a = a.replaced(t, text+"clients = 1\n")
	waittest.Until(t, "1 clients are listed", func() bool { return len(list(t, socket)) == 1 })
	a = a.replaced(t, text) // and now both are granted again
	waittest.Until(t, "2 clients are listed", func() bool { return len(list(t, socket)) == 2 })
	exchange(t, from, to, "after")
	_, _ = from.Close(), to.Close()
	a.end(t)
}

// goodState and goodClient are what an agent without clients passes, and one client of it.
const (
	goodState  = `{"version":1,"nics":[{"name":"local","received":0,"unknown":0}],"clients":0,"removes":true,"supervisor":{"notify":"","watchdog":""}}`
	goodClient = `{"nic":"local","station":"02:00:00:00:00:01","program":"p","vis":64,"memory":0,"checksum":false,` +
		`"counters":{"frames":1,"bytes":2,"arrived":3,"dropped":0,"lost":0,"forged":0,"refused":0,"slowed":0},` +
		`"wire":{"mtu":16448,"peer_mtu":16448,"ring":262144,"barriers":false,"pulled":false,"head":64,"sent":1,` +
		`"tail":128,"received":2,"wakes":1}}`
)

// badStates are changes of the good ones, and the field that the error names.
var badStates = []struct{ from, to, field string }{
	{`"version":1`, `"version":2`, "state.version"},
	{`"version":1`, `"version":"1"`, "state"},
	{`{"version"`, `{"more":1,"version"`, "state.more"},
	{`true,"supervisor"`, `3,"supervisor"`, "state.removes"},
	{`"name":"local"`, `"name":"../x"`, "state.nics[0].name"},
	{`"received":0,"unknown":0}]`, `"received":0,"unknown":0},{"name":"local"}]`, "state.nics[1].name"},
	{`"clients":0`, `"clients":-1`, "state.clients"},
	{`"clients":0`, `"clients":257`, "state.clients"},
}

var badClients = []struct{ from, to, field string }{
	{`"local"`, `""`, "client[3].nic"},
	{`02:00:00:00:00:01`, `ff:ff:ff:ff:ff:ff`, "client[3].station"},
	{`02:00:00:00:00:01`, `x`, "client[3].station"},
	{`"program":"p"`, `"program":"a b"`, "client[3].program"},
	{`"vis":64`, `"vis":0`, "client[3].vis"},
	{`"vis":64`, `"vis":-1`, "client[3].vis"},
	{`"ring":262144`, `"ring":262143`, "client[3].wire.ring"},
	{`"peer_mtu":16448`, `"peer_mtu":1048576`, "client[3].wire.peer_mtu"},
	{`"head":64`, `"head":65`, "client[3].wire.head"},
	{`"tail":128`, `"tail":127`, "client[3].wire.tail"},
	{`"wire"`, `"wires"`, "client[3].wires"},
	{`"wakes":1}}`, `"wakes":1}} x`, "client[3]"},
}

// TestReplaceState: a corrupt state, or one of a newer version, is refused by an error that names the field.
func TestReplaceState(t *testing.T) {
	must.OK(t, errors.Join(agent.ParseState([]byte(goodState)), agent.ParseClient([]byte(goodClient))))
	check := func(err error, text, field string) {
		t.Helper()
		var bad *agent.StateError
		should.Hold(t, errors.As(err, &bad) && bad.Field == field && errors.Is(err, agent.ErrState), "%s: %v, want %s", text, err, field)
	}
	for _, b := range badClients {
		text := strings.Replace(goodClient, b.from, b.to, 1)
		check(agent.ParseClient([]byte(text)), text, b.field)
	}
	checkAll(t)
	socket := filepath.Join(t.TempDir(), "s")
	l := must.Get(unixsocket.Listen(t.Context(), "unix", socket, 0o600))(t)
	defer l.Close()
	config := parse(t, "socket = \""+socket+"\"\n"+local)
	ends := must.Get(unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0))(t)
	defer agentlink.Drop(ends[:])
	for _, b := range badStates {
		text := strings.Replace(goodState, b.from, b.to, 1)
		said := make(chan string, 1)
		go func() {
			found, err := l.AcceptUnix()
			if err != nil {
				said <- err.Error()
				return
			}
			c := agentlink.New(found)
			defer c.Close()
			_, _, _ = c.Receive(time.Now().Add(20 * time.Second))
			fd, _ := unixsocket.Duplicate(l)
			_ = c.Send(agentlink.Message{Kind: agentlink.State, State: json.RawMessage(text)}, fd)
			unix.Close(fd)
			_ = c.Send(agentlink.Message{Kind: agentlink.Lent}, ends[0])
			m, _, err := c.Receive(time.Now().Add(20 * time.Second))
			said <- fmt.Sprint(m.Kind, " ", m.Why, " ", err)
		}()
		_, _, err := agent.TakeOver(t.Context(), config, quiet)
		check(err, text, b.field)
		got := <-said
		should.Hold(t, strings.Contains(got, "refuse ") && strings.Contains(got, b.field), "the old agent is told %q, want %s", got, b.field)
		if _, err := unix.Write(ends[0], []byte{1}); err != nil {
			t.Fatalf("a connection of a client that was passed is cut: %v", err)
		}
	}
}

// FuzzState: whatever another agent passes is taken, or refused by a StateError.
func FuzzState(f *testing.F) {
	f.Add([]byte(goodState), []byte(goodClient))
	for _, b := range badStates {
		f.Add([]byte(strings.Replace(goodState, b.from, b.to, 1)), []byte(goodClient))
	}
	for _, b := range badClients {
		f.Add([]byte(goodState), []byte(strings.Replace(goodClient, b.from, b.to, 1)))
	}
	f.Fuzz(func(t *testing.T, state, client []byte) {
		for _, err := range []error{agent.ParseState(state), agent.ParseClient(client)} {
			var bad *agent.StateError
			if err != nil && (!errors.As(err, &bad) || bad.Field == "") {
				t.Errorf("%v is no StateError", err)
			}
		}
	})
}
