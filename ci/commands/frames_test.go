package commands_test

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
)

// says waits until a process says something on stderr.
func (p *process) says(t *testing.T, what string) {
	t.Helper()
	for deadline := time.Now().Add(timeout); !strings.Contains(p.stderr.String(), what); time.Sleep(5 * time.Millisecond) {
		if len(p.done) > 0 || time.Now().After(deadline) {
			t.Fatalf("%s: no %q in %q", strings.Join(p.cmd.Args[1:], " "), what, p.stderr.String())
		}
	}
}

// TestFramesCheck: numbered frames go from one process to another over each wire, and the
// other one knows what became of all of them.
func TestFramesCheck(t *testing.T) {
	needsProgram(t)
	const count = 400 // less than the receive ring has room for
	name := fmt.Sprintf("@trapeze-frames-%d", os.Getpid())
	udpTo, udpFrom := udpPair(t, "")
	for _, w := range []struct{ name, to, from string }{
		{"shm", "emu:?wire=shm:" + name, "emu:?wire=shm:" + name},
		{"memif", "emu:?wire=memif:" + name + "m&role=server", "emu:?wire=memif:" + name + "m&role=client"},
		{"udp", udpTo, udpFrom},
	} {
		t.Run(w.name, func(t *testing.T) {
			check := start(t, "frames", "dump", "--device", w.to, "--check")
			check.says(t, "looking at frames")
			gen := start(t, "frames", "gen", "--device", w.from, "--count", fmt.Sprint(count), "--size", "60-1400", "--json")
			gen.succeed(t)
			check.succeed(t)
			var frames, lost int
			out := check.stdout.String()
			at := strings.Index(out, "numbered: ")
			if at < 0 {
				t.Fatal(out)
			}
			if _, err := fmt.Sscanf(out[at:], "numbered: %d of 1 streams, 1 ended: %d lost", &frames, &lost); err != nil {
				t.Fatalf("%v in %q", err, out)
			}
			// What UDP loses on a busy machine is counted; nothing else loses any.
			if frames+lost != count || lost != 0 && w.name != "udp" {
				t.Errorf("%s", out)
			}
		})
	}
}

// frame makes a frame from station 02:00:00:00:00:66.
func frame(t *testing.T, to []byte, kind layers.EthernetType, parts ...gopacket.SerializableLayer) []byte {
	t.Helper()
	b := gopacket.NewSerializeBuffer()
	e := &layers.Ethernet{SrcMAC: net.HardwareAddr{2, 0, 0, 0, 0, 0x66}, DstMAC: to, EthernetType: kind}
	if err := gopacket.SerializeLayers(b, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true},
		append([]gopacket.SerializableLayer{e}, parts...)...); err != nil {
		t.Fatal(err)
	}
	return bytes.Clone(b.Bytes())
}

func ping(t *testing.T, to []byte, source string, sequence int) []byte {
	return frame(t, to, layers.EthernetTypeIPv4,
		&layers.IPv4{Version: 4, IHL: 5, TTL: 9, Protocol: layers.IPProtocolICMPv4, SrcIP: net.ParseIP(source).To4(), DstIP: net.IP{10, 0, 0, 1}},
		&layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(8, 0), Id: 1, Seq: uint16(sequence)}, gopacket.Payload("trapeze"))
}

// TestFramesFiltered loads acl into a NIC that another process serves, sets a rule, and
// has echo answer behind it: who is named by the rule gets no answer. The test is the
// peer, with a UDP socket that frames are in.
func TestFramesFiltered(t *testing.T) {
	needsProgram(t)
	conn, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	nic, err := net.ListenPacket("udp", "127.0.0.1:0") // a port that is free
	if err != nil {
		t.Fatal(err)
	}
	at := nic.LocalAddr().(*net.UDPAddr)
	_ = nic.Close()
	socket := filepath.Join(t.TempDir(), "nic0")
	start(t, "emulate", "--socket", socket, "--wire", fmt.Sprintf("udp://%v&peer=%v", at, conn.LocalAddr())).says(t, "serving")
	device := "vfio-user:" + socket
	start(t, "load", "--device", device, "image:acl").succeed(t)
	key := firmware.FlowKey(netip.MustParseAddrPort("10.0.0.66:0"), netip.MustParseAddrPort("10.0.0.1:0"), 1)
	rule := firmware.Rule{Action: firmware.FilterDrop}.Bytes()
	start(t, "fw", "map", "--device", device, "image:acl", "rules", "set", fmt.Sprintf("%x", key), fmt.Sprintf("%x", rule)).succeed(t)
	echo := start(t, "frames", "echo", "--device", device, "--ip", "10.0.0.1")
	echo.says(t, "answering")

	// ask sends frames until an answer comes.
	ask := func(frames ...[]byte) []byte {
		t.Helper()
		b := make([]byte, 2048)
		for deadline := time.Now().Add(timeout); time.Now().Before(deadline); {
			for _, f := range frames {
				if _, err := conn.WriteTo(f, at); err != nil {
					t.Fatal(err)
				}
			}
			if err := conn.SetReadDeadline(time.Now().Add(time.Second)); err != nil {
				t.Fatal(err)
			}
			n, err := conn.Read(b)
			if err == nil && n > 14 && !bytes.Equal(b[12:14], []byte{0x88, 0xb5}) { // none of ours
				return b[:n]
			}
		}
		t.Fatal("no answer")
		return nil
	}
	all := []byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}
	arp := ask(frame(t, all, layers.EthernetTypeARP, &layers.ARP{AddrType: 1, Protocol: layers.EthernetTypeIPv4, HwAddressSize: 6, ProtAddressSize: 4, Operation: 1,
		SourceHwAddress: []byte{2, 0, 0, 0, 0, 0x66}, SourceProtAddress: []byte{10, 0, 0, 2}, DstHwAddress: make([]byte, 6), DstProtAddress: []byte{10, 0, 0, 1}}))
	mac := bytes.Clone(arp[6:12])
	for i := range 5 {
		got := ask(ping(t, mac, "10.0.0.66", i), ping(t, mac, "10.0.0.2", i))
		for got[12] == 8 && got[13] == 6 { // a late answer to ARP
			got = ask(ping(t, mac, "10.0.0.2", i))
		}
		if !bytes.Equal(got[30:34], []byte{10, 0, 0, 2}) || got[34] != 0 {
			t.Errorf("%x is no reply to 10.0.0.2", got)
		}
	}
	if err := echo.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	echo.succeed(t)
	out := start(t, "fw", "map", "--device", device, "image:acl", "rules", "--json")
	out.succeed(t)
	var r struct {
		Results []struct{ Entries []struct{ Value string } }
	}
	if err := json.Unmarshal(out.stdout.Bytes(), &r); err != nil {
		t.Fatal(err)
	}
	if v := r.Results[0].Entries[0].Value; v == hex.EncodeToString(rule) {
		t.Errorf("the rule has dropped nothing: %s", v)
	}
}

// TestFramesInterrupted: a signal ends a dump well, with a file that is whole.
func TestFramesInterrupted(t *testing.T) {
	needsProgram(t)
	for _, s := range []os.Signal{os.Interrupt, syscall.SIGTERM} {
		name := fmt.Sprintf("emu:?wire=shm:@trapeze-interrupted-%d-%v", os.Getpid(), s == os.Interrupt)
		path := filepath.Join(t.TempDir(), "frames.pcapng")
		dump := start(t, "frames", "dump", "--device", name, "--output", path, "--progress", "plain")
		dump.says(t, "looking at frames")
		start(t, "frames", "gen", "--device", name, "--count", "100", "--to", "ff:ff:ff:ff:ff:ff").succeed(t)
		dump.says(t, "in ") // a line of rates: a second has gone by
		if err := dump.cmd.Process.Signal(s); err != nil {
			t.Fatal(err)
		}
		dump.succeed(t)
		f, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		r, err := pcapgo.NewNgReader(f, pcapgo.DefaultNgReaderOptions)
		if err != nil {
			t.Fatal(err)
		}
		n := 0
		for ; err == nil; n++ {
			_, _, err = r.ReadPacketData()
		}
		_ = f.Close()
		if matched := fmt.Sprintf("matched %d\n", n-1); n < 101 || !strings.HasSuffix(dump.stdout.String(), matched) {
			t.Errorf("%d frames in the file; %s", n-1, dump.stdout.String())
		}
	}
}
