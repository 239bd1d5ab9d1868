package commands_test

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
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
				if r.Priority != priority || r.Rounds != 5 {
					t.Errorf("%+v", r)
				}
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
// anything is sent.
func TestChannelFlags(t *testing.T) {
	needsProgram(t)
	for args, want := range map[string]struct {
		code int
		says string
	}{
		"ping --priority urgent": {2, "high or low"},
		"ping --size 12":         {2, "a multiple of 8"},
		"ping --size 0":          {2, "--size"},
		"ping --size 65536":      {2, "--size"},
		"ping --count 0":         {2, "--count"},
		"ping --timeout 0s":      {2, "--timeout"},
		"ping --to me":           {2, "MAC"},
		"ping --device emu:":     {3, "no other NIC is on it"},
		"listen --priority urgent --device emu:?wire=udp://127.0.0.1:0": {2, "high or low"},
		"listen": {2, "--device"},
		"ping --device emu:?wire=udp://127.0.0.1:0&peer=127.0.0.1:1 --timeout 300ms": {5, "trapeze channel listen"},
	} {
		p := start(t, append([]string{"channel"}, strings.Fields(args)...)...)
		if code := p.code(t); code != want.code || !strings.Contains(lastLine(&p.stderr), want.says) {
			t.Errorf("%s: exit code %d, %s", args, code, &p.stderr)
		}
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
