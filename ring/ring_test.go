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
	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/conform"
	_ "github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// connect connects rings of a and b.
func connect(t testing.TB, a, b *via.NIC, o ring.Options) (x, y *ring.Ring) {
	t.Helper()
	ctx := conform.Context(t)
	l := must.Get(ring.Listen(b, "test", o))(t)
	x = must.Get(ring.Dial(ctx, a, l.Address().String(), o))(t)
	y = must.Get(l.Accept(ctx))(t)
	should.OK(t, l.Close())
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
	for _, shadow := range []bool{false, true} {
		t.Run(fmt.Sprint("shadow ", shadow), func(t *testing.T) {
			x, y := connect(t, a, b, ring.Options{Shadow: shadow, Reliability: via.ReliableDelivery})
			m := must.Get(a.Alloc(t.Context(), 8192, via.MemoryAttributes{}))(t)
			copy(m.Bytes(), bytes.Repeat([]byte("page"), 2048))
			e := must.Get(x.GetSend())(t)
			p := must.Get(e.Reserve(5))(t)
			copy(p, "hello")
			must.OK(t, e.Attach(ring.Frame{Memory: m, Length: 8192}, nil))
			must.OK(t, x.ReleaseSend(e))
			e = must.Get(y.Wait(conform.Context(t)))(t)
			if got, err := e.Scan(5); string(got) != "hello" || err != nil || e.Length() != 8192 {
				t.Errorf("%q, %v, %d", got, err, e.Length())
			}
			should.Same(t, e.Frame().Bytes(), m.Bytes(), "another payload")
			should.OK(t, y.ReleaseRecv(e))
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
		must.OK(t, err)
		return n
	}
	before := free()
	for interrupted, looks := true, 0; interrupted; looks++ {
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		_, err := ring.Dial(&contexttest.EndsAfter{Context: ctx, Looks: looks}, a, to.String(), ring.Options{MaxPayload: 4096})
		interrupted = errors.Is(err, context.Canceled)
		cancel()
	}
	should.Be(t, free(), before, "bytes of its memory were free")
}
