package engine_test

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// upTo is a path that carries frames of at most n bytes, and loses a share of those. With
// since, it carries all until that is true.
func upTo(n int, loss float64, seed uint64, since *bool) func([]byte) [][]byte {
	r := rand.New(rand.NewPCG(seed, 7))
	return func(f []byte) [][]byte {
		if (since == nil || *since) && len(f) > n || r.Float64() < loss {
			return nil
		}
		return [][]byte{f}
	}
}

// narrow makes the path from a, from b, or in both directions carry n bytes only.
func narrow(n int, a, b bool, since *bool) option {
	return func(c *engine.Config, p *port) {
		if first := c.MAC[5] == 1; first && a || !first && b {
			p.spoil = upTo(n, 0, 1, since)
		}
	}
}

// TestPathTooSmall: on a path that does not carry the frames of one end, or of both, no
// connection comes about, and the client learns why within the dead time.
func TestPathTooSmall(t *testing.T) {
	for _, c := range []struct {
		name         string
		client, back bool
	}{{"from the client", true, false}, {"to the client", false, true}, {"both ways", true, true}} {
		levels(t, func(t *testing.T, _ datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
			t.Run(c.name, func(t *testing.T) {
				w := newWorld(t, narrow(1500, c.client, c.back, nil))
				v, p := w.a.newVI(w.a.memory(0, 0), change), w.b.newVI(w.b.memory(0, 0), change)
				wait := waitFor(w.b, "x", 60_000)
				req := request(v, w.b.e.MAC(), "x", 60_000)
				asked := w.b.wait(wait)
				accept := start(w.b, datasheet.OpConnectAccept, datasheet.ConnectAcceptBody{
					Connection: datasheet.Reply[datasheet.ConnectionReply](&asked).Connection, Endpoint: p.id, TimeoutMS: 60_000})
				began := w.now
				if r := w.a.wait(req); r.Result != datasheet.ResultPathMTU {
					t.Errorf("the client learns %v", r.Result)
				}
				if took := w.now - began; took > engine.DefaultTiming().Dead {
					t.Errorf("after %v", took)
				}
				if r := w.b.wait(accept); r.Result != datasheet.ResultWithdrawn {
					t.Errorf("the server learns %v", r.Result)
				}
			})
		})
	}
}

// TestPathShrinks: a path that carries large frames no more ends a connection with data
// under way, and both ends learn why. Meanwhile the peer sends: its frames do arrive.
func TestPathShrinks(t *testing.T) {
	for _, busy := range []bool{false, true} {
		t.Run(fmt.Sprintf("peer sends %v", busy), func(t *testing.T) {
			reliably(t, func(t *testing.T, change func(*datasheet.CreateEndpointBody)) {
				small := false
				w, v, p := pair(t, change, narrow(1500, true, false, &small))
				small = true
				s, _ := v.descriptor(5000)
				r, _ := p.descriptor(5000)
				p.postRecv(r)
				var back *stream
				if busy {
					back = newStream(t, p, v, 100, 1<<30, 4)
				}
				began := w.now
				v.postSend(s)
				w.run("the end of the connection", func() bool {
					if busy && !s.Status().Done() && len(w.a.events)+len(w.b.events) == 0 {
						back.step()
						w.now += 100 * time.Microsecond
					}
					return s.Status().Done()
				})
				if took := w.now - began; took < 3*time.Second || took > 10*time.Second {
					t.Errorf("after %v", took)
				}
				if why := lostFor(t, w.a); why != datasheet.ResultPathMTU {
					t.Errorf("the sender learns %v", why)
				}
				if why := lostFor(t, w.b); why != datasheet.ResultPathMTU {
					t.Errorf("the receiver learns %v", why)
				}
			})
		})
	}
}

// TestLossIsNoSmallPath: on wires that lose half of all frames, whatever their size,
// connections come about, and messages arrive.
func TestLossIsNoSmallPath(t *testing.T) {
	for seed := range uint64(200) {
		w := newWorld(t)
		w.a.port.spoil, w.b.port.spoil = upTo(1<<20, 0.5, 2*seed, nil), upTo(1<<20, 0.5, 2*seed+1, nil)
		v, p := w.a.newVI(w.a.memory(0, 0), nil), w.b.newVI(w.b.memory(0, 0), nil)
		connect(v, p)
		if sent, received, _ := message(v, p, pattern(20_000, seed)); sent.Failed() || received.Failed() {
			t.Fatalf("seed %d: %v, %v", seed, sent, received)
		}
	}
}

// TestDroppedIsNoSmallPath: a peer that drops data frames which do come, as a VI without a
// receive in its shared queue does, has no small path, however long it goes on.
func TestDroppedIsNoSmallPath(t *testing.T) {
	w, v, p := pair(t, nil)
	open := false
	w.a.port.spoil = func(f []byte) [][]byte {
		if h := datasheet.HeaderAt(f); h.Type == datasheet.FrameData && !open {
			c := alignedBytes(len(f))
			copy(c, f)
			datasheet.HeaderAt(c).Extent = 1 << 31
			return [][]byte{c}
		}
		return [][]byte{f}
	}
	s, _ := v.descriptor(5000)
	r, _ := p.descriptor(5000)
	p.postRecv(r)
	v.postSend(s)
	until := w.now + 30*time.Second
	w.run("half a minute", func() bool { return w.now > until || s.Status().Done() })
	open = true
	w.run("the message", func() bool { return s.Status().Done() })
	if s.Status().Failed() {
		t.Fatal(s.Status())
	}
}

// TestSmallerMTUCounts: of two ends with different MTUs the one with the larger cuts its
// messages to what the other takes.
func TestSmallerMTUCounts(t *testing.T) {
	for _, first := range []bool{true, false} {
		longest := 0
		w := newWorld(t, func(c *engine.Config, p *port) {
			if p.mtu = 9014; (c.MAC[5] == 1) == first {
				p.mtu = 1514
			}
			p.spoil = func(f []byte) [][]byte {
				if len(f) > 1514 && datasheet.HeaderAt(f).Type != datasheet.FrameConnectRequest {
					longest = max(longest, len(f))
				}
				if len(f) > 1514 {
					return nil // the NIC at the other end drops it
				}
				return [][]byte{f}
			}
		})
		v, p := w.a.newVI(w.a.memory(0, 0), nil), w.b.newVI(w.b.memory(0, 0), nil)
		connect(v, p)
		for _, way := range [][2]*vi{{v, p}, {p, v}} {
			if sent, received, _ := message(way[0], way[1], pattern(20_000, 1)); sent.Failed() || received.Failed() {
				t.Fatalf("%v, %v", sent, received)
			}
		}
		if longest > 0 {
			t.Errorf("a frame of %d bytes was sent to an end that takes 1514", longest)
		}
	}
}

// older makes a frame that of a device which does not tell its MTU, does not pad and does
// not count. It strips what such a device does not look at, so that in both directions it
// makes an older device of either end.
func older(f []byte) [][]byte {
	h := datasheet.HeaderAt(f)
	switch h.Type {
	case datasheet.FrameConnectRequest, datasheet.FrameConnectAccept:
		f = f[:datasheet.HeaderSize+datasheet.ConnectBodySize]
		h.Length, h.Extent, h.Offset = datasheet.ConnectBodySize, 0, 0
		datasheet.ConnectBodyAt(f[datasheet.HeaderSize:]).Options &^= datasheet.ConnectCounts
	case datasheet.FrameAck:
		h.Immediate = 0
	}
	return [][]byte{f}
}

// TestOlderPeers: an end that says nothing of the path is connected with as it was before,
// with no accept that is longer than it knows, and messages arrive.
func TestOlderPeers(t *testing.T) {
	w := newWorld(t, func(c *engine.Config, p *port) { p.spoil = older })
	w.b.port.spoil = func(f []byte) [][]byte {
		if frameType(f) == datasheet.FrameConnectAccept && len(f) > datasheet.HeaderSize+datasheet.ConnectBodySize {
			t.Errorf("an accept of %d bytes goes to a client that has not padded its request", len(f))
		}
		return older(f)
	}
	v, p := w.a.newVI(w.a.memory(0, 0), nil), w.b.newVI(w.b.memory(0, 0), nil)
	began := w.now
	connect(v, p)
	if w.now-began > time.Second {
		t.Errorf("connected after %v", w.now-began)
	}
	for range 3 {
		if sent, received, _ := message(v, p, pattern(20_000, 1)); sent.Failed() || received.Failed() {
			t.Fatalf("%v, %v", sent, received)
		}
	}
}

// TestBadMTU: a connect frame with an MTU that no wire has is dropped.
func TestBadMTU(t *testing.T) {
	for _, of := range []datasheet.FrameType{datasheet.FrameConnectRequest, datasheet.FrameConnectAccept} {
		w, v, p := idlePair(t)
		spoil := func(f []byte) [][]byte {
			if h := datasheet.HeaderAt(f); h.Type == of {
				h.Extent = datasheet.MinMTU - 1
			}
			return [][]byte{f}
		}
		w.a.port.spoil, w.b.port.spoil = spoil, spoil
		wait := waitFor(w.b, "x", 500)
		req := request(v, w.b.e.MAC(), "x", 500)
		if of == datasheet.FrameConnectAccept {
			asked := w.b.wait(wait)
			start(w.b, datasheet.OpConnectAccept, datasheet.ConnectAcceptBody{
				Connection: datasheet.Reply[datasheet.ConnectionReply](&asked).Connection, Endpoint: p.id, TimeoutMS: 500})
		}
		if r := w.a.wait(req); r.Result != datasheet.ResultTimeout {
			t.Errorf("%v", r.Result)
		}
	}
}
