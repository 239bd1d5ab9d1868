package framescmd_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/numbered"
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
		if err := check.wait(); err != nil {
			t.Fatal(err)
		}
		var count uint64
		if n, _ := fmt.Sscanf(flags, "--count %d", &count); n == 0 {
			count = g.Generated
		}
		want := fmt.Sprintf("numbered: %d of 1 streams, 1 ended: 0 lost (0 of them explained by counters), 0 doubled, 0 reordered, 0 late, 0 damaged, 0 other\n", count)
		if s := check.stdout.String(); !strings.HasSuffix(s, want) || g.Generated != count || g.Closing != ends || g.Dropped != 0 || g.Unsent != 0 || g.Ports[0].SentFrames != count+ends {
			t.Errorf("%s: %s, %+v", flags, s, g)
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
	if err := check.wait(); err != nil {
		t.Fatal(err)
	}
	var c numbered.Totals
	var explained uint64
	s := check.stdout.String()
	s = s[max(0, strings.LastIndex(s, "numbered: ")):]
	if _, err := fmt.Sscanf(s, "numbered: %d of %d streams, %d ended: %d lost (%d of them explained by counters), %d doubled, %d reordered, %d late, %d damaged, %d other",
		&c.Frames, &c.Streams, &c.Ended, &c.Lost, &explained, &c.Doubled, &c.Reordered, &c.Late, &c.Damaged, &c.Other); err != nil {
		t.Fatalf("%v in %q", err, s)
	}
	if c.Ended != 1 || c.Frames+c.Lost != 400 || c.Lost < 20 || c.Doubled < 10 || c.Reordered < 10 || c.Damaged == 0 || explained == 0 || explained > c.Lost {
		t.Errorf("%+v, %d explained", c, explained)
	}
}

// TestRates: with --progress there is a line each second, and the totals at the end are
// for people. Without a link gen says that it waits for one.
func TestRates(t *testing.T) {
	address := newWire()
	gen := startEnv(t, command.Env{Progress: "plain"}, "gen", "--device", address, "--rate", "100", "--duration", "1200ms")
	gen.ready(t)
	newPeer(t, address)
	if err := gen.wait(); err != nil {
		t.Fatal(err)
	}
	if s := gen.stderr.String(); !strings.HasPrefix(s, "waiting for the link of "+address+"\nsending ") || !strings.Contains(s, "frames/s, ") || !strings.Contains(s, "; out ") {
		t.Errorf("stderr %q", s)
	}
	if s := gen.stdout.String(); !strings.Contains(s, "generated ") || !strings.Contains(s, "--- "+address) {
		t.Errorf("stdout %q", s)
	}
}
