package endpoint_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/internal/ghost"
	"github.com/trapeze-nic/trapeze/lab/internal/endpoint"
	"github.com/trapeze-nic/trapeze/via"
)

// open opens a NIC that is closed when the test ends.
func open(t testing.TB, address string) *via.NIC {
	t.Helper()
	n, err := via.Open(limited(t), address, via.WithErrorHandler(func(via.AsyncError) {}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { n.Close() })
	return n
}

// freePort returns a UDP address that nobody has at the moment.
func freePort(t testing.TB) string {
	t.Helper()
	c, err := net.ListenPacket("udp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	return c.LocalAddr().String()
}

// ask connects a new endpoint on a NIC of its own with the server at address.
func ask(t testing.TB, address string, o endpoint.Options) error {
	n := open(t, "emu:?wire=udp://127.0.0.1:0&peer="+address)
	e, err := endpoint.New(limited(t), n, o)
	if err != nil {
		return err
	}
	_, err = e.Connect(limited(t), via.Address{MAC: via.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, Discriminator: service}, nil)
	return errors.Join(err, e.Close())
}

// TestClientsThatDieWhileConnecting has Accept return a client that lives at
// once, whoever else has asked before and then answered nothing.
func TestClientsThatDieWhileConnecting(t *testing.T) {
	for _, level := range []via.Reliability{via.ReliableDelivery, via.Unreliable} {
		t.Run(level.String(), func(t *testing.T) {
			o := options(64, 2)
			o.Reliability = level
			address := freePort(t)
			var mu sync.Mutex
			var refused []error
			c := listen(limited(t), &endpoint.Listener{NIC: open(t, "emu:?wire=udp://"+address), Discriminator: service, Options: same(o),
				Refused: func(_ via.Remote, err error) { mu.Lock(); refused = append(refused, err); mu.Unlock() }})
			ghost.Ask(t, address, service, 20, level, 64)
			if err := ask(t, address, o); err != nil {
				t.Error(err)
			}
			got := <-c
			if got.err != nil {
				t.Fatal(got.err)
			}
			if err := got.e.Close(); err != nil {
				t.Error(err)
			}
			mu.Lock()
			defer mu.Unlock()
			for _, err := range refused { // if it has taken the dead time to come here
				if !errors.Is(err, via.ErrPeerLost) {
					t.Error(err)
				}
			}
		})
	}
}

// TestDeadClientsAreGivenUp fills the listener with clients that have died: they
// go by themselves, and what they had is free again.
func TestDeadClientsAreGivenUp(t *testing.T) {
	const ghosts = 64
	address := freePort(t)
	nic := open(t, "emu:?wire=udp://"+address+"&vis=70")
	refused := make(chan error, ghosts)
	o := options(1<<20, 8)
	c := listen(limited(t), &endpoint.Listener{NIC: nic, Discriminator: service, Options: same(o),
		Refused: func(_ via.Remote, err error) { refused <- err }})
	ghost.Ask(t, address, service, ghosts, via.ReliableDelivery, o.MaxMessage)
	for range ghosts {
		if err := <-refused; !errors.Is(err, via.ErrPeerLost) {
			t.Error(err)
		}
	}
	if err := ask(t, address, o); err != nil {
		t.Error(err)
	}
	got := <-c
	if got.err != nil {
		t.Fatal(got.err)
	}
	if err := got.e.Close(); err != nil {
		t.Error(err)
	}
}

// TestListenerEnds closes a listener while clients are on their way.
func TestListenerEnds(t *testing.T) {
	address := freePort(t)
	ctx, cancel := context.WithCancel(limited(t))
	nic := open(t, "emu:?wire=udp://"+address)
	c := listen(ctx, &endpoint.Listener{NIC: nic, Discriminator: service, Options: same(options(64, 2))})
	ghost.Ask(t, address, service, 10, via.ReliableDelivery, 64)
	cancel()
	if got := <-c; !errors.Is(got.err, context.Canceled) {
		t.Errorf("got %v", got.err)
	}
	// Nobody waits any more, and nothing is left on the NIC.
	limited, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if _, err := nic.ConnectWait(limited, service); !errors.Is(err, via.ErrTimeout) {
		t.Errorf("got %v", err)
	}
	if err := new(endpoint.Listener).Close(); err != nil {
		t.Errorf("closing a listener that was never used: %v", err)
	}
}

// TestManyClients has more of them come at the same time, over a bad wire, than
// the listener lets on their way together.
func TestManyClients(t *testing.T) {
	const clients = 80
	a, b := nicsWith(t, "&loss=0.3&seed=3")
	o := options(64, 2)
	l := &endpoint.Listener{NIC: b, Discriminator: service, Options: same(o)}
	failed := make(chan error, clients)
	for i := range clients {
		e, err := endpoint.New(limited(t), a, o)
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			_, err := e.Connect(limited(t), via.Address{MAC: b.Query().Address, Discriminator: service}, nil)
			if err != nil {
				err = fmt.Errorf("client %d: %w", i, err)
			}
			failed <- err
		}()
	}
	for i := range clients {
		if _, _, err := l.Accept(limited(t)); err != nil {
			t.Fatalf("after %d clients: %v", i, err)
		}
	}
	for range clients {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
}
