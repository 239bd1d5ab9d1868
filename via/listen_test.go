package via_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/ghost"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/via"
)

const service = "test"

// same is a listener's choice for every client.
func same(o via.ConnOptions) func(via.Remote) (via.ConnOptions, error) {
	return func(via.Remote) (via.ConnOptions, error) { return o, nil }
}

func small(level via.Reliability) via.ConnOptions {
	return via.ConnOptions{Reliability: level, MaxMessage: 64, SendDepth: 2, RecvDepth: 2}
}

func listen(t testing.TB, n *via.NIC, lo via.ListenOptions) *via.Listener {
	t.Helper()
	return must.Get(via.Listen(n, service, lo))(t)
}

// onPort opens a NIC on a UDP port and returns its address there.
func onPort(t testing.TB, options string) (*via.NIC, string) {
	t.Helper()
	port := freePort(t)
	address := port.LocalAddr().String()
	_ = port.Close()
	return openQuiet(t, "emu:?wire=udp://"+address+options), address
}

func openQuiet(t testing.TB, address string) *via.NIC {
	t.Helper()
	n := must.Get(via.Open(conform.Context(t), address, via.Options{OnError: func(via.AsyncError) {}}))(t)
	t.Cleanup(func() { closeNIC(t, n) })
	return n
}

// dialPort connects from a NIC of its own with the listener at a UDP address, and
// closes.
func dialPort(t testing.TB, address string, o via.ConnOptions) error {
	n := openQuiet(t, "emu:?wire=udp://127.0.0.1:0&peer="+address)
	c, err := via.Dial(conform.Context(t), n, via.Address{MAC: via.MAC{0xff, 0xff, 0xff, 0xff, 0xff, 0xff}, Discriminator: service}.String(), o)
	if err != nil {
		return err
	}
	return c.Close()
}

// TestListenClientsThatDieWhileConnecting has Accept return a client that lives at
// once, whoever else has asked before and then answered nothing.
func TestListenClientsThatDieWhileConnecting(t *testing.T) {
	t.Parallel()
	for _, level := range []via.Reliability{via.ReliableDelivery, via.Unreliable} {
		t.Run(level.String(), func(t *testing.T) {
			t.Parallel()
			nic, address := onPort(t, "")
			var mu sync.Mutex
			var refused []error
			l := listen(t, nic, via.ListenOptions{Conn: same(small(level)),
				Refused: func(_ via.Remote, err error) { mu.Lock(); refused = append(refused, err); mu.Unlock() }})
			ghost.Ask(t, address, []byte(service), 20, level, 64)
			should.OK(t, dialPort(t, address, small(level)))
			c := must.Get(l.Accept(conform.Context(t)))(t)
			should.OK(t, errors.Join(c.Close(), l.Close()))
			mu.Lock()
			defer mu.Unlock()
			for _, err := range refused { // if it has taken the dead time to come here
				should.Fail(t, err, via.ErrPeerLost)
			}
		})
	}
}

// TestListenDeadClientsAreGivenUp fills the backlog with clients that have died: they
// go by themselves, what they had is free again, and they have had no buffers.
func TestListenDeadClientsAreGivenUp(t *testing.T) {
	t.Parallel()
	const ghosts = 8
	nic, address := onPort(t, "&vis=12")
	refused := make(chan error, ghosts)
	o := via.ConnOptions{MaxMessage: 1 << 20, SendDepth: 8, RecvDepth: 8}
	l := listen(t, nic, via.ListenOptions{Conn: same(o), Backlog: ghosts, Refused: func(_ via.Remote, err error) { refused <- err }})
	ghost.Ask(t, address, []byte(service), ghosts, via.ReliableDelivery, o.MaxMessage)
	for range ghosts {
		should.Fail(t, <-refused, via.ErrPeerLost)
	}
	should.OK(t, dialPort(t, address, o))
	c := must.Get(l.Accept(conform.Context(t)))(t)
	must.OK(t, errors.Join(c.Close(), l.Close()))
}

// TestListenEnds closes a listener while clients are on their way.
func TestListenEnds(t *testing.T) {
	t.Parallel()
	nic, address := onPort(t, "")
	l := listen(t, nic, via.ListenOptions{Conn: same(small(via.ReliableDelivery))})
	ghost.Ask(t, address, []byte(service), 10, via.ReliableDelivery, 64)
	ctx, cancel := context.WithCancel(conform.Context(t))
	cancel()
	should.Refuse(l.Accept(ctx))(t, via.ErrCanceled, "accept")
	should.OK(t, l.Close())
	should.OK(t, l.Close())
	should.Refuse(l.Accept(conform.Context(t)))(t, via.ErrClosed, "accept")
	// Nobody waits any more, and nothing is left on the NIC.
	short, stop := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer stop()
	should.Refuse(nic.ConnectWait(short, service))(t, via.ErrTimeout)
}

// TestListenNICCloses: a listener whose NIC has been closed can still be closed, once.
func TestListenNICCloses(t *testing.T) {
	a, _ := conform.OnMemory(t, "", via.Options{})
	l := listen(t, a, via.ListenOptions{})
	must.OK(t, a.Close())
	should.Refuse(l.Accept(conform.Context(t)))(t, via.ErrClosed, "accept")
	should.OK(t, l.Close())
	should.OK(t, l.Close())
}

// TestListenManyClients has more of them come at the same time, over a bad wire, than
// the backlog holds.
func TestListenManyClients(t *testing.T) {
	t.Parallel()
	const clients = 80
	a, b := conform.OnMemory(t, "&loss=0.3&seed=3", via.Options{})
	l := listen(t, b, via.ListenOptions{Conn: same(small(via.ReliableDelivery))})
	var all sync.WaitGroup
	for i := range clients {
		all.Go(func() {
			c, err := via.Dial(conform.Context(t), a, l.Address().String(), small(via.ReliableDelivery))
			if err != nil {
				t.Errorf("client %d: %v", i, err)
				return
			}
			t.Cleanup(func() { _ = c.Close() })
		})
	}
	for i := range clients {
		c, err := l.Accept(conform.Context(t))
		if err != nil {
			t.Fatalf("after %d clients: %v", i, err)
		}
		t.Cleanup(func() { _ = c.Close() })
	}
	all.Wait()
	must.OK(t, l.Close())
}

// TestListenLimit: who listens for one client is not there for a second.
func TestListenLimit(t *testing.T) {
	t.Parallel()
	a, b := conform.OnMemory(t, "", via.Options{})
	l := listen(t, b, via.ListenOptions{Limit: 1})
	first := must.Get(via.Dial(conform.Context(t), a, l.Address().String(), via.ConnOptions{}))(t)
	c := must.Get(l.Accept(conform.Context(t)))(t)
	short, stop := context.WithTimeout(t.Context(), time.Second)
	defer stop()
	if _, err := via.Dial(short, a, l.Address().String(), via.ConnOptions{}); !errors.Is(err, via.ErrNoMatch) || !errors.Is(err, via.ErrTimeout) {
		t.Errorf("second: %v", err)
	}
	should.OK(t, l.Close())
	closeBoth(t, first, c)
}

// TestDialFails says why, and the listener is told whom it has turned down.
func TestDialFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		mac   func(b *via.NIC) via.MAC
		serve func(via.Remote) (via.ConnOptions, error)
		want  []error
	}{
		"nobody waits": {
			mac:  func(b *via.NIC) via.MAC { return b.Query().Address },
			want: []error{via.ErrTimeout, via.ErrNoMatch},
		},
		"nobody is there": {
			mac:  func(*via.NIC) via.MAC { return via.MAC{2, 9, 9, 9, 9, 9} },
			want: []error{via.ErrTimeout},
		},
		"rejected": {
			mac:   func(b *via.NIC) via.MAC { return b.Query().Address },
			serve: func(via.Remote) (via.ConnOptions, error) { return via.ConnOptions{}, errors.New("not you") },
			want:  []error{via.ErrReject},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := conform.OnMemory(t, "", via.Options{})
			ctx := conform.Context(t)
			if c.serve == nil {
				short, cancel := context.WithTimeout(ctx, time.Second) // in which one that is there says no, on a busy machine too
				defer cancel()
				ctx = short
			} else {
				refused := make(chan error, 16)
				l := listen(t, b, via.ListenOptions{Conn: c.serve, Refused: func(_ via.Remote, err error) { refused <- err }})
				defer func() {
					should.Be(t, (<-refused).Error(), "not you")
					should.OK(t, l.Close())
				}()
			}
			_, err := via.Dial(ctx, a, via.Address{MAC: c.mac(b), Discriminator: service}.String(), small(via.ReliableDelivery))
			for _, want := range c.want {
				should.Fail(t, err, want)
			}
		})
	}
}

// TestDialInterrupted ends with the context.
func TestDialInterrupted(t *testing.T) {
	a, _ := conform.OnMemory(t, "", via.Options{})
	ctx, cancel := context.WithCancel(conform.Context(t))
	time.AfterFunc(20*time.Millisecond, cancel)
	should.Refuse(via.Dial(ctx, a, via.Address{MAC: via.MAC{2}, Discriminator: service}.String(), via.ConnOptions{}))(t, via.ErrCanceled)
	// Nothing is left behind: all VIs can still be made.
	for i := range 3 {
		should.Refuse(via.Dial(conform.Context(t), a, via.Address{}.String(), via.ConnOptions{MaxMessage: 1<<30 + 1}))(t, via.ErrInvalidMTU, "%d", i)
	}
}
