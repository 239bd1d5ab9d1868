package via_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	firmware "github.com/trapeze-nic/trapeze/firmware-loader"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/abi"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// newFrames makes an endpoint for raw frames, with receives of 1514 bytes posted.
func newFrames(t testing.TB, n *via.NIC, which via.Frames) *conform.End {
	t.Helper()
	const size = 1514
	e := conform.NewEnd(t, n, conform.Setup{Memory: via.DefaultDepth * 2 * size,
		Attributes: via.VIAttributes{Frames: which, MaxTransfer: min(size, uint32(n.Query().MTU))}})
	for i, d := range e.Recv {
		must.OK(t, e.VI.PostRecv(e.Prepare(t, d, (len(e.Recv)+i)*size, size)))
	}
	return e
}

// sendFrame sends one frame.
func sendFrame(t testing.TB, p *conform.World, e *conform.End, frame []byte) {
	t.Helper()
	copy(e.Memory.Bytes(), frame)
	must.OK(t, e.VI.PostSend(e.Prepare(t, e.Send[0], 0, len(frame))))
	p.MustTake(e.VI.SendDone)
}

// takeFrame takes the next frame, without what filled it up, and posts the receive
// again.
func takeFrame(t testing.TB, p *conform.World, e *conform.End, size int) []byte {
	t.Helper()
	d := p.MustTake(e.VI.RecvDone)
	i := slices.Index(e.Recv, d)
	must.Be(t, int(d.Length()), max(size, 60), "bytes")
	const slot = 1514
	frame := bytes.Clone(e.Memory.Bytes()[(len(e.Recv)+i)*slot:][:size])
	d.Rearm()
	must.OK(t, e.VI.PostRecv(d))
	return frame
}

// datagram is a UDP datagram over IPv4 in a frame for n.
func datagram(n *via.NIC, from, to string, payload int) []byte {
	src, dst := netip.MustParseAddrPort(from), netip.MustParseAddrPort(to)
	mac := n.Query().Address
	b := append(mac[:], 2, 0, 0, 0, 9, 9, 8, 0)
	b = append(b, 0x45, 0)
	b = binary.BigEndian.AppendUint16(b, uint16(28+payload))
	b = append(b, 0, 0, 0, 0, 64, 17, 0, 0)
	b = append(b, src.Addr().AsSlice()...)
	b = append(b, dst.Addr().AsSlice()...)
	for _, v := range []uint16{src.Port(), dst.Port(), uint16(8 + payload), 0} {
		b = binary.BigEndian.AppendUint16(b, v)
	}
	return append(b, bytes.Repeat([]byte{byte(src.Port())}, payload)...)
}

// TestFrames: raw frames cross every wire beside messages of VIs.
func TestFrames(t *testing.T) {
	for _, backend := range backends {
		t.Run(backend.name, func(t *testing.T) {
			if backend.when.skip() {
				t.Skip("slow")
			}
			a, b := backend.open(t, via.Options{})
			p := conform.NewWorld(t, a, b)
			messages := newPingPong(t, p, 3000)
			x, y := newFrames(t, a, via.StationFrames), newFrames(t, b, via.AllFrames)
			limit := int(x.VI.Attributes().MaxTransfer)
			for i, n := range []int{14, 60, 100, limit} {
				for to, from := range map[*conform.End]*conform.End{x: y, y: x} {
					frame := datagram(to.NIC, "10.0.0.1:7", "10.0.0.2:9", limit)[:n]
					station := from.NIC.Query().Address
					copy(frame[6:], station[:]) // the wire of a host takes no other
					// A lossy wire may lose it, or damage it, since such frames have no checksum.
					for tries := 0; ; tries++ {
						sendFrame(t, p, from, frame)
						if got, ok := tryTake(p, to); ok && bytes.Equal(got, append(frame, make([]byte, max(0, 60-n))...)) {
							break
						}
						if tries == 50 {
							t.Fatalf("frame %d of %d bytes did not arrive", i, n)
						}
					}
				}
				messages.bothRound(t)
			}
		})
	}
}

// tryTake is takeFrame for a frame that may not come.
func tryTake(p *conform.World, e *conform.End) ([]byte, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), 200*time.Millisecond)
	defer cancel()
	for ctx.Err() == nil {
		p.A.Poll()
		p.B.Poll()
		d, err := e.VI.RecvDone()
		if err == via.ErrNotDone {
			continue
		}
		if err != nil {
			return nil, false
		}
		i := slices.Index(e.Recv, d)
		got := bytes.Clone(e.Memory.Bytes()[(len(e.Recv)+i)*1514:][:d.Length()])
		d.Rearm()
		return got, e.VI.PostRecv(d) == nil
	}
	return nil, false
}

// TestFramesRefused: what an endpoint for frames cannot do, and what is no frame.
func TestFramesRefused(t *testing.T) {
	a, b := conform.OnMemory(t, "", via.Options{})
	p := conform.NewWorld(t, a, b)
	x := newFrames(t, a, via.StationFrames)
	ctx := conform.Context(t)
	_, connect := x.VI.ConnectRequest(ctx, via.Address{MAC: b.Query().Address}, "")
	_, level := a.CreateVI(ctx, via.VIAttributes{Frames: via.StationFrames, Reliability: via.ReliableDelivery}, nil, nil)
	_, size := a.CreateVI(ctx, via.VIAttributes{Frames: via.StationFrames, MaxTransfer: uint32(a.Query().MTU) + 1}, nil, nil)
	_, kind := a.CreateVI(ctx, via.VIAttributes{Frames: 3}, nil, nil)
	for what, c := range map[string]struct{ got, want error }{
		"connect":     {connect, via.ErrInvalidState},
		"reliability": {level, via.ErrInvalidReliability},
		"size":        {size, via.ErrInvalidMTU},
		"kind":        {kind, via.ErrInvalidParameter},
		"destroy":     {x.VI.Close(ctx), via.ErrInvalidState},
	} {
		should.Fail(t, c.got, c.want, "%s", what)
	}
	forged := datagram(b, "10.0.0.1:7", "10.0.0.2:9", 40)
	copy(forged[12:], datasheet.EtherType[:])
	copy(x.Memory.Bytes(), forged)
	must.OK(t, x.VI.PostSend(x.Prepare(t, x.Send[0], 0, len(forged))))
	d, err := p.Take(x.VI.SendDone)
	if !errors.Is(err, via.ErrDescriptor) || d.Status()&via.StatusFormatError == 0 {
		t.Errorf("a frame of our protocol: %v", err)
	}
	must.OK(t, x.VI.Disconnect(ctx))
	for range x.Recv {
		if d, err := p.Take(x.VI.RecvDone); d == nil || d.Status()&via.StatusFlushed == 0 {
			t.Fatalf("after disconnect: %v", err)
		}
	}
	must.OK(t, x.VI.Close(ctx))
}

// words are 32-bit numbers, one after the other.
func words(n ...uint32) (b []byte) {
	for _, v := range n {
		b = binary.LittleEndian.AppendUint32(b, v)
	}
	return b
}

// TestFlowSteering spreads flows over two endpoints by the hash that Microsoft's
// "Verifying the RSS Hash Calculation" has for them, in order within each.
func TestFlowSteering(t *testing.T) {
	for _, options := range []string{"", "&engine=thread"} {
		a, b := conform.OnMemory(t, options, via.Options{})
		p := conform.NewWorld(t, a, b)
		x := newFrames(t, a, via.StationFrames)
		queues := []*conform.End{newFrames(t, b, via.StationFrames), newFrames(t, b, via.StationFrames)}
		img, maps := build(t, "flow-steer")
		must.Get(b.LoadProgram(conform.Context(t), img, load.Options{}))(t)
		table := must.Get(b.ProgramMap(maps, slices.IndexFunc(maps, func(m abi.Map) bool { return m.Name == "queues" })))(t)
		flows := []struct {
			from, to string
			hash     uint32
		}{
			{"66.9.149.187:2794", "161.142.100.80:1766", 0x51ccc178},
			{"199.92.111.2:14230", "65.69.140.83:4739", 0xc626b0ea},
			{"24.19.198.95:12898", "12.22.207.184:38024", 0x5c2b394a},
			{"38.27.205.30:48228", "209.142.163.6:2217", 0xafc7327f},
			{"153.39.163.191:44251", "202.188.127.2:1303", 0x10e828a2},
		}
		for _, f := range flows { // the table is empty: the oldest
			frame := datagram(b, f.from, f.to, 100)
			sendFrame(t, p, x, frame)
			should.Same(t, takeFrame(t, p, queues[0], len(frame)), frame, "%s: other bytes", f.from)
		}
		for i := range uint32(firmware.SteerQueues) {
			must.OK(t, table.Update(words(i), words(queues[i%2].VI.Number()), datasheet.MailboxAny))
		}
		var want [2][][]byte
		for round := range 6 {
			for _, f := range flows {
				frame := datagram(b, f.from, f.to, 100+round)
				sendFrame(t, p, x, frame)
				q := f.hash % firmware.SteerQueues % 2
				want[q] = append(want[q], frame)
			}
		}
		for q, frames := range want {
			if len(frames) == 0 {
				t.Fatalf("no flow is for queue %d", q)
			}
			for i, frame := range frames {
				must.Same(t, takeFrame(t, p, queues[q], len(frame)), frame, "queue %d, frame %d: other bytes", q, i)
			}
		}
		s, err := b.ProgramStatus()
		if err != nil || s.Hooks[abi.DemuxRx].Runs != uint64(7*len(flows)) || s.Hooks[abi.DemuxRx].Faults != 0 {
			t.Errorf("%+v, %v", s.Hooks[abi.DemuxRx], err)
		}
	}
}

// TestSetPayloadRefuses: an entry is one of 256, and has memory of the VI's own NIC, or none.
func TestSetPayloadRefuses(t *testing.T) {
	a, b := conform.OnMemory(t, "", via.Options{})
	ctx, y := conform.Context(t), conform.NewEnd(t, b, conform.Setup{})
	const size = 4096
	buffers := must.Get(b.Alloc(ctx, size, via.MemoryAttributes{}))(t)
	for what, err := range map[string]error{
		"no such entry":  y.VI.SetPayload(ctx, 256, buffers, 0, 1),
		"negative entry": y.VI.SetPayload(ctx, -1, buffers, 0, 1),
		"beyond":         y.VI.SetPayload(ctx, 0, buffers, size-1, 2),
		"other NIC":      y.VI.SetPayload(ctx, 0, conform.NewEnd(t, a, conform.Setup{}).Memory, 0, 1),
	} {
		should.Fail(t, err, via.ErrInvalidParameter, "%s", what)
	}
	should.OK(t, y.VI.SetPayload(ctx, 1, buffers, 0, size))
	should.OK(t, y.VI.SetPayload(ctx, 1, nil, 0, 0))
}

// build makes an image that we ship.
func build(t testing.TB, name string) (load.Image, []abi.Map) {
	t.Helper()
	s := must.Get(firmware.BuildShipped(name))(t)
	img := must.Get(load.Flat(s.Link()))(t)
	return img, s.Maps
}
