package framescmd

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// describe writes a line about a frame: when it came, from whom to whom, and which headers it
// has. Nothing of what is in a frame is printed as text; tshark shows more of it.
func describe(w io.Writer, at time.Time, frame []byte) error {
	words := []string{at.Format("15:04:05.000000000"), fmt.Sprintf("%d bytes", len(frame))}
	for _, l := range gopacket.NewPacket(frame, layers.LayerTypeEthernet, gopacket.DecodeOptions{NoCopy: true}).Layers() {
		switch kind := l.LayerType(); kind {
		case layers.LayerTypeEthernet:
			e := l.(*layers.Ethernet)
			words = append(words, e.LinkFlow().String(), fmt.Sprintf("type 0x%04x", uint16(e.EthernetType)))
			continue
		case gopacket.LayerTypePayload, gopacket.LayerTypeDecodeFailure:
			continue
		default:
			words = append(words, kind.String())
		}
		switch l := l.(type) {
		case gopacket.NetworkLayer:
			words = append(words, l.NetworkFlow().String())
		case gopacket.TransportLayer:
			words = append(words, l.TransportFlow().String())
		}
	}
	_, err := fmt.Fprintln(w, strings.Join(words, " "))
	return err
}
