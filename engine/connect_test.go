package engine_test

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

func request(v *vi, to datasheet.MAC, name string, ms uint32) uint16 {
	return start(v.n, datasheet.OpConnectRequest, datasheet.ConnectRequestBody{Endpoint: v.id, TimeoutMS: ms, RemoteMAC: to, Remote: disc(name), Local: disc("me")})
}

func waitFor(n *node, name string, ms uint32) uint16 {
	return start(n, datasheet.OpConnectWait, datasheet.ConnectWaitBody{TimeoutMS: ms, Local: disc(name)})
}

func idlePair(t *testing.T, options ...option) (w *world, v, p *vi) {
	w = newWorld(t, options...)
	return w, w.a.newVI(w.a.memory(0, 0), nil), w.b.newVI(w.b.memory(0, 0), nil)
}

func TestConnectReportsBothSides(t *testing.T) {
	w, v, p := idlePair(t)
	wait := waitFor(w.b, "service", 1000)
	req := request(v, datasheet.Broadcast, "service", 1000)
	asked := w.b.wait(wait)
	c := datasheet.Reply[datasheet.ConnectionReply](&asked)
	if c.RemoteMAC != w.a.e.MAC() || c.Reliability != datasheet.ReliableDelivery || c.MaxTransfer != datasheet.MaxTransfer || c.Remote != disc("me") {
		t.Fatalf("the server is told %+v", *c)
	}
	acc := w.b.wait(start(w.b, datasheet.OpConnectAccept, datasheet.ConnectAcceptBody{Connection: c.Connection, Endpoint: p.id, TimeoutMS: 1000}))
	rep := w.a.wait(req)
	client, server := datasheet.Reply[datasheet.ConnectedReply](&rep), datasheet.Reply[datasheet.ConnectedReply](&acc)
	if rep.Result != 0 || acc.Result != 0 || client.RemoteMAC != w.b.e.MAC() || client.RemoteEndpoint != p.id ||
		server.RemoteMAC != w.a.e.MAC() || server.RemoteEndpoint != v.id {
		t.Fatalf("client %v %+v, server %v %+v", rep.Result, *client, acc.Result, *server)
	}
}

func TestConnectFails(t *testing.T) {
	for _, c := range []struct {
		name string
		run  func(w *world, v, p *vi) uint16
		want datasheet.Result
	}{
		{"nobody waits", func(w *world, v, p *vi) uint16 { return request(v, w.b.e.MAC(), "x", 1000) }, datasheet.ResultNoMatch},
		{"nobody waits, asked of everybody", func(w *world, v, p *vi) uint16 { return request(v, datasheet.Broadcast, "x", 100) }, datasheet.ResultNoMatch},
		{"nobody is there", func(w *world, v, p *vi) uint16 { return request(v, datasheet.MAC{2, 9, 9, 9, 9, 9}, "x", 100) }, datasheet.ResultTimeout},
		{"nobody accepts", func(w *world, v, p *vi) uint16 {
			waitFor(w.b, "x", 1000)
			return request(v, w.b.e.MAC(), "x", 100)
		}, datasheet.ResultTimeout},
		{"rejected", func(w *world, v, p *vi) uint16 {
			id := waitFor(w.b, "x", 1000)
			req := request(v, w.b.e.MAC(), "x", 1000)
			r := w.b.wait(id)
			do(w.b, datasheet.OpConnectReject, datasheet.ConnectRejectBody{Connection: datasheet.Reply[datasheet.ConnectionReply](&r).Connection})
			return req
		}, datasheet.ResultReject},
		{"aborted", func(w *world, v, p *vi) uint16 {
			req := request(v, w.b.e.MAC(), "x", 1000)
			do(v.n, datasheet.OpAbort, datasheet.AbortBody{ID: req})
			return req
		}, datasheet.ResultAborted},
	} {
		t.Run(c.name, func(t *testing.T) {
			w, v, p := idlePair(t)
			if r := w.a.wait(c.run(w, v, p)); r.Result != c.want {
				t.Fatalf("%v, want %v", r.Result, c.want)
			}
			if s := v.state(); s != datasheet.StateIdle {
				t.Fatalf("afterwards the VI is %v", s)
			}
			w.b.replies = map[uint16]datasheet.AdminEntry{}
			connect(v, p)
			if sent, received, _ := message(v, p, []byte("hello")); sent.Failed() || received.Failed() {
				t.Fatalf("%v, %v", sent, received)
			}
		})
	}
}

func TestWaitTimesOutAndAborts(t *testing.T) {
	w := newWorld(t)
	if r := w.a.wait(waitFor(w.a, "x", 50)); r.Result != datasheet.ResultTimeout || w.now < 50*time.Millisecond {
		t.Fatalf("%v after %v", r.Result, w.now)
	}
	id := waitFor(w.a, "x", 50)
	do(w.a, datasheet.OpAbort, datasheet.AbortBody{ID: id})
	if r := w.a.wait(id); r.Result != datasheet.ResultAborted {
		t.Fatalf("%v", r.Result)
	}
}

// TestAcceptAgain: an accept that is refused leaves the request waiting.
func TestAcceptAgain(t *testing.T) {
	w, v, p := idlePair(t)
	wrongLevel := w.b.newVI(p.handle, unreliable)
	wrongSize := w.b.newVI(p.handle, func(b *datasheet.CreateEndpointBody) { b.MaxTransfer = 1 << 16 })
	wait := waitFor(w.b, "x", 1000)
	req := request(v, w.b.e.MAC(), "x", 1000)
	r := w.b.wait(wait)
	c := datasheet.Reply[datasheet.ConnectionReply](&r).Connection
	accept := func(ep, ms, conn uint32) datasheet.Result {
		return w.b.wait(start(w.b, datasheet.OpConnectAccept, datasheet.ConnectAcceptBody{Connection: conn, Endpoint: ep, TimeoutMS: ms})).Result
	}
	for _, try := range []struct {
		ep, ms, conn uint32
		want         datasheet.Result
	}{
		{wrongLevel.id, 100, c, datasheet.ResultInvalidReliability},
		{wrongSize.id, 100, c, datasheet.ResultInvalidMTU},
		{9999, 100, c, datasheet.ResultInvalidParameter},
		{p.id, 0, c, datasheet.ResultInvalidParameter},
		{p.id, 100, c + 1, datasheet.ResultInvalidParameter},
		{p.id, 100, c, datasheet.ResultSuccess},
		{p.id, 100, c, datasheet.ResultInvalidParameter},
	} {
		if got := accept(try.ep, try.ms, try.conn); got != try.want {
			t.Fatalf("accept %+v: %v", try, got)
		}
	}
	if r := w.a.wait(req); r.Result != datasheet.ResultSuccess {
		t.Fatal(r.Result)
	}
}

func TestConnectOverBadWires(t *testing.T) {
	for seed := range uint64(30) {
		w, v, p := idlePair(t, lossy(seed, 0.3, 0.2, 0.2, 0.1))
		connect(v, p)
		data := pattern(3000, seed)
		sent, received, got := message(p, v, data)
		if sent.Failed() || received.Failed() {
			t.Fatalf("seed %d: %v, %v", seed, sent, received)
		}
		mustEqual(t, got, data)
		if n := len(w.b.events) + len(w.a.events); n != 0 {
			t.Fatalf("seed %d: events %+v %+v", seed, w.a.events, w.b.events)
		}
	}
}

func TestDisconnect(t *testing.T) {
	levels(t, func(t *testing.T, level datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
		w, v, p := pair(t, change)
		var mine, theirs []*descriptors.Descriptor
		for range 3 {
			d, _ := v.descriptor(10)
			v.postRecv(d)
			mine = append(mine, d)
			d, _ = p.descriptor(10)
			p.postRecv(d)
			theirs = append(theirs, d)
		}
		do(w.a, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: v.id})
		w.settle()
		for i := range 3 {
			for _, d := range []*descriptors.Descriptor{mine[i], theirs[i]} {
				if d.Status() != datasheet.StatusDone|datasheet.StatusFlushed|datasheet.StatusOpReceive {
					t.Fatalf("receive %d: %v", i, d.Status())
				}
			}
		}
		if v.state() != datasheet.StateIdle || p.state() != datasheet.StateError {
			t.Fatalf("states %v, %v", v.state(), p.state())
		}
		if len(w.a.events) != 0 || len(w.b.events) != 1 || w.b.events[0].Code != datasheet.EventConnectionLost || w.b.events[0].Endpoint != p.id {
			t.Fatalf("events %+v, %+v", w.a.events, w.b.events)
		}
		// In the error state what is posted ends at once.
		s, _ := p.descriptor(10)
		r, _ := p.descriptor(10)
		p.postSend(s)
		p.postRecv(r)
		w.settle()
		if s.Status()&datasheet.StatusFlushed == 0 || r.Status()&datasheet.StatusFlushed == 0 {
			t.Fatalf("posted in error: %v, %v", s.Status(), r.Status())
		}
		do(w.b, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: p.id})
		connect(p, v)
		if sent, received, _ := message(v, p, pattern(9000, 2)); sent.Failed() || received.Failed() {
			t.Fatalf("after connecting again: %v, %v", sent, received)
		}
	})
}

// TestDisconnectUnheard loses the news of a disconnect: the peer learns it when
// it asks.
func TestDisconnectUnheard(t *testing.T) {
	w, v, p := pair(t, nil)
	w.a.port.spoil = func([]byte) [][]byte { return nil }
	do(w.a, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: v.id})
	w.a.port.spoil = nil
	from := w.now
	w.run("the news", func() bool { return len(w.b.events) > 0 })
	if p.state() != datasheet.StateError || w.now-from > 2*time.Second {
		t.Fatalf("state %v after %v", p.state(), w.now-from)
	}
}

func TestSendsWithoutConnection(t *testing.T) {
	w, v, _ := idlePair(t)
	s, _ := v.descriptor(10)
	r, _ := v.descriptor(10)
	v.postSend(s)
	v.postRecv(r)
	w.settle()
	if s.Status() != datasheet.StatusDone|datasheet.StatusFlushed || r.Status() != 0 {
		t.Fatalf("send %v, receive %v", s.Status(), r.Status())
	}
}

// TestPeerDies has the second NIC stop answering after the set-up.
func TestPeerDies(t *testing.T) {
	for _, c := range []struct {
		name  string
		sends int
	}{{"while sending", 3}, {"while idle", 0}} {
		t.Run(c.name, func(t *testing.T) {
			w, v, p := pair(t, nil)
			r, _ := p.descriptor(100)
			p.postRecv(r)
			w.settle()
			w.b.port.spoil = func([]byte) [][]byte { return nil }
			var sends []*descriptors.Descriptor
			for range c.sends {
				s, _ := v.descriptor(100)
				sends = append(sends, s)
				v.postSend(s)
			}
			from := w.now
			w.run("the loss of the connection", func() bool { return v.state() == datasheet.StateError })
			if d := w.now - from; d > 5*time.Second || d < 2*time.Second {
				t.Errorf("noticed after %v", d)
			}
			for i, s := range sends {
				want := datasheet.StatusDone | datasheet.StatusFlushed
				if i == 0 {
					want = datasheet.StatusDone | datasheet.StatusTransportError
				}
				if s.Status() != want {
					t.Errorf("send %d: %v, want %v", i, s.Status(), want)
				}
			}
			if len(w.a.events) != 1 || w.a.events[0].Detail != uint32(datasheet.ResultConnectionLost) {
				t.Errorf("events %+v", w.a.events)
			}
		})
	}
}

// TestSlowReceiverIsNotDead lets a receiver take its time, far longer than a
// dead peer is given, over a wire that loses frames.
func TestSlowReceiverIsNotDead(t *testing.T) {
	w, v, p := pair(t, nil, lossy(4, 0.2, 0, 0, 0))
	s, out := v.descriptor(100)
	copy(out[0], pattern(100, 1))
	v.postSend(s)
	for end := w.now + time.Minute; w.now < end; {
		w.a.e.Step()
		w.b.e.Step()
		w.now += time.Millisecond
	}
	if s.Status() != 0 || v.state() != datasheet.StateConnected {
		t.Fatalf("after a minute: %v, %v", s.Status(), v.state())
	}
	if n := w.a.e.Counter(datasheet.CounterFramesSent); n > 1000 {
		t.Errorf("%d frames in a minute of waiting", n)
	}
	r, in := p.descriptor(100)
	p.postRecv(r)
	w.run("the message", func() bool { return s.Status().Done() && r.Status().Done() })
	mustEqual(t, in[0], pattern(100, 1))
}

// TestReset: a NIC that is reset forgets everything, and its peer learns it.
func TestReset(t *testing.T) {
	w, v, p := pair(t, nil)
	w.b.e.Reset()
	s, _ := v.descriptor(10)
	v.postSend(s)
	w.run("the news", func() bool { return v.state() == datasheet.StateError })
	r := w.b.wait(start(w.b, datasheet.OpQueryEndpoint, datasheet.EndpointBody{Endpoint: p.id}))
	if r.Result != datasheet.ResultInvalidParameter {
		t.Fatalf("an endpoint survived the reset: %v", r.Result)
	}
	if n := w.b.e.Counter(datasheet.CounterMessagesReceived); n != 0 {
		t.Fatalf("a counter survived the reset: %d", n)
	}
	do(w.a, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: v.id})
	p = w.b.newVI(w.b.memory(0, 0), nil)
	connect(p, v)
	if sent, received, _ := message(p, v, pattern(100, 1)); sent.Failed() || received.Failed() {
		t.Fatalf("%v, %v", sent, received)
	}
}

func TestConfig(t *testing.T) {
	good := func() engine.Config {
		n := &node{mem: alignedBytes(4096)}
		var q [][]byte
		return engine.Config{Port: &port{mtu: 2048, in: &q, out: &q}, Memory: n, Host: n, MAC: datasheet.MAC{2, 0, 0, 0, 0, 1}}
	}
	if _, err := engine.New(good()); err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(*engine.Config){
		"no port":        func(c *engine.Config) { c.Port = nil },
		"no memory":      func(c *engine.Config) { c.Memory = nil },
		"no host":        func(c *engine.Config) { c.Host = nil },
		"no MAC":         func(c *engine.Config) { c.MAC = datasheet.MAC{} },
		"multicast MAC":  func(c *engine.Config) { c.MAC = datasheet.Broadcast },
		"tiny MTU":       func(c *engine.Config) { c.Port.(*port).mtu = datasheet.MinMTU - 1 },
		"huge MTU":       func(c *engine.Config) { c.Port.(*port).mtu = datasheet.MaxMTU + 1 },
		"no endpoints":   func(c *engine.Config) { c.Limits = engine.DefaultLimits(); c.Limits.Endpoints = 1 },
		"huge transfers": func(c *engine.Config) { c.Limits = engine.DefaultLimits(); c.Limits.Transfer = 1 << 30 },
		"timing":         func(c *engine.Config) { c.Timing = engine.DefaultTiming(); c.Timing.Retransmit = -1 },
	} {
		c := good()
		spoil(&c)
		if _, err := engine.New(c); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
