package trapeze_test

import (
	"bytes"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// cabled makes a network namespace with a cable, and runs what it is given there.
const cabled = `set -e
ip link add port type veth peer name far
ip link set port up
ip link set far up
exec "$@"`

// client says how to run a program that has the agent's socket and nothing else.
type client struct {
	station string
	folder  string // for what it receives
	as      []string
	uid     uint32
	address string
}

// TestAgentAFXDP: programs of two users without rights share one AF_XDP port by the agent. One is in a user namespace
// and a network namespace without an interface. They send files to each other, and to and from a station at the other
// end of the cable.
func TestAgentAFXDP(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a network namespace with AF_XDP needs root")
	}
	dir := shared(t)
	socket, file := filepath.Join(dir, "agent.sock"), filepath.Join(dir, "agent.toml")
	user := func(uid uint32, more ...string) []string {
		id := strconv.Itoa(int(uid))
		return append([]string{"setpriv", "--reuid", id, "--regid", id, "--clear-groups", "--no-new-privs", "--inh-caps=-all"}, more...)
	}
	clients := []*client{
		{station: "02:00:00:00:00:01", uid: 65534, as: user(65534)},
		{station: "02:00:00:00:00:02", uid: 65533, as: user(65533, "unshare", "--map-root-user", "--net", "--mount")},
	}
	text := fmt.Sprintf("socket = %q\nmode = \"0666\"\n[nic.port]\naddress = \"eth:port\"\n", socket)
	for _, c := range clients {
		c.address = "agent:port?mac=" + c.station + "&socket=" + socket
		text += fmt.Sprintf("[[grant]]\nusers = [\"%d\"]\nstations = [%q]\n", c.uid, c.station)
	}
	must.OK(t, os.WriteFile(file, []byte(text), 0o600))
	c := exec.Command("sh", "-c", cabled, "sh", trapeze, "agent", "--file", file, "--json", "--verbose")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET}
	agent := launch(t, c, "agent")
	awaitProgress(t, agent, func() bool {
		s, err := os.Stat(socket)
		return err == nil && s.Mode().Perm() == 0o666
	})
	far := &client{station: "02:00:00:00:00:03", address: "emu:?wire=afxdp:far&mac=02:00:00:00:00:03",
		as: []string{"nsenter", "--net=/proc/" + strconv.Itoa(agent.Process.Pid) + "/ns/net"}}
	for _, c := range append(clients, far) {
		c.folder = filepath.Join(dir, strings.ReplaceAll(c.station, ":", ""))
		must.OK(t, os.Mkdir(c.folder, 0o700))
		must.OK(t, os.Chown(c.folder, int(c.uid), int(c.uid)))
	}
	for _, way := range []struct {
		name     string
		from, to *client
	}{
		{"between users", clients[0], clients[1]},
		{"back", clients[1], clients[0]},
		{"to the port", clients[0], far},
		{"from the port", far, clients[1]},
		{"of a namespace to the port", clients[1], far},
	} {
		t.Run(way.name, func(t *testing.T) {
			content := make([]byte, 1_000_000)
			_, _ = rand.Read(content)
			out := filepath.Join(way.to.folder, "out")
			recv := way.to.run(t, nil, "recv", "--device", way.to.address, "--output", out, "--force")
			if way.to != far {
				listed(t, socket, way.to)
			}
			send := way.from.run(t, bytes.NewReader(content), "send", "--device", way.from.address, "--to", way.to.station, "--name", "out", "--timeout", "1m", "-")
			send.exit(t, long, 0)
			recv.exit(t, long, 0)
			if got, err := os.ReadFile(out); err != nil || !bytes.Equal(got, content) {
				t.Errorf("%d of %d bytes arrived, or others: %v", len(got), len(content), err)
			}
		})
	}
	t.Run("the other's station", func(t *testing.T) {
		other := *clients[0]
		other.address = "agent:port?mac=" + clients[1].station + "&socket=" + socket
		other.run(t, nil, "recv", "--device", other.address, "--output", filepath.Join(other.folder, "none")).
			exit(t, long, 3, "mac="+clients[1].station, "does not grant it")
	})
	signal(t, agent, syscall.SIGTERM)
	agent.exit(t, long, 0)
}

// run starts trapeze as the client does.
func (c *client) run(t *testing.T, input *bytes.Reader, args ...string) *process {
	t.Helper()
	all := append(append([]string{}, c.as...), append([]string{trapeze}, args...)...)
	cmd := exec.Command(all[0], all[1:]...)
	cmd.Env = append(os.Environ(), "TRAPEZE_TELEMETRY=off", "HOME=/")
	if input != nil {
		cmd.Stdin = input
	}
	return launch(t, cmd, args[0])
}

// listed waits until the agent lists a client, and checks as whom.
func listed(t *testing.T, socket string, want *client) {
	t.Helper()
	for end := time.Now().Add(long); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		out := must.Get(exec.Command(trapeze, "agent", "list", "--socket", socket, "--json").Output())(t)
		var r struct {
			Clients []struct {
				Station string `json:"station"`
				UID     uint32 `json:"uid"`
			} `json:"clients"`
		}
		must.OK(t, json.Unmarshal(out, &r), "%s", out)
		for _, c := range r.Clients {
			if c.Station == want.station {
				should.Be(t, c.UID, want.uid, "the user of station %s", c.Station)
				return
			}
		}
	}
	t.Fatalf("station %s does not come", want.station)
}

// shared makes a folder that every user can enter, as the one with the command.
func shared(t *testing.T) string {
	t.Helper()
	dir := must.Get(os.MkdirTemp("", "trapeze-shared-"))(t)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	for d := filepath.Dir(dir); d != "/"; d = filepath.Dir(d) {
		if s, err := os.Stat(d); err != nil || s.Mode().Perm()&1 == 0 {
			t.Skipf("other users may not pass %s (%v): set TMPDIR to a folder that lets them in", d, err)
		}
	}
	for _, d := range []string{dir, filepath.Dir(trapeze)} {
		must.OK(t, os.Chmod(d, 0o755))
	}
	return dir
}
