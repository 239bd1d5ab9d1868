package trapeze_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
)

// TestMemoryCooperate: pages that do not fit into the cache of one process come from another, and Ctrl-C has
// that one print what it has counted.
func TestMemoryCooperate(t *testing.T) {
	needsProgram(t)
	var ports []string
	for range 3 {
		c := must.Get(net.ListenPacket("udp", "127.0.0.1:0"))(t)
		ports = append(ports, c.LocalAddr().String())
		c.Close()
	}
	device := func(i int) string {
		return fmt.Sprintf("emu:?wire=udp://%s&peer=%s,%s", ports[i], ports[(i+1)%3], ports[(i+2)%3])
	}
	start(t, "memory", "serve", "--device", device(0), "--size", "1M")
	cooperate := func(i int, more ...string) *process {
		return start(t, append([]string{"memory", "cooperate", "--device", device(i), "--client", "a", "--client", "b", "--timeout", "20s", "--json"}, more...)...)
	}
	idle := cooperate(1, "--name", "a", "--cache", "1M")
	reader := cooperate(2, "--name", "b", "--cache", "512K", "--reads", "500")
	reader.succeed(t)
	var r struct {
		Bytes int64
		Reads struct {
			Count   int `json:"count"`
			Own     int `json:"own"`
			Clients int `json:"from_clients"`
			Servers int `json:"from_servers"`
		}
	}
	err := json.Unmarshal(reader.stdout.Bytes(), &r)
	should.Hold(t, err == nil && r.Bytes == 1<<20 && r.Reads.Count == 500 &&
		r.Reads.Own+r.Reads.Clients+r.Reads.Servers == 500 && r.Reads.Own != 0 && r.Reads.Clients != 0, "%v, %+v", err, r)
	must.Hold(t, !idle.ended(), "the other client has ended: %s", &idle.stderr)
	must.OK(t, idle.Process.Signal(os.Interrupt))
	if idle.succeed(t); !strings.Contains(idle.stdout.String(), `"given"`) {
		t.Errorf("%s", &idle.stdout)
	}
}
