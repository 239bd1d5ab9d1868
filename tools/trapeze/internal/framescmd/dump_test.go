package framescmd_test

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/internal/option"
)

// some are frames of several kinds.
func some(t testing.TB, from ethernet.MAC) [][]byte {
	to := ethernet.MAC{2, 0, 0, 0, 0, 9}
	eth := func(kind layers.EthernetType) *layers.Ethernet {
		return &layers.Ethernet{SrcMAC: hardware(from), DstMAC: hardware(to), EthernetType: kind}
	}
	ip := &layers.IPv4{Version: 4, IHL: 5, TTL: 9, Protocol: layers.IPProtocolTCP, SrcIP: []byte{10, 0, 0, 1}, DstIP: []byte{10, 0, 0, 2}}
	tcp := &layers.TCP{SrcPort: 40000, DstPort: 80, SYN: true, ACK: true, Seq: 5, Ack: 6, Window: 7}
	ip6 := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolUDP, SrcIP: bytes.Repeat([]byte{0xfd}, 16), DstIP: bytes.Repeat([]byte{0xfc}, 16)}
	udp := &layers.UDP{SrcPort: 40000, DstPort: 53}
	must.OK(t, errors.Join(tcp.SetNetworkLayerForChecksum(ip), udp.SetNetworkLayerForChecksum(ip6)))
	return [][]byte{
		ping(t, from, to, "10.0.0.1", "10.0.0.2", 0, 1, 56),
		ping(t, from, to, "10.0.0.1", "10.0.0.2", 7, 2, 1000),
		build(t, eth(layers.EthernetTypeIPv4), ip, tcp, gopacket.Payload("hello")),
		build(t, eth(layers.EthernetTypeIPv6), ip6, udp, gopacket.Payload("\x1b[31mred")),
		append(build(t, eth(0x88b6)), make([]byte, 100)...),
	}
}

// TestDumpLines shows frames as lines.
func TestDumpLines(t *testing.T) {
	address := newWire()
	dump := startEnv(t, command.Env{}, "dump", "--device", address, "--promiscuous", "--count", "5")
	dump.ready(t)
	p := newPeer(t, address)
	for _, f := range some(t, p.MAC()) {
		p.send(t, f)
	}
	must.OK(t, dump.wait())
	lines := strings.Split(dump.stdout.String(), "\n")
	head := `^\d\d:\d\d:\d\d\.\d{9} `
	from := ` bytes ` + p.MAC().String() + `->02:00:00:00:00:09 `
	for i, want := range []string{
		`98` + from + `type 0x0800 IPv4 10\.0\.0\.1->10\.0\.0\.2 ICMPv4$`,
		`1046` + from + `type 0x8100 Dot1Q IPv4 10\.0\.0\.1->10\.0\.0\.2 ICMPv4$`,
		`60` + from + `type 0x0800 IPv4 10\.0\.0\.1->10\.0\.0\.2 TCP 40000->80$`,
		`70` + from + `type 0x86dd IPv6 fdfd:[fd:]+->fcfc:[fc:]+ UDP 40000->53( DNS)?$`,
		`160` + from + `type 0x88b6$`,
	} {
		if !regexp.MustCompile(head + want).MatchString(lines[i]) {
			t.Errorf("%q is not %s", lines[i], want)
		}
	}
	if !strings.Contains(dump.stdout.String(), "received_frames  5") || strings.Contains(dump.stdout.String(), "\x1b") {
		t.Errorf("%q", dump.stdout.String())
	}
}

// TestDumpFile writes those that match into a file.
func TestDumpFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "a.pcapng")
	address := newWire()
	p := newPeer(t, address)
	// The first frames say that dump is there; those of the test follow.
	dump := start(t, "dump", "--device", address, "--promiscuous", "--match", "proto=icmp,host=10.0.0.1", "--output", path, "--snaplen", "500", "--count", "2")
	before := time.Now()
	for p.Stats().Queues[0].SentFrames < 3 || dumpIsIdle(dump) {
		for _, f := range append(some(t, p.MAC()), ping(t, p.MAC(), p.MAC(), "10.9.9.9", "10.0.0.2", 0, 3, 56)) {
			p.send(t, f)
		}
	}
	var r struct {
		Matched uint64
		Output  string
	}
	if dump.report(t, &r); r.Matched != 2 || r.Output != path {
		t.Errorf("%+v", r)
	}
	file := must.Get(os.Open(path))(t)
	c := must.Get(pcapgo.NewNgReader(file, pcapgo.DefaultNgReaderOptions))(t)
	var offset int // which of the two that match came first
	for i := range 2 {
		got, info, err := c.ReadPacketData()
		at, length := info.Timestamp, info.Length
		if i == 0 && length != len(some(t, p.MAC())[0]) {
			offset = 1
		}
		want := some(t, p.MAC())[(offset+i)%2]
		if err != nil || length != len(want) || !bytes.Equal(got, want[:min(len(want), 500)]) || at.Before(before.Add(-time.Second)) || at.After(time.Now()) {
			t.Errorf("frame %d: %d of %d bytes at %v, %v", i, len(got), length, at, err)
		}
	}
	if _, _, err := c.ReadPacketData(); err != io.EOF {
		t.Errorf("more: %v", err)
	}
	_ = file.Close()
	// What stands there stays, unless --force says otherwise.
	if err := start(t, "dump", "--device", newWire(), "--output", path, "--duration", "1ms").wait(); !errors.Is(err, fs.ErrExist) || !strings.Contains(err.Error(), "--force") {
		t.Errorf("%v", err)
	}
	should.OK(t, start(t, "dump", "--device", newWire(), "--output", path, "--force", "--duration", "1ms").wait())
}

func dumpIsIdle(r *running) bool {
	time.Sleep(time.Millisecond)
	return len(r.done) == 0
}

// TestDumpStdout writes a file to stdout, and nothing else.
func TestDumpStdout(t *testing.T) {
	address := newWire()
	dump := startEnv(t, command.Env{}, "dump", "--device", address, "--promiscuous", "--output", "-", "--count", "5")
	dump.ready(t)
	p := newPeer(t, address)
	for _, f := range some(t, p.MAC()) {
		p.send(t, f)
	}
	must.OK(t, dump.wait())
	c := must.Get(pcapgo.NewNgReader(strings.NewReader(dump.stdout.String()), pcapgo.DefaultNgReaderOptions))(t)
	for _, want := range some(t, p.MAC()) {
		if got, _, err := c.ReadPacketData(); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%x, %v", got, err)
		}
	}
	if _, _, err := c.ReadPacketData(); err != io.EOF || !regexp.MustCompile(`matched +5\n`).MatchString(dump.stderr.String()) {
		t.Errorf("%v; %s", err, dump.stderr.String())
	}
}

// TestUsage: what cannot be meant is refused before a port is opened.
func TestUsage(t *testing.T) {
	for _, c := range []struct {
		args string
		says string
	}{
		{"dump --device emu: --device emu:", "--device"},
		{"dump --device emu: --queues 2", "one queue"},
		{"dump --device emu: --match port", "--match"},
		{"dump --device emu: --snaplen 64", "--output"},
		{"dump --device emu: --output -", "--json"},
		{"dump --device emu: --map rules:00=01", "--image"},
		{"dump --device emu: --image nonsense", "nonsense"},
		{"echo --device emu: --ip 224.0.0.1", "--ip"},
		{"echo --device emu: --ip fe80::1%eth0", "--ip"},
		{"gen --device emu: --to 02:00", "--to"},
		{"gen --device emu: --size 20", "--size"},
		{"gen --device emu: --size 1515-1519", "--mtu"},
		{"gen --device emu: --rate NaN", "--rate"},
		{"gen --device emu: --udp 10.0.0.1:1", "--udp"},
		{"gen --device emu: --udp [::1]:1,10.0.0.1:1", "--udp"},
		{"echo --ip 10.0.0.1 --device vhost-user:/nonexistent/s --image acl", "processor"},
	} {
		r := start(t, strings.Fields(c.args)...)
		err := r.wait()
		should.Hold(t, err != nil && strings.Contains(err.Error(), c.says) && r.stdout.String() == "", "%s: %v, %q", c.args, err, r.stdout.String())
		var device *command.DeviceError
		if file := strings.Contains(c.args, "nonsense"); !file && !errors.Is(err, option.ErrBad) && !errors.As(err, &device) {
			t.Errorf("%s: %v is no error of usage", c.args, err)
		}
	}
}
