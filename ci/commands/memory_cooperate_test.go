package commands_test

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"
)

// TestMemoryCooperate: pages that do not fit into the cache of one process come from others, which
// lend theirs until they are interrupted.
func TestMemoryCooperate(t *testing.T) {
	needsProgram(t)
	var ports []string
	for range 4 {
		c, err := net.ListenPacket("udp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		ports = append(ports, fmt.Sprint("127.0.0.1:", c.LocalAddr().(*net.UDPAddr).Port))
		c.Close()
	}
	device := func(i int) string {
		return fmt.Sprintf("emu:?wire=udp://%s&peer=%s", ports[i], strings.Join(slices.Delete(slices.Clone(ports), i, i+1), ","))
	}
	start(t, "memory", "serve", "--device", device(3), "--size", "1M")
	cooperate := func(i int, more ...string) *process {
		return start(t, append([]string{"memory", "cooperate", "--device", device(i), "--client", "a", "--client", "b", "--client", "c", "--name", string(rune('a' + i)),
			"--cache", "640K", "--timeout", "20s", "--json"}, more...)...)
	}
	lenders := []*process{cooperate(1), cooperate(2)}
	reader := cooperate(0, "--reads", "1000")
	reader.succeed(t)
	type report struct {
		Reads struct {
			Count   int     `json:"count"`
			Own     int     `json:"own"`
			Clients int     `json:"from_clients"`
			Servers int     `json:"from_servers"`
			Ratio   float64 `json:"hit_ratio"`
		} `json:"reads"`
	}
	var r report
	if err := json.Unmarshal(reader.stdout.Bytes(), &r); err != nil {
		t.Fatalf("%v in %s", err, &reader.stdout)
	}
	if n := r.Reads; n.Count != 1000 || n.Own+n.Clients+n.Servers != n.Count || n.Own == 0 || n.Clients == 0 || n.Ratio < 0.5 {
		t.Errorf("%+v", n)
	}
	for _, p := range lenders {
		if err := p.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Fatal(err)
		}
		p.succeed(t)
	}
}
