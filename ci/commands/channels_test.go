package commands_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// streamed is what channel stream prints.
type streamed struct {
	Priority                                  string
	Messages, Delivered, Lost, Damaged, Bytes uint64
	Seconds                                   float64
	Rate                                      float64 `json:"mb_per_s"`
	Cells                                     float64 `json:"cells_per_s"`
	Drops, Stops                              uint64
	Capture                                   *captured
	NIC                                       *nicChannels
}

// nicChannels is what a NIC says of its channels.
type nicChannels struct {
	Open               int
	High, Low, Receive struct{ Level, Highest int }
	Room               int    `json:"receive_cells"`
	Sent               uint64 `json:"cells_sent"`
	Received           uint64 `json:"cells_received"`
}

type captured struct {
	File          string
	PDUs, Damaged uint64
}

// sound reports whether the numbers fit each other.
func (s *streamed) sound(size uint64) bool {
	return s.Delivered > 0 && s.Delivered+s.Lost == s.Messages && s.Bytes == size*s.Delivered && s.Seconds > 0 && s.Rate > 0 && s.Cells > 0
}

// decoded reads what a process has printed.
func decoded[T any](t *testing.T, p *process) (v T) {
	t.Helper()
	if err := json.Unmarshal(p.stdout.Bytes(), &v); err != nil {
		t.Fatalf("%v in %s\n%s", err, &p.stdout, &p.stderr)
	}
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
	if err := p.cmd.Process.Signal(syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	p.succeed(t)
}

// TestChannelStream: streams and a ping between two processes, over UDP and shared memory,
// both captured, and what both say of them is the same.
func TestChannelStream(t *testing.T) {
	needsProgram(t)
	for name, wires := range map[string]func() (string, string){
		"udp": func() (string, string) { return udpPair(t, "") },
		"shm": func() (string, string) { return shmPair(t) },
	} {
		t.Run(name, func(t *testing.T) {
			near, far := wires()
			dir := t.TempDir()
			there, here := filepath.Join(dir, "listen.pcapng"), filepath.Join(dir, "stream.pcap")
			listen := channelListener(t, near, "--priority", "low", "--capture", there)
			var delivered, damaged uint64
			for _, priority := range []string{"high", "low"} {
				stream := start(t, "channel", "stream", "--device", far, "--priority", priority, "--count", "40", "--size", "1000", "--capture", here, "--force", "--json")
				stream.succeed(t)
				s := decoded[streamed](t, stream)
				if !s.sound(1000) || s.Messages != 40 || s.Priority != priority || s.Capture == nil || s.Capture.PDUs < 40 {
					t.Errorf("%+v", s)
				}
				// 21 cells are a message, and one the end of the stream, which may be said again.
				if n := s.NIC; n == nil || n.Open != 1 || n.Sent < 40*21+1 || n.Room == 0 || n.Receive.Highest > n.Room ||
					(n.High.Highest > 0) != (priority == "high") || (n.Low.Highest > 0) != (priority == "low") {
					t.Errorf("%+v", n)
				}
				delivered, damaged = delivered+s.Delivered, damaged+s.Damaged
			}
			ping := start(t, "channel", "ping", "--device", far, "--count", "5", "--size", "96", "--json")
			ping.succeed(t)
			interrupted(t, listen)
			l := decoded[struct {
				Clients, Streams, Messages, Bytes, Damaged uint64
				Capture                                    *captured
			}](t, listen)
			if l.Clients != 3 || l.Streams != 2 || l.Messages != delivered || l.Bytes != 1000*delivered || l.Damaged != damaged || l.Capture == nil {
				t.Errorf("%+v, %d were delivered", l, delivered)
			}
			// Reports are shorter.
			sent, arrived, pings := 0, uint64(0), 0
			for _, p := range capturedPDUs(t, here) {
				if p.bytes == 1000 && p.aal == 4 && p.channel == 0 {
					sent++
				}
			}
			for _, p := range capturedPDUs(t, there) {
				switch {
				case p.bytes == 1000 && p.channel == 1:
					arrived++
				case p.bytes == 96 && p.vci > 0:
					pings++
				}
			}
			if sent != 40 || arrived < delivered || pings != 10 {
				t.Errorf("%d messages in the sender's capture; %d in the listener's, %d were delivered; %d of 5 round trips", sent, arrived, delivered, pings)
			}
		})
	}
}

// pdu is a record of a capture, as tshark reads it.
type pdu struct{ bytes, aal, channel, vci int }

// capturedPDUs reads a file once: tshark takes longer to start than to read. It must have nothing to
// complain about.
func capturedPDUs(t *testing.T, file string) (list []pdu) {
	t.Helper()
	program, err := exec.LookPath("tshark")
	if err != nil {
		t.Skip("tshark is not installed")
	}
	c := exec.Command(program, "-r", file, "-T", "fields", "-E", "separator=/s", "-e", "frame.len", "-e", "atm.aal", "-e", "atm.channel", "-e", "atm.vci")
	var stderr bytes.Buffer
	c.Stderr = &stderr
	out, err := c.Output()
	complaints := strings.ReplaceAll(stderr.String(), "Running as user \"root\" and group \"root\". This could be dangerous.\n", "")
	if err != nil || complaints != "" {
		t.Fatalf("%v, %s", err, complaints)
	}
	for line := range strings.Lines(string(out)) {
		var p pdu
		if _, err := fmt.Sscan(line, &p.bytes, &p.aal, &p.channel, &p.vci); err != nil {
			t.Fatalf("%v in %q", err, line)
		}
		list = append(list, p)
	}
	return list
}

// TestChannelBarrier: a barrier of either priority has its rounds.
func TestChannelBarrier(t *testing.T) {
	needsProgram(t)
	for _, priority := range []string{"high", "low"} {
		p := start(t, "channel", "barrier", "--priority", priority, "--participants", "3", "--rounds", "5", "--json")
		p.succeed(t)
		r := decoded[struct {
			Priority             string
			Participants, Rounds int
			Max                  float64 `json:"max_us"`
		}](t, p)
		if r.Priority != priority || r.Participants != 3 || r.Rounds != 5 || r.Max <= 0 {
			t.Errorf("%+v", r)
		}
	}
}

// awaitStream waits until a stream under way has shown progress.
func awaitStream(t *testing.T, p *process) {
	t.Helper()
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if strings.Contains(p.stderr.String(), "streaming") {
			return
		}
		select {
		case err := <-p.done:
			p.done <- err
			t.Fatalf("the stream has ended: %v\n%s", err, &p.stderr)
		default:
		}
	}
	t.Fatalf("nothing is streamed\n%s", &p.stderr)
}

// TestChannelStreamInterrupted: Ctrl-C ends a stream with its totals and a capture: well if it
// has no other end, and else with the signal's code.
func TestChannelStreamInterrupted(t *testing.T) {
	needsProgram(t)
	near, far := udpPair(t, "")
	listen := channelListener(t, near)
	for duration, code := range map[string]int{"0": 0, "1h": 128 + int(syscall.SIGINT)} {
		file := filepath.Join(t.TempDir(), "cells.pcap")
		stream := start(t, "channel", "stream", "--device", far, "--duration", duration, "--rate", "1M", "--progress", "plain", "--json", "--capture", file)
		awaitStream(t, stream)
		if err := stream.cmd.Process.Signal(syscall.SIGINT); err != nil {
			t.Fatal(err)
		}
		if got := stream.code(t); got != code {
			t.Errorf("--duration %s: exit code %d\n%s", duration, got, &stream.stderr)
		}
		s := decoded[streamed](t, stream)
		if !s.sound(4096) || s.Capture == nil || s.Capture.File != file {
			t.Errorf("--duration %s: %+v", duration, s)
		}
		if st, err := os.Stat(file); err != nil || uint64(st.Size()) < s.Bytes {
			t.Errorf("the capture: %v, %v", st, err)
		}
	}
	interrupted(t, listen)
}

// TestChannelListenerDies: who streams to a listener that is killed learns of it, with the code
// that says so.
func TestChannelListenerDies(t *testing.T) {
	needsProgram(t)
	for name, wires := range map[string]func() (string, string){
		"udp": func() (string, string) { return udpPair(t, "") },
		"shm": func() (string, string) { return shmPair(t) },
	} {
		near, far := wires()
		listen := channelListener(t, near)
		stream := start(t, "channel", "stream", "--device", far, "--duration", "0", "--rate", "1M", "--progress", "plain", "--json")
		awaitStream(t, stream)
		killed := time.Now()
		if err := listen.cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		code := stream.code(t)
		t.Logf("%s: the stream ended %v after the listener: %s", name, time.Since(killed).Round(time.Millisecond), lastLine(&stream.stderr))
		if code != 4 || !strings.Contains(lastLine(&stream.stderr), "channel listen") {
			t.Errorf("%s: exit code %d\n%s", name, code, &stream.stderr)
		}
		if s := decoded[streamed](t, stream); s.Delivered == 0 {
			t.Errorf("%s: %+v", name, s)
		}
	}
}

// TestChannelListenerDiesUnderPing: a ping to a listener that is killed ends in time, with the
// code that says so, and with what was measured.
func TestChannelListenerDiesUnderPing(t *testing.T) {
	needsProgram(t)
	near, far := udpPair(t, "")
	listen := channelListener(t, near)
	first := start(t, "channel", "ping", "--device", far, "--count", "1") // the listener is there
	first.succeed(t)
	ping := start(t, "channel", "ping", "--device", far, "--count", "1000000000", "--json")
	time.Sleep(time.Second)
	if err := listen.cmd.Process.Kill(); err != nil {
		t.Fatal(err)
	}
	if code := ping.code(t); code != 4 && code != 5 || !strings.Contains(lastLine(&ping.stderr), "trapeze channel") && !strings.Contains(lastLine(&ping.stderr), "lost") {
		t.Errorf("exit code %d\n%s", code, &ping.stderr)
	}
	if r := decoded[struct {
		Rounds int
		Min    float64 `json:"min_us"`
	}](t, ping); r.Rounds == 0 || r.Min <= 0 {
		t.Errorf("%+v", r)
	}
}

// TestChannelFlags: what makes no sense is refused, with the code of usage or of a device, before
// anything is sent, and leaves no file.
func TestChannelFlags(t *testing.T) {
	needsProgram(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "cells.pcap")
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"stream --priority urgent":                        {2, "high or low"},
		"stream --size 12":                                {2, "a multiple of 8"},
		"stream --size 0":                                 {2, "--size"},
		"stream --size 64K":                               {2, "32512"},
		"stream --duration -1s":                           {2, "--duration"},
		"stream --rate 1":                                 {2, "--rate"},
		"stream --bytes many":                             {2, "bytes"},
		"stream --timeout 0s":                             {2, "--timeout"},
		"stream --to me":                                  {2, "MAC"},
		"stream --capture " + dir:                         {1, "directory"},
		"stream --device emu: --capture " + file:          {3, "no other NIC is on it"},
		"stream --device vfio-user:/no --capture " + file: {3, "cannot be watched"},
		"listen --priority urgent --device emu:?wire=udp://127.0.0.1:0": {2, "high or low"},
		"listen":                  {2, "--device"},
		"barrier --priority both": {2, "high or low"},
		"ping --device emu:?wire=udp://127.0.0.1:0&peer=127.0.0.1:1 --timeout 300ms --capture " + filepath.Join(dir, "kept"): {5, "trapeze channel listen"},
	} {
		p := start(t, append([]string{"channel"}, strings.Fields(args)...)...)
		if code := p.code(t); code != want.code || !strings.Contains(lastLine(&p.stderr), want.says) {
			t.Errorf("%s: exit code %d, %s", args, code, &p.stderr)
		}
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) != 1 || left[0].Name() != "kept" {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestChannelsInInfo: info says of a NIC without channels that it has none, in JSON, and does
// not mention it to people.
func TestChannelsInInfo(t *testing.T) {
	needsProgram(t)
	p := start(t, "info", "--json")
	p.succeed(t)
	r := decoded[struct{ Channels map[string]any }](t, p)
	if r.Channels == nil || fmt.Sprint(r.Channels["open"]) != "0" {
		t.Errorf("%v", r.Channels)
	}
	p = start(t, "info")
	p.succeed(t)
	if strings.Contains(p.stdout.String(), "\nchannels") {
		t.Errorf("%s", &p.stdout)
	}
}
