package memif_test

import (
	"bytes"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/wire"
	"github.com/trapeze-nic/trapeze/wire/internal/memif"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/protocol"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/ring"
)

// listenRaw makes the socket of a server, and returns a function that closes
// it.
func listenRaw(t testing.TB, socket string) (l *protocol.Listener, stop func()) {
	t.Helper()
	l = must.Get(protocol.Listen(socket))(t)
	closed := false
	stop = func() {
		if !closed {
			closed = true
			should.OK(t, l.Close())
		}
	}
	t.Cleanup(stop)
	return l, stop
}

func TestBadServers(t *testing.T) {
	initiated := func(t *testing.T, r *rawPeer) {
		r.send(goodHello, -1)
		want[protocol.Init](r)
	}
	offered := func(t *testing.T, r *rawPeer) {
		initiated(t, r)
		for range 4 { // INIT, ADD_REGION, ADD_RING, ADD_RING
			r.send(protocol.Ack{}, -1)
			must.Get(r.next())(t)
		}
	}
	then := func(before func(t *testing.T, r *rawPeer), body protocol.Body) func(t *testing.T, r *rawPeer) {
		return func(t *testing.T, r *rawPeer) {
			before(t, r)
			r.send(body, -1)
		}
	}
	nothing := func(*testing.T, *rawPeer) {}
	misbehave(t, memif.Client, func(t *testing.T, o memif.Options) (*memif.Port, *rawPeer, func()) {
		l, stop := listenRaw(t, o.Socket)
		client := newPort(t, o)
		return client, acceptRaw(t, l), func() {
			stop()
			serverWorks(t, client, o.Socket)
		}
	}, []misbehaviour{
		{"closes at once", func(t *testing.T, r *rawPeer) { r.close() }, disconnects, wire.ErrGone, ""},
		{"says nothing", nothing, timeouts, memif.ErrTimeout, ""},
		{"short packet", func(t *testing.T, r *rawPeer) {
			_ = unix.Sendmsg(r.conn.FD(), []byte{2, 0}, nil, nil, 0)
		}, malformed, memif.ErrMessage, "size"},
		{"HELLO with a descriptor", func(t *testing.T, r *rawPeer) { r.send(goodHello, eventfd(t)) }, malformed, memif.ErrMessage, "too many"},
		{"ACK first", then(nothing, protocol.Ack{}), malformed, memif.ErrMessage, "ACK"},
		{"no such message", func(t *testing.T, r *rawPeer) {
			_ = unix.Sendmsg(r.conn.FD(), bytes.Repeat([]byte{9}, 128), nil, nil, 0)
		}, malformed, memif.ErrMessage, "type"},
		{"older versions", then(nothing, protocol.Hello{MinVersion: 0x100, MaxVersion: 0x1ff}), notWelcome, memif.ErrNotWelcome, "0x100 to 0x1ff"},
		{"newer versions", then(nothing, protocol.Hello{MinVersion: 0x300, MaxVersion: 0x301}), notWelcome, memif.ErrNotWelcome, "0x300"},
		{"no version", then(nothing, protocol.Hello{MinVersion: 0x300, MaxVersion: 0x100}), notWelcome, memif.ErrNotWelcome, ""},
		{"no ACK of INIT", initiated, timeouts, memif.ErrTimeout, ""},
		{"HELLO twice", then(initiated, goodHello), malformed, memif.ErrMessage, "HELLO"},
		{"CONNECTED too early", then(initiated, protocol.Connected{}), malformed, memif.ErrMessage, "CONNECTED"},
		{"refuses", then(initiated, protocol.Disconnect{Reason: "go away"}), disconnects, memif.ErrRefused, "go away"},
		{"dies in the middle", func(t *testing.T, r *rawPeer) {
			offered(t, r)
			r.close()
		}, disconnects, wire.ErrGone, ""},
		{"no CONNECTED", offered, timeouts, memif.ErrTimeout, ""},
		{"ACK for CONNECTED", then(offered, protocol.Ack{}), malformed, memif.ErrMessage, "ACK"},
		{"talks once connected", func(t *testing.T, r *rawPeer) {
			r.serve(goodHello)
			r.send(protocol.Ack{}, -1)
		}, malformed, memif.ErrMessage, "ACK"},
		{"sends descriptors once connected", func(t *testing.T, r *rawPeer) {
			r.serve(goodHello)
			r.send(protocol.AddRegion{}, r.file)
		}, malformed, memif.ErrMessage, "ADD_REGION"},
	})
}

// serverWorks gives a client an honest server.
func serverWorks(t *testing.T, client *memif.Port, socket string) {
	t.Helper()
	server := newPort(t, memif.Options{Socket: socket, Role: memif.Server})
	waittest.Until(t, "the client has found an honest server", func() bool { return client.LinkUp() && server.LinkUp() })
	exchange(t, client, server)
	should.OK(t, server.Close())
	waittest.Until(t, "the link goes down", func() bool { return !client.LinkUp() })
	use(client)
}

// TestRawServerExchangesFrames: servers with limits of their own.
func TestRawServerExchangesFrames(t *testing.T) {
	for name, hello := range map[string]protocol.Hello{
		"any":         goodHello,
		"small rings": {MaxVersion: 0xffff, MaxLog2: 2},
		"two buffers": {MaxVersion: protocol.Version, MaxLog2: 1},
		"one buffer":  {MinVersion: protocol.Version, MaxVersion: protocol.Version},
		"many rings":  {MaxVersion: protocol.Version, MaxC2S: 0xffff, MaxS2C: 0xffff, MaxLog2: 255},
	} {
		t.Run(name, func(t *testing.T) {
			leaktest.Check(t)
			o := memif.Options{Socket: socketPath(t), Role: memif.Client}
			l, _ := listenRaw(t, o.Socket)
			client := newPort(t, o)
			r := acceptRaw(t, l)
			r.serve(hello)
			waittest.Until(t, "link up", client.LinkUp)
			for i := range 100 {
				f := pattern(i, 1+i*19%2048)
				must.Be(t, send(client, f), true, "no room")
				must.Same(t, r.receives.Receive(), f, "frame %d: the server received bytes", i)
				r.receives.Release()
				copy(r.sends.Reserve(len(f)), f)
				r.sends.Commit()
				r.sends.Flush()
				must.Same(t, receive(client), f, "frame %d: received bytes", i)
				client.Receive()
			}
		})
	}
}

// TestServerViolations: what a server may write into rings.
func TestServerViolations(t *testing.T) {
	const tail, descriptor = 64, ring.HeaderSize
	for name, poke := range map[string]func(r *rawPeer){
		"tail of the ring to the server jumps": func(r *rawPeer) { r.poke(true, tail, 100) },
		"tail of the ring to the client jumps": func(r *rawPeer) { r.poke(false, tail, 100) },
		"frame longer than its buffer": func(r *rawPeer) {
			r.poke(false, descriptor+4, 4096)
			r.poke(false, tail, 1)
		},
		"everything is ones": (*rawPeer).scribble,
	} {
		t.Run(name, func(t *testing.T) {
			leaktest.Check(t)
			o := memif.Options{Socket: socketPath(t), Role: memif.Client, Ring: 8}
			l, stop := listenRaw(t, o.Socket)
			client := newPort(t, o)
			r := acceptRaw(t, l)
			r.serve(goodHello)
			waittest.Until(t, "link up", client.LinkUp)
			poke(r)
			waittest.Until(t, "the link goes down", func() bool {
				use(client)
				return !client.LinkUp()
			})
			r.wantEnd()
			waittest.Until(t, "it is counted", func() bool { return violations(client.Stats()) == 1 })
			r.close()
			stop()
			serverWorks(t, client, o.Socket)
		})
	}
}
