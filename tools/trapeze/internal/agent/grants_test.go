package agent

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestFramesOfAGrant: which frames pass is the grant's to say, and what does not pass is counted.
func TestFramesOfAGrant(t *testing.T) {
	header := func(f datasheet.FrameType, endpoint uint32, kind datasheet.Kind) []byte {
		b := make([]byte, headSize)
		h := datasheet.HeaderAt(b)
		h.Destination, h.Source, h.EtherType, h.Type, h.SourceEndpoint = nowhere, datasheet.MAC{2, 0, 0, 0, 0, 1}, datasheet.EtherType, f, endpoint
		datasheet.ConnectBodyAt(b[datasheet.HeaderSize:]).Kind = kind
		return b
	}
	connect := datasheet.FrameConnectRequest
	forged := header(connect, 1, datasheet.KindVI)
	forged[6] = 4
	plain := header(connect, 1, datasheet.KindVI)
	plain[12] = 8
	everything := Grant{Share: 1, Rings: true, Channels: true, Frames: true}
	for name, c := range map[string]struct {
		grant   Grant
		frame   []byte
		forged  bool
		refused bool
	}{
		"a VI":                           {Grant{Share: 1}, header(connect, 1, datasheet.KindVI), false, false},
		"the last endpoint":              {Grant{Share: 1}, header(connect, 8, datasheet.KindVI), false, false},
		"an endpoint behind the last":    {everything, header(connect, 9, datasheet.KindVI), false, true},
		"a ring":                         {Grant{Share: 1, Rings: true}, header(connect, 1, datasheet.KindRing), false, false},
		"a ring that is not granted":     {Grant{Share: 1, Channels: true}, header(connect, 1, datasheet.KindRing), false, true},
		"a ring that is accepted":        {Grant{Share: 1, Channels: true}, header(datasheet.FrameConnectAccept, 1, datasheet.KindRing), false, true},
		"a channel":                      {Grant{Share: 1, Channels: true}, header(connect, 1, datasheet.KindChannel), false, false},
		"a channel that is not granted":  {Grant{Share: 1, Rings: true}, header(connect, 1, datasheet.KindChannel), false, true},
		"cells":                          {Grant{Share: 1, Channels: true}, header(datasheet.FrameCells, 1, 0), false, false},
		"cells that are not granted":     {Grant{Share: 1, Rings: true}, header(datasheet.FrameCells, 1, 0), false, true},
		"a plain frame":                  {Grant{Share: 1, Frames: true}, plain, false, false},
		"a plain one not granted":        {Grant{Share: 1, Rings: true, Channels: true}, plain, false, true},
		"the station of another":         {everything, forged, true, false},
		"a connect request cut off":      {Grant{Share: 1}, header(connect, 1, datasheet.KindVI)[:datasheet.HeaderSize+8], false, true},
		"a frame without an address":     {everything, plain[:datasheet.EthernetHeaderSize-1], false, true},
		"one with an address, no header": {Grant{Share: 1}, plain[:datasheet.EthernetHeaderSize], false, true},
	} {
		t.Run(name, func(t *testing.T) {
			n := newNIC(NIC{Name: "n"})
			s := enter(t, n, 1, c.grant)
			s.vis = 8
			defer s.leave()
			copy(s.program.Reserve(len(c.frame)), c.frame)
			s.program.Commit()
			s.program.Flush()
			n.round(time.Time{})
			want := [3]uint64{1, 0, 0}
			if c.forged {
				want = [3]uint64{0, 1, 0}
			} else if c.refused {
				want = [3]uint64{0, 0, 1}
			}
			should.Be(t, [3]uint64{s.frames.Load(), s.forged.Load(), s.refused.Load()}, want, "passed, forged, refused")
		})
	}
}
