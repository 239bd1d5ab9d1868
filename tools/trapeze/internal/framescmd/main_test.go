package framescmd_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"net"
	"regexp"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"go.uber.org/goleak"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/outputtest"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/driver"
	_ "github.com/trapeze-nic/trapeze/emulator" // emu:
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/command"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/rawport"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/framescmd"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const timeout = time.Minute

var wires atomic.Uint32

// newWire is the address of both NICs of a memory wire.
func newWire() string { return fmt.Sprintf("emu:?wire=mem:framescmd-%d", wires.Add(1)) }

// running is a command that runs beside the test.
type running struct {
	stdout, stderr outputtest.Buffer
	stop           context.CancelFunc // as Ctrl-C does
	done           chan error
}

// start runs frames --json with args. It is stopped when the test ends.
func start(t testing.TB, args ...string) *running {
	t.Helper()
	return startEnv(t, command.Env{JSON: true}, args...)
}

func startEnv(t testing.TB, e command.Env, args ...string) *running {
	t.Helper()
	r := &running{done: make(chan error, 1)}
	e.Stdout, e.Bytes, e.Stderr = &r.stdout, &r.stdout, &r.stderr
	var ctx context.Context
	ctx, r.stop = context.WithTimeout(t.Context(), timeout)
	ctx = command.WithLogging(ctx, &r.stderr, "text", "")
	c := framescmd.Command(&e)
	c.SetArgs(args)
	c.SilenceErrors, c.SilenceUsage = true, true
	go func() { r.done <- c.ExecuteContext(ctx) }()
	t.Cleanup(func() { r.stop(); _ = r.wait() })
	return r
}

// wait returns how the command has ended.
func (r *running) wait() error {
	err := <-r.done
	r.done <- err
	return err
}

// ready waits until a command that runs without --json says that it has begun.
func (r *running) ready(t testing.TB) {
	t.Helper()
	waittest.Until(t, "it has begun, or ended", func() bool { return r.stderr.String() != "" || len(r.done) > 0 })
	must.Hold(t, r.stderr.String() != "", "it has not begun")
}

// report waits for the command to end well and reads what it has printed.
func (r *running) report(t testing.TB, into any) {
	t.Helper()
	must.OK(t, r.wait())
	must.OK(t, json.Unmarshal([]byte(r.stdout.String()), into), "in %q", r.stdout.String())
}

// count is a line of a report for people that has a number.
var count = regexp.MustCompile(`(?m)^ *([a-z_]+) +(\d+)$`)

// counts waits for the command to end well and reads the numbers that it has printed, by their keys.
func (r *running) counts(t testing.TB) map[string]uint64 {
	t.Helper()
	must.OK(t, r.wait())
	all := map[string]uint64{}
	for _, m := range count.FindAllStringSubmatch(r.stdout.String(), -1) {
		n := must.Get(strconv.ParseUint(m[2], 10, 64))(t)
		all[m[1]] += n
	}
	return all
}

// peer is a port that a test has for itself at the other end of a wire.
type peer struct {
	ethernet.Port
	pool *ethernet.Pool
	q    ethernet.Queue
	// found: answers to ARP are late ones from now on, and left out.
	found bool
}

func newPeer(t testing.TB, address string) *peer {
	t.Helper()
	pool := must.Get(ethernet.NewPool(ethernet.PoolOptions{}))(t)
	log := slog.New(slog.DiscardHandler)
	nic := must.Get(driver.Open(t.Context(), address, driver.Options{Logger: log}))(t)
	p := must.Get(rawport.New(t.Context(), nic, ethernet.Options{Pool: pool, Promiscuous: true, Logger: log}))(t)
	t.Cleanup(func() {
		should.OK(t, p.Close())
		should.OK(t, pool.Close())
	})
	return &peer{Port: p, pool: pool, q: p.Queue(0)}
}

// send sends a frame.
func (p *peer) send(t testing.TB, frame []byte) {
	t.Helper()
	var f [1]ethernet.Frame
	must.Be(t, p.q.Cache().Alloc(f[:]), 1, "no buffer")
	f[0].Length = uint16(len(frame))
	copy(p.pool.Bytes(f[0]), frame)
	waittest.Until(t, "a frame can be sent", func() bool { return must.Get(p.q.Send(f[:]))(t) == 1 })
}

// receive waits for a frame, nil if none has come after a while.
func (p *peer) receive(t testing.TB, while time.Duration) []byte {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), while)
	defer cancel()
	var f [1]ethernet.Frame
	for {
		n := must.Get(p.q.Receive(f[:]))(t)
		if n == 1 {
			b := bytes.Clone(p.pool.Bytes(f[0]))
			p.q.Cache().Free(f[:])
			if p.found && bytes.Equal(b[12:14], []byte{8, 6}) {
				continue
			}
			return b
		}
		if p.q.Wait(ctx) != nil {
			return nil
		}
	}
}

// ask sends a frame until one comes back: whoever is asked may not be there yet.
func (p *peer) ask(t testing.TB, frame []byte) (answer []byte) {
	t.Helper()
	waittest.Until(t, "an answer", func() bool {
		p.send(t, frame)
		answer = p.receive(t, 50*time.Millisecond)
		return answer != nil
	})
	return answer
}

// build makes a frame with right lengths and checksums.
func build(t testing.TB, parts ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	must.OK(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, parts...))
	return bytes.Clone(b.Bytes())
}

func hardware(m ethernet.MAC) net.HardwareAddr { return m[:] }

// ping makes an echo request, in a VLAN if that is not 0.
func ping(t testing.TB, from, to ethernet.MAC, source, destination string, vlan uint16, sequence, size int) []byte {
	t.Helper()
	parts := []gopacket.SerializableLayer{&layers.Ethernet{SrcMAC: hardware(from), DstMAC: hardware(to), EthernetType: layers.EthernetTypeIPv4}}
	if vlan != 0 {
		parts[0].(*layers.Ethernet).EthernetType = layers.EthernetTypeDot1Q
		parts = append(parts, &layers.Dot1Q{VLANIdentifier: vlan, Type: layers.EthernetTypeIPv4})
	}
	return build(t, append(parts,
		&layers.IPv4{Version: 4, IHL: 5, TTL: 9, Protocol: layers.IPProtocolICMPv4, SrcIP: net.ParseIP(source).To4(), DstIP: net.ParseIP(destination).To4()},
		&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0), Id: 1, Seq: uint16(sequence)},
		gopacket.Payload(bytes.Repeat([]byte{byte(sequence)}, size)))...)
}
