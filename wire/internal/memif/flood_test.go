package memif_test

import (
	"encoding/binary"
	"errors"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/leaktest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/wire/internal/memif"
	"github.com/trapeze-nic/trapeze/wire/internal/memif/internal/protocol"
)

// TestFloodOfClients: clients that come by the hundred, say nothing or nonsense
// and go, or stay.
func TestFloodOfClients(t *testing.T) {
	leaktest.Check(t)
	o := memif.Options{Socket: socketPath(t), Role: memif.Server}
	server := newPort(t, o)
	var stay []*rawPeer
	for i := range 300 {
		r := dialRaw(t, o.Socket)
		switch i % 3 {
		case 0:
			_ = unix.Sendmsg(r.conn.FD(), []byte("GET / HTTP/1.1"), nil, nil, 0)
			stay = append(stay, r)
		case 1:
			stay = append(stay, r)
		case 2:
			r.close()
		}
	}
	stillWorks(t, server, o)
	for _, r := range stay {
		r.close()
	}
	if s := server.Stats(); malformed(s) == 0 || timeouts(s) == 0 {
		t.Errorf("stats %+v", s)
	}
}

// TestFloodOfMessages: a connected client that sends message after message is
// cut off at the first.
func TestFloodOfMessages(t *testing.T) {
	leaktest.Check(t)
	o := memif.Options{Socket: socketPath(t), Role: memif.Server}
	server := newPort(t, o)
	for range 3 {
		r := dialRaw(t, o.Socket)
		r.connect(unix.MFD_ALLOW_SEALING)
		for range 1000 {
			r.send(protocol.Ack{}, -1)
		}
		r.wantEnd()
		r.close()
	}
	waittest.Until(t, "it is counted", func() bool { return malformed(server.Stats()) == 3 })
	stillWorks(t, server, o)
}

// TestManyRegionsAndRings: more than a server takes.
func TestManyRegionsAndRings(t *testing.T) {
	leaktest.Check(t)
	o := memif.Options{Socket: socketPath(t), Role: memif.Server, Queues: 2, MaxMemory: 5 << 20}
	server := newPort(t, o)
	fd := memfd(t, 1<<21, 0)
	defer unix.Close(fd)
	for _, tt := range []struct {
		name string
		send func(r *rawPeer, i int)
	}{
		{"regions", func(r *rawPeer, i int) { r.send(protocol.AddRegion{Index: uint16(i), Size: 4096}, fd) }},
		{"bytes", func(r *rawPeer, i int) { r.send(protocol.AddRegion{Index: uint16(i), Size: 1 << 21}, fd) }},
		{"rings", func(r *rawPeer, i int) {
			r.send(protocol.AddRing{Flags: 1, Index: uint16(i), Log2: 2}, eventfd(t))
		}},
	} {
		r := dialRaw(t, o.Socket)
		r.greeted()
		accepted := 0
		for ; accepted < 1000; accepted++ {
			tt.send(r, accepted)
			if body, err := r.next(); body != (protocol.Ack{}) {
				if d, ok := body.(protocol.Disconnect); !ok || d.Reason == "" {
					t.Errorf("%s: %v, error %v", tt.name, body, err)
				}
				break
			}
		}
		should.Hold(t, accepted >= 2 && accepted <= 64, "%d %s were accepted", accepted, tt.name)
		r.close()
	}
	waittest.Until(t, "it is counted", func() bool { return malformed(server.Stats()) == 3 })
	stillWorks(t, server, memif.Options{Socket: o.Socket})
}

// TestSlowClient: a client that does every step in time, but takes for ever.
func TestSlowClient(t *testing.T) {
	leaktest.Check(t)
	o := memif.Options{Socket: socketPath(t), Role: memif.Server, Timeout: 100 * time.Millisecond}
	server := newPort(t, o)
	fd := memfd(t, 4096, 0)
	defer unix.Close(fd)
	r := dialRaw(t, o.Socket)
	r.greeted()
	for i := 0; ; i++ {
		time.Sleep(20 * time.Millisecond)
		r.send(protocol.AddRegion{Index: uint16(i), Size: 4096}, fd)
		if body, _ := r.next(); body != (protocol.Ack{}) {
			break
		}
	}
	waittest.Until(t, "it is counted", func() bool { return timeouts(server.Stats()) == 1 })
	r.close()
	stillWorks(t, server, memif.Options{Socket: o.Socket})
}

// TestBusy: a second client is sent away, and the first does not notice.
func TestBusy(t *testing.T) {
	leaktest.Check(t)
	o := memif.Options{Socket: socketPath(t), Role: memif.Server, Secret: "x"}
	server, client := connected(t, o, memif.Options{Secret: "x"})
	for _, tt := range []struct{ secret, why string }{{"x", "already connected"}, {"y", "already connected"}} {
		r := dialRaw(t, o.Socket)
		want[protocol.Hello](r)
		r.send(protocol.Init{Version: protocol.Version, Secret: tt.secret}, -1)
		should.Be(t, r.wantEnd(), tt.why, "secret %q", tt.secret)
		r.close()
	}
	send(client, pattern(1, 100))
	should.Be(t, len(receive(server)), 100, "the first client is cut off")
	waittest.Until(t, "they are counted", func() bool { return server.Stats().NotWelcome == 2 })
	if s := server.Stats(); s.Disconnects != 0 || !errors.Is(s.Err, memif.ErrNotWelcome) {
		t.Errorf("stats %+v", s)
	}
}

func TestSecrets(t *testing.T) {
	leaktest.Check(t)
	o := memif.Options{Socket: socketPath(t), Role: memif.Server, Secret: "open sesame"}
	server := newPort(t, o)
	for _, secret := range []string{"", "open sesam", "open sesame!", "x"} {
		client := newPort(t, memif.Options{Socket: o.Socket, Role: memif.Client, Secret: secret})
		waittest.Until(t, "it is sent away", func() bool { return errors.Is(client.Stats().Err, memif.ErrRefused) })
		should.Hold(t, !client.LinkUp() && !server.LinkUp(), "secret %q opens", secret)
		should.OK(t, client.Close())
	}
	stillWorks(t, server, memif.Options{Socket: o.Socket, Secret: o.Secret})
}

// TestFullEventfd: a client makes an eventfd block whoever signals it. Whoever
// sends goes on all the same, and the client is cut off.
func TestFullEventfd(t *testing.T) {
	leaktest.Check(t)
	o := memif.Options{Socket: socketPath(t), Role: memif.Server}
	server := newPort(t, o)
	r := dialRaw(t, o.Socket)
	full := eventfd(t)
	r.connect(unix.MFD_ALLOW_SEALING, eventfd(t), full)
	waittest.Until(t, "link up", server.LinkUp)
	must.OK(t, unix.SetNonblock(full, false))
	must.Get(unix.Write(full, binary.NativeEndian.AppendUint64(nil, 1<<64-2)))(t)
	r.poke(false, 4, 0)  // interrupts are wanted
	r.poke(false, 6, 16) // and buffers are there
	done := make(chan struct{})
	go func() {
		defer close(done)
		for range 3 {
			send(server, pattern(1, 10))
		}
	}()
	select {
	case <-done:
	case <-time.After(timeout):
		t.Error("the sender waits for ever")
	}
	waittest.Until(t, "the client is cut off", func() bool { return violations(server.Stats()) == 1 })
	should.OK(t, server.Close())
	send(server, pattern(2, 10))
}

// TestInterruptStorm: a client that signals all the time for nothing.
func TestInterruptStorm(t *testing.T) {
	leaktest.Check(t)
	o := memif.Options{Socket: socketPath(t), Role: memif.Server}
	server := newPort(t, o)
	s := newSleeper(server, 1)
	r := dialRaw(t, o.Socket)
	event := eventfd(t)
	r.connect(unix.MFD_ALLOW_SEALING, event, event)
	waittest.Until(t, "many interrupts for nothing", func() bool {
		for range 100 {
			_, _ = unix.Write(event, binary.NativeEndian.AppendUint64(nil, 1))
		}
		return server.Stats().Spurious > 200
	})
	// Frames come through all the same.
	r.sends.Reserve(77)
	r.sends.Commit()
	if r.sends.Flush() {
		_, _ = unix.Write(event, binary.NativeEndian.AppendUint64(nil, 1))
	}
	should.Be(t, s.receive(), 77, "received bytes")
}
