package framescmd

import (
	"encoding/binary"
	"fmt"
	"net"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/frames/dissect"
)

// describe writes a line about a frame: when it came, from whom to whom, and what its
// headers say, and one for each cell in it. Nothing of what is in a frame is printed as text.
func describe(w *strings.Builder, at time.Time, frame []byte, d *dissect.Dissector) {
	w.WriteString(at.Format("15:04:05.000000000"))
	if len(frame) < ethernet.HeaderSize {
		fmt.Fprintf(w, " %d bytes, too short\n", len(frame))
		return
	}
	fmt.Fprintf(w, " %v > %v, %d bytes: ", ethernet.MAC(frame[6:]), ethernet.MAC(frame), len(frame))
	p := gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.DecodeOptions{NoCopy: true})
	from, to := "", ""
	var said []string
	say := func(format string, a ...any) { said = append(said, fmt.Sprintf(format, a...)) }
	for _, layer := range p.Layers() {
		switch l := layer.(type) {
		case *layers.Dot1Q:
			say("VLAN %d priority %d", l.VLANIdentifier, l.Priority)
		case *layers.ARP:
			say("%s", describeARP(l))
		case *layers.IPv4:
			from, to = l.SrcIP.String(), l.DstIP.String()
			if l.FragOffset != 0 || l.Flags&layers.IPv4MoreFragments != 0 {
				say("%s > %s: fragment at %d of %d, protocol %d", from, to, int(l.FragOffset)*8, l.Id, uint8(l.Protocol))
			}
		case *layers.IPv6:
			from, to = l.SrcIP.String(), l.DstIP.String()
		case *layers.TCP:
			say("%s > %s: TCP [%s] seq %d ack %d win %d, %d bytes", join(from, int(l.SrcPort)), join(to, int(l.DstPort)), tcpFlags(l),
				l.Seq, l.Ack, l.Window, len(l.Payload))
		case *layers.UDP:
			say("%s > %s: UDP, %d bytes", join(from, int(l.SrcPort)), join(to, int(l.DstPort)), len(l.Payload))
		case *layers.ICMPv4:
			say("%s > %s: ICMP %v, id %d, seq %d, %d bytes", from, to, l.TypeCode, l.Id, l.Seq, len(l.Payload))
		case *layers.ICMPv6:
			say("%s > %s: ICMPv6 %v, %d bytes", from, to, l.TypeCode, len(l.Payload))
		}
	}
	switch kind := frame[12:14]; {
	case len(said) > 0 && p.ErrorLayer() == nil, len(said) > 0 && p.TransportLayer() != nil:
	case from != "":
		say("%s > %s", from, to)
	case [2]byte(kind) == datasheet.EtherType:
		if f, about := d.Frame(frame); about {
			say("%v", f)
		} else {
			say("frame of a Trapeze connection")
		}
	default:
		say("EtherType 0x%04x", binary.BigEndian.Uint16(kind))
	}
	w.WriteString(strings.Join(said, ", "))
	w.WriteByte('\n')
}

func describeARP(a *layers.ARP) string {
	sender, target := net.IP(a.SourceProtAddress), net.IP(a.DstProtAddress)
	switch a.Operation {
	case layers.ARPRequest:
		return fmt.Sprintf("ARP, who has %v? tell %v", target, sender)
	case layers.ARPReply:
		return fmt.Sprintf("ARP, %v is at %v", sender, net.HardwareAddr(a.SourceHwAddress))
	}
	return fmt.Sprintf("ARP operation %d", a.Operation)
}

func join(ip string, port int) string { return net.JoinHostPort(ip, fmt.Sprint(port)) }

func tcpFlags(t *layers.TCP) string {
	s := ""
	for _, f := range []struct {
		set  bool
		name string
	}{{t.SYN, "S"}, {t.FIN, "F"}, {t.RST, "R"}, {t.PSH, "P"}, {t.URG, "U"}, {t.ACK, "."}} {
		if f.set {
			s += f.name
		}
	}
	return s
}
