package via_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/internal/telemetry"
	"github.com/trapeze-nic/trapeze/via"
)

// TestNoAllocation sends messages both ways and counts the allocations of
// posts, polls and completions.
func TestNoAllocation(t *testing.T) {
	t.Setenv(telemetry.Variable, "off") // which allocates when it is asked
	for _, size := range []int{0, 64, 8192, 65536} {
		t.Run(sizeName(size), func(t *testing.T) {
			a, b := conform.OnMemory(t, "", via.Options{})
			p := newPingPong(t, conform.NewWorld(t, a, b), size)
			if n := testing.AllocsPerRun(500, func() { p.round(t) }); n != 0 {
				t.Errorf("%v allocations in a round trip", n)
			}
			if n := testing.AllocsPerRun(500, func() {
				_, _ = p.x.VI.RecvDone() // a receive is posted, nothing comes
				_, _ = p.y.VI.RecvDone()
			}); n != 0 {
				t.Errorf("%v allocations in polls that find nothing", n)
			}
		})
	}
	t.Run("batches and CQ", func(t *testing.T) {
		a, b := conform.OnMemory(t, "", via.Options{})
		s := newCQStream(t, conform.NewWorld(t, a, b), 256, 16)
		if n := testing.AllocsPerRun(200, func() { s.round(t) }); n != 0 {
			t.Errorf("%v allocations in a batch", n)
		}
	})
	t.Run("shared receive queue", func(t *testing.T) {
		a, b := conform.OnMemory(t, "", via.Options{})
		ctx, p := conform.Context(t), conform.NewWorld(t, a, b)
		cq, err := b.CreateCQ(ctx, 64)
		if err != nil {
			t.Fatal(err)
		}
		q, err := b.CreateReceiveQueue(ctx, via.ReceiveQueueAttributes{}, cq)
		if err != nil {
			t.Fatal(err)
		}
		v, err := b.CreateVI(ctx, via.VIAttributes{ReceiveQueue: q}, nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		x := conform.NewEnd(t, a, conform.Setup{})
		if err := conform.ConnectVIs(ctx, x.VI, v, t.Name()); err != nil {
			t.Fatal(err)
		}
		ds, err := q.NewDescriptors(ctx, 1, 0)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(300, func() {
			x.Send[0].Prepare()
			ds[0].Rearm()
			if err := errors.Join(q.PostRecv(ds[0]), x.VI.PostSend(x.Send[0])); err != nil {
				t.Fatal(err)
			}
			p.Until("the receive", func() bool {
				c, err := cq.Done()
				return err == nil && c.Err == nil && c.Descriptor == ds[0]
			})
			p.MustTake(x.VI.SendDone)
		}); n != 0 {
			t.Errorf("%v allocations in a message", n)
		}
	})
	t.Run("answers", func(t *testing.T) {
		a, _ := conform.OnMemory(t, "", via.Options{})
		e := conform.NewEnd(t, a, conform.Setup{Attributes: via.VIAttributes{RecvDepth: 2}})
		for _, d := range e.Recv {
			if err := e.VI.PostRecv(d); err != nil {
				t.Fatal(err)
			}
		}
		extra, err := e.VI.NewDescriptors(conform.Context(t), 1, 1)
		if err != nil {
			t.Fatal(err)
		}
		if n := testing.AllocsPerRun(500, func() {
			full, empty := e.VI.PostRecv(extra[0]), error(nil)
			_, empty = e.VI.SendDone()
			if full != via.ErrQueueFull || empty != via.ErrQueueEmpty {
				t.Fatal(full, empty)
			}
		}); n != 0 {
			t.Errorf("%v allocations in a refused post and a look at an empty queue", n)
		}
	})
}
