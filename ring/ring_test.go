package ring_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/contexttest"
	"github.com/trapeze-nic/trapeze/conform"
	_ "github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// connect connects rings of a and b.
func connect(t testing.TB, a, b *via.NIC, o ring.Options) (x, y *ring.Ring) {
	t.Helper()
	ctx := conform.Context(t)
	l, err := ring.Listen(b, "test", o)
	if err != nil {
		t.Fatal(err)
	}
	if x, err = ring.Dial(ctx, a, l.Address().String(), o); err != nil {
		t.Fatal(err)
	}
	if y, err = l.Accept(ctx); err != nil {
		t.Fatal(err)
	}
	if err := l.Close(); err != nil {
		t.Error(err)
	}
	t.Cleanup(func() {
		for _, r := range []*ring.Ring{x, y} {
			if err := r.Close(); err != nil && !errors.Is(err, net.ErrClosed) {
				t.Error(err)
			}
		}
	})
	return x, y
}

func TestMessage(t *testing.T) {
	a, b := conform.OnMemory(t, "", via.Options{})
	for _, access := range []ring.Access{ring.Measured, ring.SRAM, ring.Shadow} {
		t.Run(fmt.Sprint("access ", access), func(t *testing.T) {
			x, y := connect(t, a, b, ring.Options{Access: access, Reliability: via.ReliableDelivery})
			m, err := a.Alloc(t.Context(), 8192, via.MemoryAttributes{})
			if err != nil {
				t.Fatal(err)
			}
			copy(m.Bytes(), bytes.Repeat([]byte("page"), 2048))
			e, err := x.GetSend()
			if err != nil {
				t.Fatal(err)
			}
			p, err := e.Reserve(5)
			if err != nil {
				t.Fatal(err)
			}
			copy(p, "hello")
			if err := e.Attach(ring.Frame{Memory: m, Length: 8192}, nil); err != nil {
				t.Fatal(err)
			}
			if err := x.ReleaseSend(e); err != nil {
				t.Fatal(err)
			}
			e, err = y.Wait(conform.Context(t))
			if err != nil {
				t.Fatal(err)
			}
			if got, err := e.Scan(5); string(got) != "hello" || err != nil || e.Length() != 8192 {
				t.Errorf("%q, %v, %d", got, err, e.Length())
			}
			if !bytes.Equal(e.Frame().Bytes(), m.Bytes()) {
				t.Error("another payload")
			}
			if err := y.ReleaseRecv(e); err != nil {
				t.Error(err)
			}
		})
	}
}

// TestInterruptedDialLeavesNothing: wherever its context ends, a Dial that fails has given back
// what it had taken of the NIC.
func TestInterruptedDialLeavesNothing(t *testing.T) {
	a, b := conform.OnMemory(t, "", via.Options{})
	to := via.Address{MAC: b.Query().Address, Discriminator: "nobody"}
	free := func() uint32 {
		n, _, err := a.FreeSRAM()
		conform.OK(t, err)
		return n
	}
	before := free()
	for interrupted, looks := true, 0; interrupted; looks++ {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := ring.Dial(&contexttest.EndsAfter{Context: ctx, Looks: looks}, a, to.String(), ring.Options{MaxPayload: 4096})
		interrupted = errors.Is(err, context.Canceled)
		cancel()
	}
	if after := free(); after != before {
		t.Errorf("%d bytes of its memory were free, and %d are", before, after)
	}
}
