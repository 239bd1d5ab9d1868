package channel_test

import (
	"context"
	"errors"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/ci/kit/contexttest"
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
	if n := testing.AllocsPerRun(1000, func() {
		if err := x.Send(channel.High, 0, 5); err != nil {
			t.Fatal(err)
		}
		m, err := y.Poll()
		for err == via.ErrNotDone {
			m, err = y.Poll()
		}
		if err != nil || m.Err != nil {
			t.Fatal(m, err)
		}
		if err := y.Release(m); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
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
	if after := regionsFree(t, a); after != before {
		t.Errorf("%d registrations were free, and %d are", before, after)
	}
}

// regionsFree counts how many registrations a NIC takes, and gives them back.
func regionsFree(t *testing.T, nic *via.NIC) (n int) {
	t.Helper()
	for {
		pages, err := channel.NewPages(t.Context(), nic, channel.DefaultPageSize, via.MemoryAttributes{})
		if errors.Is(err, via.ErrResource) {
			return n
		}
		if err != nil {
			t.Fatal(err)
		}
		n++
		defer func() {
			if err := pages.Close(t.Context()); err != nil {
				t.Error(err)
			}
		}()
	}
}
