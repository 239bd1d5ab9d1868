package framescmd_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/capture"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/numbered"
)

type genReport struct {
	Generated, Closing, Dropped uint64
	TooLong                     uint64 `json:"too_long"`
	CutOff                      uint64 `json:"cut_off"`
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

// TestReplay sends what stands in a file, as it stands there.
func TestReplay(t *testing.T) {
	sender := ethernet.MAC{2, 0, 0, 0, 0, 8}
	for _, format := range []capture.Format{capture.PCAP, capture.PCAPNG} {
		var b bytes.Buffer
		w, err := capture.NewWriter(&b, format, 1200, capture.Source{}, "test")
		if err != nil {
			t.Fatal(err)
		}
		frames := append(some(t, sender), make([]byte, 1300), make([]byte, 10), make([]byte, 1600))
		for i, f := range frames {
			if err := w.Write(time.Unix(1000, int64(i)*1e6), f); err != nil {
				t.Fatal(err)
			}
		}
		if err := w.Flush(); err != nil {
			t.Fatal(err)
		}
		for _, rate := range []string{"", "--rate=1M"} {
			address := newWire()
			p := newPeer(t, address)
			// A pipe: the NIC stays until it is closed.
			path := filepath.Join(t.TempDir(), "file")
			if err := unix.Mkfifo(path, 0o600); err != nil {
				t.Fatal(err)
			}
			args := []string{"gen", "--device", address, "--read", path}
			if rate != "" {
				args = append(args, rate)
			}
			begin := time.Now()
			gen := start(t, args...)
			pipe, err := os.OpenFile(path, os.O_WRONLY, 0)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := pipe.Write(b.Bytes()); err != nil {
				t.Fatal(err)
			}
			for _, want := range some(t, sender) {
				if got := p.receive(t, timeout); !bytes.Equal(got, want) {
					t.Fatalf("%s: %x instead of %x", format, got, want)
				}
			}
			if took := time.Since(begin); rate == "" && took < 4*time.Millisecond {
				t.Errorf("4 ms of frames took %v", took)
			}
			if err := pipe.Close(); err != nil {
				t.Error(err)
			}
			var r genReport
			if gen.report(t, &r); r.Generated != 8 || r.CutOff != 3 || r.Ports[0].SentFrames != 5 {
				t.Errorf("%s: %+v", format, r)
			}
		}
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
