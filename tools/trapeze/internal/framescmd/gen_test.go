package framescmd_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/command"
)

type genReport struct {
	Generated, Closing, Dropped uint64
	Unsent                      int
	Ports                       []struct {
		SentFrames uint64 `json:"sent_frames"`
	}
}

// ends is how many frames say that a stream has ended.
const ends = 5

// TestGenCheck sends streams of all kinds from one command to another: none is lost, and
// the other one knows when it has them all. There are fewer frames than its ring has room.
func TestGenCheck(t *testing.T) {
	for _, flags := range []string{
		"--count 400", "--count 400 --size imix --vlan 7", "--count 400 --size 58-1500 --udp 10.0.0.1:5000,10.0.0.2:9",
		"--count 20 --rate 2k", "--duration 50ms --rate 1k",
	} {
		address := newWire()
		check := startEnv(t, command.Env{}, "dump", "--device", address, "--check")
		check.ready(t)
		var g genReport
		start(t, append([]string{"gen", "--device", address}, strings.Fields(flags)...)...).report(t, &g)
		d := check.counts(t)
		var count uint64
		if n, _ := fmt.Sscanf(flags, "--count %d", &count); n == 0 {
			count = g.Generated
		}
		if d["frames"] != count || d["streams"] != 1 || d["ended"] != 1 || d["lost"]+d["doubled"]+d["reordered"]+d["late"]+d["damaged"]+d["other"] != 0 || g.Generated != count || g.Closing != ends || g.Dropped != 0 || g.Unsent != 0 || g.Ports[0].SentFrames != count+ends {
			t.Errorf("%s: %v, %+v", flags, d, g)
		}
	}
}

// TestGenLoss: over a wire that loses, doubles and damages frames, all are accounted for.
func TestGenLoss(t *testing.T) {
	address := newWire() + "&loss=0.1&duplicate=0.1&corrupt=0.1&reorder=0.1&seed=1"
	check := startEnv(t, command.Env{}, "dump", "--device", address, "--check")
	check.ready(t)
	var g genReport
	start(t, "gen", "--device", address, "--count", "400").report(t, &g)
	d := check.counts(t)
	if d["ended"] != 1 || d["frames"]+d["lost"] != 400 || d["lost"] < 20 || d["doubled"] < 10 || d["reordered"] < 10 || d["damaged"] == 0 || d["explained"] == 0 || d["explained"] > d["lost"] {
		t.Errorf("%v", d)
	}
}

// TestRates: with --progress there is a line each second, and the totals at the end are
// for people. Without a link gen says that it waits for one.
func TestRates(t *testing.T) {
	address := newWire()
	gen := startEnv(t, command.Env{Progress: "plain"}, "gen", "--device", address, "--rate", "100", "--duration", "1200ms")
	gen.ready(t)
	newPeer(t, address)
	must.OK(t, gen.wait())
	if s := gen.stderr.String(); !strings.HasPrefix(s, "waiting for the link of "+address+"\nsending ") || !strings.Contains(s, "frames/s, ") || !strings.Contains(s, "; out ") {
		t.Errorf("stderr %q", s)
	}
	if s := gen.stdout.String(); !strings.Contains(s, "generated ") || !strings.Contains(s, address) {
		t.Errorf("stdout %q", s)
	}
}
