package engine_test

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// forever is the timeout of a host that does not say one.
const forever = math.MaxUint32

func accept(n *node, connection uint32, v *vi, ms uint32) uint16 {
	return start(n, datasheet.OpConnectAccept, datasheet.ConnectAcceptBody{Connection: connection, Endpoint: v.id, TimeoutMS: ms})
}

// offered waits for the end of a CONNECT_WAIT and returns the request.
func offered(n *node, wait uint16) datasheet.ConnectionReply {
	n.w.t.Helper()
	r := n.wait(wait)
	if r.Result != datasheet.ResultSuccess {
		n.w.t.Fatalf("CONNECT_WAIT: %v", r.Result)
	}
	return *datasheet.Reply[datasheet.ConnectionReply](&r)
}

// TestManyClientsOverBadWires has more clients ask at once than a NIC remembers
// requests of. There are as many waits as clients, so that a request that is
// offered twice takes the wait of another.
func TestManyClientsOverBadWires(t *testing.T) {
	const clients = 300
	for seed := range uint64(3) {
		w := newWorld(t, lossy(seed, 0.3, 0.1, 0.1, 0))
		a, b := w.a.memory(0, 0), w.b.memory(0, 0)
		waits, requests := map[uint16]bool{}, map[uint16]string{}
		for i := range clients {
			waits[waitFor(w.b, "service", forever)] = true
			name := fmt.Sprint("client ", i)
			requests[start(w.a, datasheet.OpConnectRequest, datasheet.ConnectRequestBody{Endpoint: w.a.newVI(a, nil).id,
				TimeoutMS: 30_000, RemoteMAC: w.b.e.MAC(), Remote: disc("service"), Local: disc(name)})] = name
		}
		seen, accepts := map[datasheet.Discriminator]bool{}, map[uint16]bool{}
		w.run("the answers to all requests", func() bool {
			for id, r := range w.b.replies {
				switch {
				case r.Result != datasheet.ResultSuccess:
					t.Fatalf("seed %d: the server is answered %v", seed, r.Result)
				case waits[id]:
					delete(waits, id)
					delete(w.b.replies, id)
					c := *datasheet.Reply[datasheet.ConnectionReply](&r)
					if seen[c.Remote] {
						t.Fatalf("seed %d: the request of %q is offered again", seed, c.Remote.Data[:c.Remote.Len])
					}
					seen[c.Remote] = true
					accepts[accept(w.b, c.Connection, w.b.newVI(b, nil), forever)] = true
				case accepts[id]:
					delete(accepts, id)
				}
			}
			for id, name := range requests {
				if r, ok := w.a.replies[id]; ok {
					if r.Result != datasheet.ResultSuccess {
						t.Fatalf("seed %d: %s is answered %v", seed, name, r.Result)
					}
					delete(requests, id)
				}
			}
			return len(requests) == 0 && len(accepts) == 0
		})
		if len(seen) != clients || len(waits) != 0 {
			t.Fatalf("seed %d: %d requests were offered, %d waits are left", seed, len(seen), len(waits))
		}
	}
}

// TestRejectedOnce has many requests turned down over a bad wire: none is offered
// again because its reject was lost.
func TestRejectedOnce(t *testing.T) {
	const clients = 300
	w := newWorld(t, lossy(1, 0.3, 0.1, 0.1, 0))
	handle := w.a.memory(0, 0)
	waits, requests := map[uint16]bool{}, []uint16{}
	for range clients + 10 {
		waits[waitFor(w.b, "service", forever)] = true
	}
	for range clients {
		requests = append(requests, request(w.a.newVI(handle, nil), w.b.e.MAC(), "service", 30_000))
	}
	for range clients {
		var id uint16
		w.run("an offer", func() bool {
			for id = range w.b.replies {
				if waits[id] {
					return true
				}
			}
			return false
		})
		delete(waits, id)
		do(w.b, datasheet.OpConnectReject, datasheet.ConnectRejectBody{Connection: offered(w.b, id).Connection})
	}
	for _, id := range requests {
		if r := w.a.wait(id); r.Result != datasheet.ResultReject {
			t.Fatal(r.Result)
		}
	}
	for id := range waits {
		if r, ok := w.b.replies[id]; ok {
			t.Fatalf("more requests were offered than there are: %v", r.Result)
		}
	}
}

// TestClientDiesWhileConnecting has a client that sends nothing more after its
// request. The server does not wait for it as long as it is told to, and it does
// not fill the wire meanwhile.
func TestClientDiesWhileConnecting(t *testing.T) {
	levels(t, func(t *testing.T, level datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
		w := newWorld(t)
		v, p := w.a.newVI(w.a.memory(0, 0), change), w.b.newVI(w.b.memory(0, 0), change)
		wait := waitFor(w.b, "x", forever)
		request(v, w.b.e.MAC(), "x", forever)
		c := offered(w.b, wait)
		w.a.e.Reset()
		w.a.port.spoil = func([]byte) [][]byte { return nil }
		from, sent := w.now, w.b.e.Counter(datasheet.CounterFramesSent)
		if r := w.b.wait(accept(w.b, c.Connection, p, forever)); r.Result != datasheet.ResultConnectionLost {
			t.Errorf("the accept ended with %v", r.Result)
		}
		if d := w.now - from; d < 2*time.Second || d > 5*time.Second {
			t.Errorf("it ended after %v", d)
		}
		if n := w.b.e.Counter(datasheet.CounterFramesSent) - sent; n < 10 || n > 60 {
			t.Errorf("%d frames were sent for it", n)
		}
		if s := p.state(); s != datasheet.StateIdle {
			t.Errorf("the VI is %v", s)
		}
		w.a.port.spoil = nil
		connect(w.a.newVI(w.a.memory(0, 0), change), p)
	})
}

// TestSlowAnswerIsNoDeath lets nobody run the engines for longer than a peer may
// send nothing, while an accept is under way.
func TestSlowAnswerIsNoDeath(t *testing.T) {
	w, v, p := idlePair(t)
	wait := waitFor(w.b, "x", forever)
	req := request(v, w.b.e.MAC(), "x", forever)
	c := offered(w.b, wait)
	acc := accept(w.b, c.Connection, p, forever)
	w.b.e.Step()
	w.now += time.Minute
	w.b.e.Step()
	if r := w.b.wait(acc); r.Result != datasheet.ResultSuccess {
		t.Errorf("the accept ended with %v", r.Result)
	}
	if r := w.a.wait(req); r.Result != datasheet.ResultSuccess {
		t.Errorf("the request ended with %v", r.Result)
	}
}

// TestRequestsBecomeRare counts the frames of a client that waits for a server
// that is not there, and has one come late.
func TestRequestsBecomeRare(t *testing.T) {
	w, v, p := idlePair(t)
	dropAll := func([]byte) [][]byte { return nil }
	w.b.port.spoil = dropAll
	req := request(v, w.b.e.MAC(), "x", forever)
	w.run("a minute", func() bool { return w.now >= time.Minute })
	if n := w.a.e.Counter(datasheet.CounterFramesSent); n < 30 || n > 100 {
		t.Errorf("%d requests in a minute", n)
	}
	w.b.port.spoil = nil
	from := w.now
	c := offered(w.b, waitFor(w.b, "x", forever))
	acc := accept(w.b, c.Connection, p, forever)
	if r := w.a.wait(req); r.Result != datasheet.ResultSuccess {
		t.Error(r.Result)
	}
	if r := w.b.wait(acc); r.Result != datasheet.ResultSuccess || w.now-from > 2*time.Second {
		t.Errorf("%v after %v", r.Result, w.now-from)
	}
}

// TestWithdrawn: a server that answers a client that no longer waits is told so,
// however it is found out.
func TestWithdrawn(t *testing.T) {
	for _, c := range []struct {
		name  string
		leave func(w *world, req uint16)
	}{
		{"the client's time was up", func(w *world, req uint16) {}},
		{"nobody heard it", func(w *world, req uint16) { w.a.port.spoil = losing{datasheet.FrameDisconnect: true}.spoil }},
		{"the client gave up", func(w *world, req uint16) {
			do(w.a, datasheet.OpAbort, datasheet.AbortBody{ID: req})
		}},
		{"the client gave up, unheard", func(w *world, req uint16) {
			w.a.port.spoil = losing{datasheet.FrameDisconnect: true}.spoil
			do(w.a, datasheet.OpAbort, datasheet.AbortBody{ID: req})
			w.a.port.spoil = nil
		}},
		{"the client's NIC was reset", func(w *world, req uint16) {
			w.a.e.Reset()
			w.a.replies[req] = datasheet.AdminEntry{}
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, v, p := idlePair(t)
			var waits [2]datasheet.ConnectionReply
			for i := range waits {
				wait := waitFor(w.b, "x", forever)
				if i > 0 {
					v = w.a.newVI(v.handle, nil)
				}
				req := request(v, w.b.e.MAC(), "x", 200)
				waits[i] = offered(w.b, wait)
				if i > 0 {
					c.leave(w, req)
				}
				w.a.wait(req)
			}
			w.settle()
			w.a.port.spoil = nil
			last := waits[1].Connection
			if r := w.b.wait(accept(w.b, last, p, forever)); r.Result != datasheet.ResultWithdrawn {
				t.Errorf("accept: %v", r.Result)
			}
			if s := p.state(); s != datasheet.StateIdle {
				t.Errorf("the VI is %v", s)
			}
			// The handle stays void.
			if r := w.b.wait(accept(w.b, last, p, forever)); r.Result != datasheet.ResultWithdrawn {
				t.Errorf("accept again: %v", r.Result)
			}
			reject := start(w.b, datasheet.OpConnectReject, datasheet.ConnectRejectBody{Connection: last})
			if r := w.b.wait(reject); r.Result != datasheet.ResultWithdrawn {
				t.Errorf("reject: %v", r.Result)
			}
			if r := w.b.wait(accept(w.b, last+1, p, forever)); r.Result != datasheet.ResultInvalidParameter {
				t.Errorf("accept of what was never asked: %v", r.Result)
			}
		})
	}
}

// TestWithdrawnWhileAccepted has the client give up when the accept is under way.
func TestWithdrawnWhileAccepted(t *testing.T) {
	w, v, p := idlePair(t)
	wait := waitFor(w.b, "x", forever)
	req := request(v, w.b.e.MAC(), "x", 200)
	c := offered(w.b, wait)
	w.b.port.spoil = losing{datasheet.FrameConnectAccept: true}.spoil
	acc := accept(w.b, c.Connection, p, forever)
	if r := w.a.wait(req); r.Result != datasheet.ResultTimeout {
		t.Errorf("the client: %v", r.Result)
	}
	if r := w.b.wait(acc); r.Result != datasheet.ResultWithdrawn {
		t.Errorf("the server: %v", r.Result)
	}
}

// TestForgottenRequest: a handle that is older than what the NIC remembers.
func TestForgottenRequest(t *testing.T) {
	w, v, p := idlePair(t)
	var first uint32
	for i := range 1100 {
		wait := waitFor(w.b, "x", forever)
		req := request(v, w.b.e.MAC(), "x", 1000)
		if c := offered(w.b, wait); i == 0 {
			first = c.Connection
		}
		do(w.a, datasheet.OpAbort, datasheet.AbortBody{ID: req})
		w.a.wait(req)
		w.settle()
	}
	if r := w.b.wait(accept(w.b, first, p, forever)); r.Result != datasheet.ResultWithdrawn {
		t.Errorf("accept: %v", r.Result)
	}
}

// TestSecondServer: of two servers that answer a request to everybody, the one
// that comes second is told that it is not wanted.
func TestSecondServer(t *testing.T) {
	w, v, p := idlePair(t)
	wait := waitFor(w.b, "x", forever)
	req := request(v, datasheet.Broadcast, "x", forever)
	c := offered(w.b, wait)
	other := datasheet.MAC{2, 0, 0, 0, 0, 9}
	var answers []datasheet.Header
	w.a.port.spoil = func(f []byte) [][]byte {
		if h := *datasheet.HeaderAt(f); h.Destination == other {
			answers = append(answers, h)
			return nil
		}
		return [][]byte{f}
	}
	var stray []byte
	w.b.port.spoil = func(f []byte) [][]byte {
		if stray == nil && datasheet.HeaderAt(f).Type == datasheet.FrameConnectAccept {
			stray = append(alignedBytes(0), f...)
			h := datasheet.HeaderAt(stray)
			h.Source, h.SourceEndpoint = other, 77
		}
		return [][]byte{f}
	}
	accept(w.b, c.Connection, p, forever)
	if r := w.a.wait(req); r.Result != datasheet.ResultSuccess {
		t.Fatal(r.Result)
	}
	key := datasheet.HeaderAt(stray).Key
	*w.b.port.out = append(*w.b.port.out, stray)
	w.settle()
	if len(answers) != 1 || answers[0].Type != datasheet.FrameDisconnect || answers[0].Flags&datasheet.FrameEcho == 0 ||
		answers[0].Key != key || answers[0].DestinationEndpoint != 77 {
		t.Errorf("the other server hears %+v", answers)
	}
	if s := v.state(); s != datasheet.StateConnected {
		t.Errorf("the client is %v", s)
	}
}

// TestConfirmationIsLost: the server never hears that the client has taken its
// accept, so that its reject ends the client's connection.
func TestConfirmationIsLost(t *testing.T) {
	levels(t, func(t *testing.T, level datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
		w := newWorld(t)
		v, p := w.a.newVI(w.a.memory(0, 0), change), w.b.newVI(w.b.memory(0, 0), change)
		wait := waitFor(w.b, "x", forever)
		req := request(v, w.b.e.MAC(), "x", forever)
		c := offered(w.b, wait)
		w.a.port.spoil = losing{datasheet.FrameAck: true, datasheet.FrameProbe: true}.spoil
		acc := accept(w.b, c.Connection, p, forever)
		if r := w.a.wait(req); r.Result != datasheet.ResultSuccess {
			t.Fatal(r.Result)
		}
		if r := w.b.wait(acc); r.Result != datasheet.ResultConnectionLost {
			t.Fatal(r.Result)
		}
		w.settle()
		if s := v.state(); s != datasheet.StateError {
			t.Errorf("the client is %v", s)
		}
		if len(w.a.events) != 1 || w.a.events[0].Detail != uint32(datasheet.ResultConnectionLost) {
			t.Errorf("events %+v", w.a.events)
		}
	})
}
