package conform

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

// NameServiceEnds are two ends of one service, as two programs have it.
type NameServiceEnds struct {
	One, Other via.NameService
	// Cut keeps One from the service from here on, as a program that has lost its network.
	Cut func()
}

// nameWait bounds each wait of NameService: many leases of a second.
const nameWait = 30 * time.Second

// NameService runs what every service of names that publishes must pass. open makes a service
// without names, with its ends.
func NameService(t *testing.T, open func(*testing.T) NameServiceEnds) {
	one := via.Address{MAC: via.MAC{2, 0, 0, 0, 0, 1}, Discriminator: "a b#\x00\""}
	two := via.Address{MAC: via.MAC{2, 0, 0, 0, 0, 2}}
	t.Run("publish, resolve, withdraw", func(t *testing.T) {
		ends, ctx := open(t), nameContext(t)
		expectNames(t, ends.Other, "cache")
		p := publishName(t, ends.One, "cache", one)
		publishName(t, ends.One, "cache", two)
		publishName(t, ends.One, "cache-2", two)
		expectNames(t, ends.Other, "cache", one, two)
		expectNames(t, ends.Other, "cache-2", two)
		OK(t, p.Withdraw())
		OK(t, p.Withdraw()) // again
		awaitLost(ctx, t, p)
		expectNames(t, ends.Other, "cache", two)
	})
	t.Run("taken over", func(t *testing.T) {
		ends, ctx := open(t), nameContext(t)
		old := publishName(t, ends.One, "cache", one)
		now := publishName(t, ends.Other, "cache", one)
		if now.Term() <= old.Term() {
			t.Errorf("the later term is %d, the earlier %d", now.Term(), old.Term())
		}
		awaitLost(ctx, t, old)
		OK(t, old.Withdraw())
		expectNames(t, ends.One, "cache", one)
		select {
		case <-now.Lost():
			t.Error("the earlier publication has ended the later one")
		default:
		}
		OK(t, now.Withdraw())
		again := publishName(t, ends.One, "cache", one)
		if again.Term() <= now.Term() {
			t.Errorf("after a withdrawal the term is %d, before it %d", again.Term(), now.Term())
		}
	})
	t.Run("watched, renewed, and dead", func(t *testing.T) {
		ends, ctx := open(t), nameContext(t)
		w := watchName(ctx, t, ends.Other, "cache")
		w.await(t)
		p := publishName(t, ends.One, "cache", one)
		w.await(t, one)
		other := publishName(t, ends.Other, "cache", two)
		w.await(t, one, two)
		time.Sleep(2 * via.LeastLease) // longer than a lease: it is renewed
		w.await(t, one, two)
		ends.Cut()
		awaitLost(ctx, t, p)
		w.await(t, two)
		OK(t, other.Withdraw())
		w.await(t)
	})
	t.Run("bad input", func(t *testing.T) {
		ends, ctx := open(t), nameContext(t)
		for _, c := range []struct {
			what, name string
			address    via.Address
			lease      time.Duration
		}{
			{"no name", "", one, via.LeastLease},
			{"a name with a space", "a b", one, via.LeastLease},
			{"a name with a slash", "../a", one, via.LeastLease},
			{"a group", "cache", via.Address{MAC: via.Broadcast}, via.LeastLease},
			{"no MAC", "cache", via.Address{Discriminator: "x"}, via.LeastLease},
			{"a short lease", "cache", one, via.LeastLease - 1},
			{"a long lease", "cache", one, via.MostLease + 1},
			{"a long discriminator", "cache", via.Address{MAC: one.MAC, Discriminator: string(make([]byte, via.MaxDiscriminator+1))}, via.LeastLease},
		} {
			if p, err := ends.One.Publish(ctx, c.name, c.address, c.lease); p != nil || !errors.Is(err, via.ErrInvalidParameter) {
				t.Errorf("%s: %v, %v", c.what, p, err)
			}
		}
		expectNames(t, ends.Other, "cache")
		ends.Cut()
		if _, err := ends.One.Resolve(ctx, "cache"); !errors.Is(err, via.ErrNameService) {
			t.Error("resolved by a service that is away:", err)
		}
		if p, err := ends.One.Publish(ctx, "cache", one, via.LeastLease); p != nil || !errors.Is(err, via.ErrNameService) {
			t.Error("published by a service that is away:", err)
		}
	})
}

func nameContext(t *testing.T) context.Context {
	ctx, cancel := context.WithTimeout(t.Context(), nameWait)
	t.Cleanup(cancel)
	return ctx
}

func publishName(t *testing.T, s via.NameService, name string, a via.Address) *via.Publication {
	t.Helper()
	p := Must(s.Publish(nameContext(t), name, a, via.LeastLease))(t)
	t.Cleanup(func() { _ = p.Withdraw() }) // it may have been withdrawn, or be out of reach
	return p
}

func awaitLost(ctx context.Context, t *testing.T, p *via.Publication) {
	t.Helper()
	select {
	case <-p.Lost():
	case <-ctx.Done():
		t.Fatal("the publication is not lost")
	}
}

func expectNames(t *testing.T, s via.NameService, name string, want ...via.Address) {
	t.Helper()
	got, err := s.Resolve(nameContext(t), name)
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("%s is %v, %v, want %v", name, got, err, want)
	}
}

// watched takes what Watch tells.
type watched struct {
	lists chan []via.Address
	last  []via.Address
	until context.Context
}

func watchName(ctx context.Context, t *testing.T, s via.NameService, name string) *watched {
	never := []via.Address{{Discriminator: "Watch has told nothing yet"}}
	w := &watched{lists: make(chan []via.Address, 64), last: never, until: ctx}
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() {
		ended <- s.Watch(ctx, name, func(list []via.Address) {
			select {
			case w.lists <- list:
			case <-ctx.Done():
			}
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; !errors.Is(err, context.Canceled) {
			t.Error("Watch ended with", err)
		}
	})
	return w
}

// await waits until the list that Watch has told last is the wanted one.
func (w *watched) await(t *testing.T, want ...via.Address) {
	t.Helper()
	for len(w.lists) > 0 || !slices.Equal(w.last, want) {
		select {
		case w.last = <-w.lists:
		case <-w.until.Done():
			t.Fatalf("Watch has told %v, want %v", w.last, want)
		}
	}
}
