package cli_test

import (
	"context"
	"encoding/hex"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	_ "github.com/trapeze-nic/trapeze/ci/kit/cable"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/ethernet"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/tools/internal/shell"
	"github.com/trapeze-nic/trapeze/via"
)

// TestSendOverEthernet gives a file from one NIC to another whose wires are Ethernet ports.
func TestSendOverEthernet(t *testing.T) {
	in, content := file(t, "input", 300_000)
	out := filepath.Join(t.TempDir(), "output")
	received := make(chan outcome, 1)
	go func() {
		received <- run(t, "recv", "--device", "eth:cable:file", "--output", out, "--timeout", "30s")
	}()
	run(t, "send", "--device", "eth:cable:file?loss=0.05", "--timeout", "30s", in).exit(t, shell.ExitOK)
	(<-received).exit(t, shell.ExitOK)
	should.Same(t, must.Get(os.ReadFile(out))(t), content)
}

// TestFilterOfEthernet puts a program into a NIC that is served to other programs and whose
// wire is an Ethernet port: it filters the frames of that port.
func TestFilterOfEthernet(t *testing.T) {
	const frames = 60
	sockets := socketPaths(t, 1)
	device := "vfio-user:" + sockets[0]
	stop := serving(t, sockets, "--device", "eth:cable:filter?promiscuous=on")
	peer := openPeer(t, "cable:filter")

	good, bad := netip.MustParseAddr("192.0.2.1"), netip.MustParseAddr("192.0.2.66")
	to := netip.MustParseAddr("192.0.2.2")
	key := firmware.FlowKey(netip.AddrPortFrom(bad, 7), netip.AddrPortFrom(to, 9), 17)
	rule := firmware.Rule{Action: firmware.FilterDrop}
	for _, args := range [][]string{
		{"load", "--device", device, "image:acl"},
		{"fw", "map", "--device", device, "image:acl", "rules", "set", hex.EncodeToString(key), hex.EncodeToString(rule.Bytes())},
	} {
		run(t, args...).exit(t, shell.ExitOK)
	}

	nic := must.Get(via.Open(conform.Context(t), device, via.Options{}))(t)
	e := conform.NewEnd(t, nic, conform.Setup{Memory: via.DefaultDepth * 2048, Attributes: via.VIAttributes{Frames: via.AllFrames, MaxTransfer: 1514}})
	for i, d := range e.Recv {
		must.OK(t, e.VI.PostRecv(e.Prepare(t, d, i*2048, 1514)))
	}
	for i := range frames {
		peer.send(udpFrame(t, bad, to, byte(i)))
		peer.send(udpFrame(t, good, to, byte(i)))
	}
	pair := conform.NewWorld(t, nic, nic)
	for i := range frames {
		d := pair.MustTake(e.VI.RecvDone)
		got := e.Memory.Bytes()[slices.Index(e.Recv, d)*2048:][:d.Length()]
		must.Same(t, got, udpFrame(t, good, to, byte(i)), "frame %d", i)
		d.Rearm()
		must.OK(t, e.VI.PostRecv(d))
	}
	should.OK(t, nic.Close())
	var report struct {
		Entries []struct{ Key, Value string }
	}
	decode(t, run(t, "fw", "map", "--json", "--device", device, "image:acl", "rules", "get", hex.EncodeToString(key)), &report)
	rule.Hits = frames
	should.Be(t, report.Entries[0].Value, hex.EncodeToString(rule.Bytes()), "the rule")
	stop().exit(t, shell.ExitOK)
}

// udpFrame is a datagram with a number in it.
func udpFrame(t *testing.T, from, to netip.Addr, number byte) []byte {
	t.Helper()
	link := &layers.Ethernet{SrcMAC: []byte{2, 0, 0, 0, 0, 1}, DstMAC: []byte{2, 0, 0, 0, 0, 2}, EthernetType: layers.EthernetTypeIPv4}
	ip := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolUDP, SrcIP: from.AsSlice(), DstIP: to.AsSlice()}
	udp := &layers.UDP{SrcPort: 7, DstPort: 9}
	must.OK(t, udp.SetNetworkLayerForChecksum(ip))
	b := gopacket.NewSerializeBuffer()
	must.OK(t, gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, link, ip, udp, gopacket.Payload{number, 30: number}))
	return b.Bytes()
}

// ethernetPeer is the other end of a cable, as a port of plain frames.
type ethernetPeer struct {
	t *testing.T
	q ethernet.Queue
}

func openPeer(t *testing.T, address string) ethernetPeer {
	t.Helper()
	pool := must.Get(ethernet.NewPool(ethernet.PoolOptions{}))(t)
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	p := must.Get(ethernet.Open(ctx, address, ethernet.Options{Pool: pool}))(t)
	t.Cleanup(func() {
		should.OK(t, p.Close())
		should.OK(t, pool.Close())
	})
	must.Get(ethernet.WaitLink(ctx, p))(t)
	return ethernetPeer{t, p.Queue(0)}
}

func (e ethernetPeer) send(b []byte) {
	e.t.Helper()
	frames := make([]ethernet.Frame, 1)
	e.q.Cache().Alloc(frames)
	frames[0].Length = uint16(len(b))
	copy(e.q.Cache().Pool().Bytes(frames[0]), b)
	must.Give(e.q.Send(frames))(e.t, 1)
}
