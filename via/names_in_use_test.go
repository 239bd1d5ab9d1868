package via_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// TestListenTwice: a name of a NIC belongs to one listener, of whatever package, until that
// is closed. Another NIC has names of its own.
func TestListenTwice(t *testing.T) {
	n, other := openQuiet(t, "emu:?wire=mem:"+t.Name()), openQuiet(t, "emu:?wire=mem:"+t.Name())
	kinds := map[string]func(n *via.NIC, name string) (interface{ Close() error }, error){
		"via": func(n *via.NIC, name string) (interface{ Close() error }, error) {
			return via.Listen(n, name, via.ListenOptions{})
		},
		"ring": func(n *via.NIC, name string) (interface{ Close() error }, error) {
			return ring.Listen(n, name, ring.Options{})
		},
		"channel": func(n *via.NIC, name string) (interface{ Close() error }, error) {
			return channel.Listen(n, name, channel.Options{})
		},
	}
	for first, open := range kinds {
		l, err := open(n, "x")
		if err != nil {
			t.Fatal(err)
		}
		for second, again := range kinds {
			_, err := again(n, "x")
			if !errors.Is(err, via.ErrAddressInUse) || !errors.Is(err, via.ErrResource) || !strings.Contains(err.Error(), "/x") {
				t.Errorf("%s after %s: %v", second, first, err)
			}
			for _, free := range []struct {
				n    *via.NIC
				name string
			}{{n, "y"}, {other, "x"}} {
				m, err := again(free.n, free.name)
				if err != nil {
					t.Fatalf("%s after %s: a name that is free: %v", second, first, err)
				}
				if err := m.Close(); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := l.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestDialWithoutDeadline: Dial gives itself a time if its context has no end.
func TestDialWithoutDeadline(t *testing.T) {
	if !soak.Wanted() {
		t.Skip("takes half a minute: run it with " + soak.Variable)
	}
	t.Parallel()
	n := openQuiet(t, "emu:?wire=mem:"+t.Name())
	began := time.Now()
	_, err := via.Dial(context.Background(), n, via.Address{MAC: via.MAC{2, 9, 9, 9, 9, 9}, Discriminator: "x"}.String(), via.ConnOptions{})
	if took := time.Since(began); !errors.Is(err, via.ErrTimeout) || took < via.DialTimeout-time.Second {
		t.Errorf("after %v: %v", took, err)
	}
	for _, part := range []string{"02:09:09:09:09:09/x", "start the other side"} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%q is not in %v", part, err)
		}
	}
}

// TestSendWithoutRoom: a Send that has waited in vain says for what.
func TestSendWithoutRoom(t *testing.T) {
	client, server := openQuiet(t, "emu:?wire=mem:"+t.Name()), openQuiet(t, "emu:?wire=mem:"+t.Name())
	l, err := via.Listen(server, service, via.ListenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	c, err := via.Dial(conform.Context(t), client, l.Address().String(), small(via.ReliableDelivery))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Accept(conform.Context(t)); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(conform.Context(t), 100*time.Millisecond)
	defer cancel()
	for range 100 {
		if err = c.Send(ctx, []byte("x")); err != nil {
			break
		}
	}
	if !errors.Is(err, via.ErrTimeout) || !errors.Is(err, context.DeadlineExceeded) || !strings.HasPrefix(err.Error(), "send on ") ||
		!strings.Contains(err.Error(), "the peer must receive first") {
		t.Errorf("%v", err)
	}
}
