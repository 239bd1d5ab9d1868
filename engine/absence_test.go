package engine_test

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// losing drops frames of the types that are set.
type losing map[datasheet.FrameType]bool

func (l losing) spoil(f []byte) [][]byte {
	if l[datasheet.HeaderAt(f).Type] {
		return nil
	}
	return [][]byte{f}
}

// TestProbeEndsConnection has a probe acknowledge the last message before one
// that cannot be sent: the connection ends while the probe is handled.
func TestProbeEndsConnection(t *testing.T) {
	w, v, p := pair(t, nil)
	r, _ := p.descriptor(10)
	unused, _ := p.descriptor(10)
	p.postRecv(r, unused)
	w.settle()
	lost := losing{datasheet.FrameAck: true, datasheet.FrameData: true}
	w.b.port.spoil = lost.spoil
	good, _ := v.descriptor(10)
	bad, _ := v.descriptor(10)
	bad.Control().Length++
	// The peer has no credit, so it asks, and what it asks with is what we hear.
	stalled, _ := p.descriptor(10)
	p.postSend(stalled)
	v.postSend(good, bad)
	w.run("the end of the connection", func() bool { return bad.Status().Done() })
	if good.Status().Failed() || bad.Status()&datasheet.StatusErrorMask != datasheet.StatusLengthError {
		t.Fatalf("%v, %v", good.Status(), bad.Status())
	}
	w.run("the end at the peer", func() bool { return stalled.Status().Done() })
}

// TestAbsence leaves a question open and then runs neither engine for longer
// than a peer may send nothing, as on a host that was suspended.
func TestAbsence(t *testing.T) {
	w, v, p := pair(t, nil)
	lost := losing{datasheet.FrameData: true}
	w.a.port.spoil = lost.spoil
	s, out := v.descriptor(100)
	r, in := p.descriptor(100)
	copy(out[0], pattern(100, 1))
	p.postRecv(r)
	v.postSend(s)
	w.run("a timeout", func() bool { return w.a.e.Counter(datasheet.CounterTimeouts) > 0 })
	w.settle() // what was sent again is lost too
	delete(lost, datasheet.FrameData)
	w.now += time.Minute
	w.run("the message", func() bool { return s.Status().Done() && r.Status().Done() })
	if s.Status().Failed() || r.Status().Failed() {
		t.Fatalf("sent %v, received %v", s.Status(), r.Status())
	}
	mustEqual(t, in[0], pattern(100, 1))
}

// TestRequestAfterAbsence has a client's request wait for a server that nobody
// runs: the client's time counts from when the server sees the request.
func TestRequestAfterAbsence(t *testing.T) {
	w, v, p := idlePair(t)
	asked := waitFor(w.b, "x", 100_000)
	w.b.e.Doorbell(datasheet.EndpointPage(p.id)+datasheet.DoorbellRecv, 0)
	w.b.e.Step() // has worked: nobody looks at the clock
	w.now += 30 * time.Second
	req := request(v, w.b.e.MAC(), "x", 2_000)
	w.b.e.Step()
	r, ok := w.b.replies[asked]
	if !ok {
		t.Fatal("the request did not arrive")
	}
	for range 100 {
		w.b.e.Step()
	}
	c := datasheet.Reply[datasheet.ConnectionReply](&r).Connection
	do(w.b, datasheet.OpConnectAccept, datasheet.ConnectAcceptBody{Connection: c, Endpoint: p.id, TimeoutMS: 1_000})
	if r := w.a.wait(req); r.Result != datasheet.ResultSuccess {
		t.Fatal(r.Result)
	}
}

// TestRejectIsRepeated loses the reject of a server whose accept had come to
// nothing: copies of the request are answered with another.
func TestRejectIsRepeated(t *testing.T) {
	w, v, p := idlePair(t)
	asked := waitFor(w.b, "x", 10_000)
	req := request(v, w.b.e.MAC(), "x", 60_000)
	r := w.b.wait(asked)
	lost := losing{datasheet.FrameConnectAccept: true, datasheet.FrameConnectReject: true}
	w.b.port.spoil = lost.spoil
	c := datasheet.Reply[datasheet.ConnectionReply](&r).Connection
	accept := w.b.wait(start(w.b, datasheet.OpConnectAccept, datasheet.ConnectAcceptBody{Connection: c, Endpoint: p.id, TimeoutMS: 500}))
	if accept.Result != datasheet.ResultTimeout {
		t.Fatal(accept.Result)
	}
	w.b.port.spoil = nil
	before := w.now
	if r := w.a.wait(req); r.Result != datasheet.ResultReject || w.now-before > time.Second {
		t.Fatalf("%v after %v", r.Result, w.now-before)
	}
}

// TestBroadcastIsWithdrawn gives up a request to whom it may concern.
func TestBroadcastIsWithdrawn(t *testing.T) {
	w, v, p := idlePair(t)
	asked := waitFor(w.b, "x", 10_000)
	req := request(v, datasheet.Broadcast, "x", 60_000)
	r := w.b.wait(asked)
	do(w.a, datasheet.OpAbort, datasheet.AbortBody{ID: req})
	w.settle()
	c := datasheet.Reply[datasheet.ConnectionReply](&r).Connection
	accept := w.b.wait(start(w.b, datasheet.OpConnectAccept, datasheet.ConnectAcceptBody{Connection: c, Endpoint: p.id, TimeoutMS: 500}))
	if accept.Result != datasheet.ResultWithdrawn {
		t.Fatalf("the request is still there: %v", accept.Result)
	}
}

// TestServerLearnsRights has the client state rights that the server does not
// have: CONNECT_ACCEPT reports the client's.
func TestServerLearnsRights(t *testing.T) {
	w, v, p := idlePair(t)
	w.a.port.spoil = func(f []byte) [][]byte {
		if datasheet.HeaderAt(f).Type == datasheet.FrameConnectRequest {
			datasheet.ConnectBodyAt(f[datasheet.HeaderSize:]).Rights = datasheet.AccessRDMAWrite
		}
		return [][]byte{f}
	}
	asked := waitFor(w.b, "x", 10_000)
	request(v, w.b.e.MAC(), "x", 10_000)
	r := w.b.wait(asked)
	c := datasheet.Reply[datasheet.ConnectionReply](&r).Connection
	got := do(w.b, datasheet.OpConnectAccept, datasheet.ConnectAcceptBody{Connection: c, Endpoint: p.id, TimeoutMS: 1_000})
	if rights := datasheet.Reply[datasheet.ConnectedReply](got).RemoteRights; rights != datasheet.AccessRDMAWrite {
		t.Fatalf("rights %#x", uint32(rights))
	}
}
