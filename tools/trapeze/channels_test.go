package trapeze_test

import (
	"encoding/json"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// nicChannels is what a NIC says of its channels.
type nicChannels struct {
	Open               int
	High, Low, Receive struct{ Level, Highest int }
	Room               int    `json:"receive_cells"`
	Sent               uint64 `json:"cells_sent"`
	Received           uint64 `json:"cells_received"`
}

// decoded reads what a process has printed.
func decoded[T any](t *testing.T, p *process) (v T) {
	t.Helper()
	must.OK(t, json.Unmarshal(p.stdout.Bytes(), &v), "in %s\n%s", &p.stdout, &p.stderr)
	return v
}

// shmPair returns addresses of two devices on a wire in shared memory.
func shmPair(t *testing.T) (a, b string) {
	device := "emu:?wire=shm:" + filepath.Join(t.TempDir(), "wire")
	return device, device
}

// channelListener starts one, and channelClients has others reach it.
func channelListener(t *testing.T, device string, more ...string) *process {
	t.Helper()
	return start(t, append([]string{"channel", "listen", "--json", "--device", device}, more...)...)
}

// interrupted sends SIGINT and waits for the process to end well.
func interrupted(t *testing.T, p *process) {
	t.Helper()
	must.OK(t, p.Process.Signal(syscall.SIGINT))
	p.succeed(t)
}

// TestChannelPing: pings between two processes, over UDP and shared memory.
func TestChannelPing(t *testing.T) {
	needsProgram(t)
	for name, wires := range map[string]func() (string, string){
		"udp": func() (string, string) { return udpPair(t, "") },
		"shm": func() (string, string) { return shmPair(t) },
	} {
		t.Run(name, func(t *testing.T) {
			near, far := wires()
			listen := channelListener(t, near, "--priority", "low")
			for _, priority := range []string{"high", "low"} {
				ping := start(t, "channel", "ping", "--device", far, "--priority", priority, "--count", "5", "--size", "1000", "--json")
				ping.succeed(t)
				r := decoded[struct {
					Priority string
					Rounds   int
				}](t, ping)
				should.Hold(t, r.Priority == priority && r.Rounds == 5, "%+v", r)
			}
			interrupted(t, listen)
			l := decoded[struct {
				Clients uint64
				NIC     *nicChannels
			}](t, listen)
			// A message is 21 cells, and ten have come.
			if n := l.NIC; l.Clients != 2 || n == nil || n.Received < 10*21 || n.Sent < 10*21 || n.Room == 0 || n.Receive.Highest > n.Room || n.Low.Highest == 0 {
				t.Errorf("%+v, %+v", l, l.NIC)
			}
		})
	}
}
