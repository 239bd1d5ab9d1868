// Package ghost plays clients that die while they connect: they ask for a
// connection and answer nothing. It is for tests of servers.
package ghost

import (
	"net"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Ask has n ghosts ask a server, at a UDP address, to connect VIs of the given
// level for messages of up to size bytes. It returns when the server has accepted
// all of them, and tries for as long as it takes.
func Ask(t testing.TB, server string, discriminator []byte, n int, level datasheet.Reliability, size int) {
	t.Helper()
	c := must.Get(net.Dial("udp", server))(t)
	// A port that is closed would have the server's frames refused.
	t.Cleanup(func() { c.Close() })
	// A station stays where the server has heard it first, so each has its own.
	port := c.LocalAddr().(*net.UDPAddr).Port
	station := datasheet.MAC{2, 0xde, 0xad, 0, byte(port >> 8), byte(port)}
	accepted := map[uint32]bool{}
	buf := make([]byte, 1<<16)
	for end := time.Now().Add(time.Minute); len(accepted) < n; {
		must.Hold(t, !time.Now().After(end), "the server has accepted %d of %d", len(accepted), n)
		for i := uint32(1); i <= uint32(n); i++ {
			if accepted[i] {
				continue
			}
			// There may be no listener at the port yet.
			_, _ = c.Write(request(station, i, discriminator, level, size))
		}
		must.OK(t, c.SetReadDeadline(time.Now().Add(20*time.Millisecond)))
		for {
			k, err := c.Read(buf)
			if err != nil {
				break
			}
			if h := datasheet.HeaderAt(buf[:k]); h != nil && h.Type == datasheet.FrameConnectAccept {
				accepted[h.DestinationEndpoint] = true
			}
		}
	}
}

// request is the frame with which ghost number i of a station asks.
func request(station datasheet.MAC, i uint32, discriminator []byte, level datasheet.Reliability, size int) []byte {
	frame := make([]byte, datasheet.HeaderSize+datasheet.ConnectBodySize)
	*datasheet.HeaderAt(frame) = datasheet.Header{
		Destination: datasheet.Broadcast, Source: station, EtherType: datasheet.EtherType, Version: datasheet.WireVersion,
		Type: datasheet.FrameConnectRequest, Flags: datasheet.FrameChecksum, Length: datasheet.ConnectBodySize, SourceEndpoint: i,
		Extent: datasheet.MinMTU,
	}
	body := datasheet.ConnectBodyAt(frame[datasheet.HeaderSize:])
	*body = datasheet.ConnectBody{Key: i, MaxTransfer: uint32(size), TimeoutMS: 1 << 31, Reliability: level, Kind: datasheet.KindVI}
	body.Remote.Len = uint8(copy(body.Remote.Data[:], discriminator))
	datasheet.HeaderAt(frame).Checksum = datasheet.FrameChecksumOf(frame)
	return frame
}
