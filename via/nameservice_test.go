package via_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/via"
)

func TestDNSNames(t *testing.T) {
	s := via.DNSNames(serveTXT(t, map[string][]string{"gamma.test.": {"via=02:00:00:00:00:08"}}))
	if p, err := s.Publish(t.Context(), "x", via.Address{}, via.LeastLease); p != nil || !errors.Is(err, errors.ErrUnsupported) || !errors.Is(err, via.ErrNameService) {
		t.Errorf("%v, %v", p, err)
	}
	if got, err := s.Resolve(t.Context(), "missing.test"); got != nil || err != nil {
		t.Errorf("%v, %v", got, err)
	}
	ctx := conform.Context(t)
	told := make(chan []via.Address, 1)
	go func() { _ = s.Watch(ctx, "gamma.test", func(list []via.Address) { told <- list }) }()
	select {
	case list := <-told:
		if len(list) != 1 || list[0].String() != "02:00:00:00:00:08" {
			t.Error(list)
		}
	case <-ctx.Done():
		t.Error("Watch tells nothing")
	}
}

// listed is a service with one name.
type listed struct {
	name string
	at   []via.Address
}

func (s *listed) Publish(_ context.Context, name string, a via.Address, lease time.Duration) (*via.Publication, error) {
	s.name, s.at = name, []via.Address{a}
	return via.KeepPublished(1, time.Now(), lease, func(context.Context) error { return nil },
		func(context.Context) error { s.at = nil; return nil }), nil
}

func (s *listed) Resolve(_ context.Context, name string) ([]via.Address, error) {
	if name != s.name {
		return nil, nil
	}
	return s.at, nil
}

func (s *listed) Watch(context.Context, string, func([]via.Address)) error { return nil }

// TestDialByService: a listener publishes its address, and a program dials it by its name.
func TestDialByService(t *testing.T) {
	ctx := conform.Context(t)
	server, client := conform.OnMemory(t, "", via.Options{})
	l := must.Get(via.Listen(server, "blocks", via.ListenOptions{}))(t)
	defer l.Close()
	names := &listed{}
	client.UseNames(names)
	if _, err := via.Dial(ctx, client, "cache", via.ConnOptions{}); !errors.Is(err, via.ErrNameService) || !strings.Contains(err.Error(), "publish") {
		t.Errorf("nobody has the name: %v", err)
	}
	p := must.Get(names.Publish(ctx, "cache", l.Address(), via.LeastLease))(t)
	defer func() {
		if err := p.Withdraw(); err != nil || names.at != nil {
			t.Errorf("%v, %v is left", err, names.at)
		}
		<-p.Lost()
	}()
	for _, address := range []string{"cache", "cache:blocks"} {
		out := must.Get(via.Dial(ctx, client, address, via.ConnOptions{}))(t)
		should.OK(t, out.Send(ctx, []byte("hello")))
		in := must.Get(l.Accept(ctx))(t)
		if m, err := in.Receive(ctx); err != nil || string(m) != "hello" {
			t.Errorf("%q, %v", m, err)
		}
		out.Close()
		in.Close()
	}
}
