package channel_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/ci/kit/contexttest"
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

func random(n int, seed uint64) []byte {
	b := make([]byte, n)
	r := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	_, _ = r.Read(b)
	return b
}

// TestNothingIsAllocated: neither by a send, nor by a look, nor by a message that is taken.
func TestNothingIsAllocated(t *testing.T) {
	x, y := openPair(t, "", channel.Options{})
	should.Be(t, testing.AllocsPerRun(1000, func() {
		must.OK(t, x.Send(channel.High, 0, 5))
		m, err := y.Poll()
		for err == via.ErrNotDone {
			m, err = y.Poll()
		}
		if err != nil || m.Err != nil {
			t.Fatal(m, err)
		}
		must.OK(t, y.Release(m))
	}), 0, "allocations")
}

// TestFull: with as many messages under way as may be Send says so at once, and goes on when one has left. The NIC says how
// full its FIFOs are and were.
func TestFull(t *testing.T) {
	a, b := openBoth(t, "&doorbells=trapped")
	clients, _ := openPairs(t, a, b, 1, channel.Options{}, channel.Options{})
	full := 0
	for sent := 0; sent < 4*channel.Depth; {
		switch err := clients[0].Send(channel.Low, 0, clients[0].Words()-1); {
		case err == nil:
			sent++
		case err == via.ErrQueueFull && sent >= channel.Depth:
			full++
			b.Poll()
		default:
			t.Fatal(sent, err)
		}
	}
	if s, err := clients[0].Status(); err != nil || s.Result != [2]datasheet.ChannelResult{} || full == 0 {
		t.Errorf("full %d times, %+v, %v", full, s, err)
	}
	if l, err := a.ChannelLevels(); err != nil || l.Open != 1 || l.Low.Highest != channel.Depth || l.High.Highest != 0 {
		t.Errorf("%+v, %v", l, err)
	}
	l, err := b.ChannelLevels()
	if err != nil || l.Low.Highest != 0 || l.Receive.Highest < 1 || l.ReceiveRoom < l.Receive.Highest {
		t.Errorf("%+v, %v", l, err)
	}
}

// TestInterruptedDialLeavesNothing: wherever its context ends, a Dial that fails has given back
// the memory that it had registered.
func TestInterruptedDialLeavesNothing(t *testing.T) {
	a, b := openBoth(t, "&regions=16")
	to := via.Address{MAC: b.Query().Address, Discriminator: "nobody"}
	before := regionsFree(t, a)
	for interrupted, looks := true, 0; interrupted; looks++ {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := channel.Dial(&contexttest.EndsAfter{Context: ctx, Looks: looks}, a, to.String(), channel.Options{})
		interrupted = errors.Is(err, context.Canceled)
		cancel()
	}
	should.Be(t, regionsFree(t, a), before, "registrations were free")
}

// regionsFree counts how many registrations a NIC takes, and gives them back.
func regionsFree(t *testing.T, nic *via.NIC) (n int) {
	t.Helper()
	for {
		pages, err := channel.NewPages(t.Context(), nic, channel.DefaultPageSize, via.MemoryAttributes{})
		if errors.Is(err, via.ErrResource) {
			return n
		}
		must.OK(t, err)
		n++
		defer func() {
			should.OK(t, pages.Close(t.Context()))
		}()
	}
}
