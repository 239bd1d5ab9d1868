package via_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
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
			should.Be(t, testing.AllocsPerRun(500, func() { p.round(t) }), 0, "allocations in a round trip")
			should.Be(t, testing.AllocsPerRun(500, func() {
				_, _ = p.x.VI.RecvDone() // a receive is posted, nothing comes
				_, _ = p.y.VI.RecvDone()
			}), 0, "allocations in polls that find nothing")
		})
	}
	t.Run("batches and CQ", func(t *testing.T) {
		a, b := conform.OnMemory(t, "", via.Options{})
		s := newCQStream(t, conform.NewWorld(t, a, b), 256, 16)
		should.Be(t, testing.AllocsPerRun(200, func() { s.round(t) }), 0, "allocations in a batch")
	})
	t.Run("shared receive queue", func(t *testing.T) {
		a, b := conform.OnMemory(t, "", via.Options{})
		ctx, p := conform.Context(t), conform.NewWorld(t, a, b)
		cq := must.Get(b.CreateCQ(ctx, 64))(t)
		q := must.Get(b.CreateReceiveQueue(ctx, via.ReceiveQueueAttributes{}, cq))(t)
		v := must.Get(b.CreateVI(ctx, via.VIAttributes{ReceiveQueue: q}, nil, nil))(t)
		x := conform.NewEnd(t, a, conform.Setup{})
		must.OK(t, conform.ConnectVIs(ctx, x.VI, v, t.Name()))
		ds := must.Get(q.NewDescriptors(ctx, 1, 0))(t)
		should.Be(t, testing.AllocsPerRun(300, func() {
			x.Send[0].Prepare()
			ds[0].Rearm()
			must.OK(t, errors.Join(q.PostRecv(ds[0]), x.VI.PostSend(x.Send[0])))
			p.Until("the receive", func() bool {
				c, err := cq.Done()
				return err == nil && c.Err == nil && c.Descriptor == ds[0]
			})
			p.MustTake(x.VI.SendDone)
		}), 0, "allocations in a message")
	})
	t.Run("answers", func(t *testing.T) {
		a, _ := conform.OnMemory(t, "", via.Options{})
		e := conform.NewEnd(t, a, conform.Setup{Attributes: via.VIAttributes{RecvDepth: 2}})
		for _, d := range e.Recv {
			must.OK(t, e.VI.PostRecv(d))
		}
		extra := must.Get(e.VI.NewDescriptors(conform.Context(t), 1, 1))(t)
		should.Be(t, testing.AllocsPerRun(500, func() {
			full, empty := e.VI.PostRecv(extra[0]), error(nil)
			_, empty = e.VI.SendDone()
			if full != via.ErrQueueFull || empty != via.ErrQueueEmpty {
				t.Fatal(full, empty)
			}
		}), 0, "allocations in a refused post and a look at an empty queue")
	})
}
