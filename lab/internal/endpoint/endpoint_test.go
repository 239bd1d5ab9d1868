package endpoint_test

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"testing"
	"time"

	_ "github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/via/transfer"
	"github.com/trapeze-nic/trapeze/lab/internal/endpoint"
	"github.com/trapeze-nic/trapeze/via"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var service = []byte("test")

func limited(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	t.Cleanup(cancel)
	return ctx
}

// nics opens two NICs on one wire.
func nics(t testing.TB) (a, b *via.NIC) { return nicsWith(t, "") }

// nicsWith is nics with further options.
func nicsWith(t testing.TB, options string) (a, b *via.NIC) {
	t.Helper()
	address := "emu:?wire=mem:" + rand.Text() + options
	return open(t, address), open(t, address)
}

func options(n, depth int) endpoint.Options {
	return endpoint.Options{MaxMessage: n, SendDepth: depth, RecvDepth: depth}
}

type accepted struct {
	e   *endpoint.Endpoint
	r   via.Remote
	err error
}

func listen(ctx context.Context, l *endpoint.Listener) <-chan accepted {
	c := make(chan accepted, 1)
	go func() {
		e, r, err := l.Accept(ctx)
		c <- accepted{e, r, errors.Join(err, l.Close())}
	}()
	return c
}

func same(o endpoint.Options) func(via.Remote) (endpoint.Options, error) {
	return func(via.Remote) (endpoint.Options, error) { return o, nil }
}

// pair connects two endpoints.
func pair(t testing.TB, o endpoint.Options) (x, y *endpoint.Endpoint) {
	t.Helper()
	a, b := nics(t)
	ctx := limited(t)
	c := listen(ctx, &endpoint.Listener{NIC: b, Discriminator: service, Options: same(o)})
	x, err := endpoint.New(ctx, a, o)
	if err != nil {
		t.Fatal(err)
	}
	r, err := x.Connect(ctx, via.Address{MAC: b.Query().Address, Discriminator: service}, []byte("me"))
	if err != nil {
		t.Fatal(err)
	}
	got := <-c
	if got.err != nil {
		t.Fatal(got.err)
	}
	if r.MAC != b.Query().Address || got.r.MAC != a.Query().Address || got.r.MaxTransfer != uint32(o.MaxMessage) {
		t.Errorf("remotes %+v and %+v", r, got.r)
	}
	return x, got.e
}

func say(t testing.TB, e *endpoint.Endpoint, b []byte) {
	t.Helper()
	buf, err := e.Acquire(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Post(copy(buf, b)); err != nil {
		t.Fatal(err)
	}
}

func hear(t testing.TB, e *endpoint.Endpoint, want []byte) {
	t.Helper()
	b, err := e.Receive(limited(t))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(b, want) {
		t.Errorf("got %d bytes, want %d, or others", len(b), len(want))
	}
	if err := e.Release(); err != nil {
		t.Fatal(err)
	}
}

func TestMessagesPassBothWays(t *testing.T) {
	const most, depth = 9000, 4
	x, y := pair(t, options(most, depth))
	defer y.Close()
	defer x.Close()
	// Sizes at the edges, more of them than there are buffers.
	for _, n := range []int{0, 1, 63, 64, 65, most - 1, most, 0, most, 1, 2, 3} {
		b := bytes.Repeat([]byte{byte(n), 0xa5}, n/2+1)[:n]
		say(t, x, b)
		hear(t, y, b)
		say(t, y, b)
		hear(t, x, b)
	}
	if err := x.Flush(limited(t)); err != nil {
		t.Error(err)
	}
}

func TestImmediateData(t *testing.T) {
	x, y := pair(t, options(64, 2))
	defer y.Close()
	defer x.Close()
	if _, err := x.Acquire(limited(t)); err != nil {
		t.Fatal(err)
	}
	if err := x.PostImmediate(0, 0xfeedface); err != nil {
		t.Fatal(err)
	}
	if b, err := y.Receive(limited(t)); err != nil || len(b) != 0 {
		t.Fatal(b, err)
	}
	if v, ok := y.Immediate(); !ok || v != 0xfeedface {
		t.Errorf("immediate %#x, %v", v, ok)
	}
}

// TestBuffersRunOut checks that a sender is stalled and not failed by a receiver
// that does not take anything.
func TestBuffersRunOut(t *testing.T) {
	const depth = 3
	x, y := pair(t, options(64, depth))
	defer y.Close()
	defer x.Close()
	var sent byte
	stalled := time.Now().Add(10 * time.Second)
	for {
		buf, err := x.TryAcquire()
		if err != nil {
			t.Fatal(err)
		}
		if buf == nil && sent >= 2*depth { // those received and those held back
			break
		}
		if buf == nil {
			if time.Now().After(stalled) {
				t.Fatalf("stalled after %d messages", sent)
			}
			continue
		}
		buf[0] = sent
		if err := x.Post(1); err != nil {
			t.Fatal(err)
		}
		sent++
	}
	if sent != 2*depth {
		t.Fatalf("%d messages went out, there are buffers for %d", sent, 2*depth)
	}
	short, cancel := context.WithTimeout(limited(t), 20*time.Millisecond)
	defer cancel()
	if _, err := x.Acquire(short); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("Acquire: %v", err)
	}
	for i := range sent {
		hear(t, y, []byte{i})
	}
	if err := x.Flush(limited(t)); err != nil {
		t.Error(err)
	}
}

func TestReceiveWithNothingThere(t *testing.T) {
	x, y := pair(t, options(64, 2))
	defer y.Close()
	defer x.Close()
	if b, err := x.TryReceive(); b != nil || err != nil {
		t.Errorf("TryReceive: %v, %v", b, err)
	}
	ctx, cancel := context.WithCancel(limited(t))
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := x.Receive(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("Receive: %v", err)
	}
	if err := x.Release(); err == nil {
		t.Error("released nothing")
	}
	say(t, y, []byte("still works"))
	hear(t, x, []byte("still works"))
}

// TestPeerLeaves checks that what arrived before can still be read, and that
// every call then says that the peer is lost.
func TestPeerLeaves(t *testing.T) {
	x, y := pair(t, options(64, 4))
	defer x.Close()
	say(t, y, []byte("last words"))
	if err := y.Flush(limited(t)); err != nil {
		t.Fatal(err)
	}
	if err := y.Close(); err != nil {
		t.Fatal(err)
	}
	hear(t, x, []byte("last words"))
	for range 2 {
		if _, err := x.Receive(limited(t)); !errors.Is(err, transfer.ErrPeerLost) || !errors.Is(err, via.ErrDisconnected) {
			t.Errorf("Receive: %v", err)
		}
		if _, err := x.TryReceive(); !errors.Is(err, transfer.ErrPeerLost) {
			t.Errorf("TryReceive: %v", err)
		}
		if _, err := x.Acquire(limited(t)); !errors.Is(err, transfer.ErrPeerLost) {
			t.Errorf("Acquire: %v", err)
		}
		if err := x.Post(1); !errors.Is(err, transfer.ErrPeerLost) {
			t.Errorf("Post: %v", err)
		}
	}
}

// TestPeerCutsMessagesOff: a peer that leaves with messages that nobody had room for
// has not left in order.
func TestPeerCutsMessagesOff(t *testing.T) {
	const depth = 4
	x, y := pair(t, options(64, depth))
	defer x.Close()
	for range depth {
		say(t, y, []byte("taken"))
	}
	if err := y.Flush(limited(t)); err != nil {
		t.Fatal(err)
	}
	say(t, y, []byte("cut off"))
	if err := y.Close(); err != nil {
		t.Fatal(err)
	}
	for range depth {
		hear(t, x, []byte("taken"))
	}
	if _, err := x.Receive(limited(t)); !errors.Is(err, transfer.ErrPeerLost) || !errors.Is(err, via.ErrConnectionBroken) || errors.Is(err, via.ErrDisconnected) {
		t.Errorf("Receive: %v", err)
	}
}

func TestConnectFails(t *testing.T) {
	for name, c := range map[string]struct {
		mac   func(b *via.NIC) via.MAC
		serve *endpoint.Listener
		want  []error
	}{
		"nobody waits": {
			mac:  func(b *via.NIC) via.MAC { return b.Query().Address },
			want: []error{endpoint.ErrNobody, via.ErrTimeout},
		},
		"nobody is there": {
			mac:  func(*via.NIC) via.MAC { return via.MAC{2, 9, 9, 9, 9, 9} },
			want: []error{endpoint.ErrNobody, via.ErrTimeout},
		},
		"rejected": {
			mac: func(b *via.NIC) via.MAC { return b.Query().Address },
			serve: &endpoint.Listener{Discriminator: service, Options: func(via.Remote) (endpoint.Options, error) {
				return endpoint.Options{}, errors.New("not you")
			}},
			want: []error{via.ErrReject},
		},
		"other message size": {
			mac:   func(b *via.NIC) via.MAC { return b.Query().Address },
			serve: &endpoint.Listener{Discriminator: service, Options: same(options(128, 2))},
			want:  []error{via.ErrReject},
		},
	} {
		t.Run(name, func(t *testing.T) {
			a, b := nics(t)
			ctx := limited(t)
			if c.serve == nil {
				short, cancel := context.WithTimeout(ctx, 300*time.Millisecond)
				defer cancel()
				ctx = short
			} else {
				refused := make(chan error, 16)
				c.serve.NIC = b
				c.serve.Refused = func(_ via.Remote, err error) { refused <- err }
				serving, stop := context.WithCancel(limited(t))
				done := listen(serving, c.serve)
				defer func() {
					stop()
					if got := <-done; !errors.Is(got.err, context.Canceled) {
						t.Errorf("the server went on with %v", got.err)
					}
					if len(refused) == 0 {
						t.Error("the server was not told")
					}
				}()
			}
			e, err := endpoint.New(ctx, a, options(64, 2))
			if err != nil {
				t.Fatal(err)
			}
			_, err = e.Connect(ctx, via.Address{MAC: c.mac(b), Discriminator: service}, nil)
			for _, want := range c.want {
				if !errors.Is(err, want) {
					t.Errorf("got %v, want %v", err, want)
				}
			}
			if err := e.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestServerComesLater checks that a client keeps asking.
func TestServerComesLater(t *testing.T) {
	a, b := nics(t)
	ctx := limited(t)
	e, err := endpoint.New(ctx, a, options(64, 2))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	connected := make(chan error, 1)
	go func() {
		_, err := e.Connect(ctx, via.Address{MAC: b.Query().Address, Discriminator: service}, nil)
		connected <- err
	}()
	time.Sleep(50 * time.Millisecond)
	got := <-listen(ctx, &endpoint.Listener{NIC: b, Discriminator: service, Options: same(options(64, 2))})
	if err := errors.Join(got.err, <-connected); err != nil {
		t.Fatal(err)
	}
	if err := got.e.Close(); err != nil {
		t.Error(err)
	}
}

func TestInterruptedConnect(t *testing.T) {
	a, _ := nics(t)
	ctx, cancel := context.WithCancelCause(limited(t))
	e, err := endpoint.New(ctx, a, options(64, 2))
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	reason := errors.New("enough")
	time.AfterFunc(20*time.Millisecond, func() { cancel(reason) })
	if _, err := e.Connect(ctx, via.Address{MAC: via.MAC{2}, Discriminator: service}, nil); !errors.Is(err, reason) {
		t.Errorf("got %v", err)
	}
}

func TestBadOptions(t *testing.T) {
	a, _ := nics(t)
	most := int(a.Query().MaxTransfer)
	if e, err := endpoint.New(limited(t), a, options(most+1, 2)); !errors.Is(err, via.ErrInvalidMTU) {
		t.Errorf("got %v, %v", e, err)
	}
	// Nothing is left behind: all VIs can still be made.
	for range 3 {
		e, err := endpoint.New(limited(t), a, options(64, 1))
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
