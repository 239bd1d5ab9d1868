package via_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/via"
)

func sizeName(n int) string {
	if n >= 1024 && n%1024 == 0 {
		return fmt.Sprintf("%dKiB", n/1024)
	}
	return fmt.Sprintf("%dB", n)
}

// pingPong bounces a message between two NICs. One goroutine drives both ends.
type pingPong struct {
	x, y  *conform.End
	turns int
}

func newPingPong(t testing.TB, p *conform.World, size int) *pingPong {
	t.Helper()
	s := conform.Setup{Attributes: via.VIAttributes{MaxTransfer: 64 << 10}, Memory: 2*size + 64}
	x, y := p.Connect(s)
	for _, e := range []*conform.End{x, y} {
		for i := range 2 {
			e.Prepare(t, e.Send[i], 0, size)
			e.Prepare(t, e.Recv[i], size, size)
		}
		for _, d := range e.Recv[:2] {
			must.OK(t, e.VI.PostRecv(d))
		}
	}
	return &pingPong{x: x, y: y}
}

// round sends one message there and one back. A send descriptor is taken back
// in the round after the next: by then the other end has acknowledged it along
// with a message of its own.
func (p *pingPong) round(t testing.TB) {
	i := p.turns & 1
	p.hop(t, p.x, p.y, i)
	p.hop(t, p.y, p.x, i)
	p.turns++
}

// hop sends one message. ci/bench/steps counts its instructions, so it uses no helper.
func (p *pingPong) hop(t testing.TB, from, to *conform.End, i int) {
	if p.turns >= 2 {
		if _, err := take(from.VI.SendDone); err != nil {
			t.Fatal(err)
		}
		from.Send[i].Rearm()
	}
	if err := from.VI.PostSend(from.Send[i]); err != nil {
		t.Fatal(err)
	}
	d, err := take(to.VI.RecvDone)
	if err != nil {
		t.Fatal(err)
	}
	d.Rearm()
	if err := to.VI.PostRecv(d); err != nil {
		t.Fatal(err)
	}
}

// take polls until there is an answer. It is for wires on which something
// always comes.
func take(done func() (*via.Descriptor, error)) (*via.Descriptor, error) {
	for i := 1; ; i++ {
		d, err := done()
		if err != via.ErrNotDone {
			return d, err
		}
		if i%10_000 == 0 { // it comes after a timer
			time.Sleep(100 * time.Microsecond)
		}
	}
}

// cqStream sends batches and takes all completions through CQs.
type cqStream struct {
	x, y     *conform.End
	xcq, ycq *via.CQ
	batch    int
}

func newCQStream(t testing.TB, p *conform.World, size, batch int) *cqStream {
	t.Helper()
	ctx := conform.Context(t)
	s := &cqStream{batch: batch}
	end := func(nic *via.NIC) (*conform.End, *via.CQ) {
		cq := must.Get(nic.CreateCQ(ctx, 2*batch))(t)
		vi := must.Get(nic.CreateVI(ctx, via.VIAttributes{MaxTransfer: 64 << 10, SendDepth: batch, RecvDepth: batch}, cq, cq))(t)
		e := must.Get(conform.Equip(ctx, nic, vi, batch*size, 1))(t)
		for i := range batch {
			e.Prepare(t, e.Send[i], i*size, size)
			e.Prepare(t, e.Recv[i], i*size, size)
		}
		return e, cq
	}
	s.x, s.xcq = end(p.A)
	s.y, s.ycq = end(p.B)
	must.OK(t, conform.ConnectVIs(ctx, s.x.VI, s.y.VI, t.Name()))
	return s
}

// round posts one batch of receives and one of sends, and takes them back.
func (s *cqStream) round(t testing.TB) {
	for i := range s.batch {
		s.x.Send[i].Rearm()
		s.y.Recv[i].Rearm()
	}
	must.Get(s.y.VI.PostRecvBatch(s.y.Recv))(t)
	must.Get(s.x.VI.PostSendBatch(s.x.Send))(t)
	for received, sent := 0, 0; received < s.batch || sent < s.batch; {
		received += s.poll(t, s.ycq, via.RecvQueue)
		sent += s.poll(t, s.xcq, via.SendQueue)
	}
}

func (s *cqStream) poll(t testing.TB, cq *via.CQ, want via.Queue) int {
	c, err := cq.Done()
	if err == via.ErrNotDone {
		return 0
	}
	if err != nil || c.Queue != want {
		t.Fatal(c.Queue, err)
	}
	done := c.VI.SendDone
	if c.Queue == via.RecvQueue {
		done = c.VI.RecvDone
	}
	must.Get(done())(t)
	return 1
}

// bothRound is round that polls both NICs, as those need whose hosts have a
// part in moving frames.
func (p *pingPong) bothRound(t testing.TB) {
	t.Helper()
	i := p.turns & 1
	both := conform.NewWorld(t, p.x.NIC, p.y.NIC)
	for _, e := range [][2]*conform.End{{p.x, p.y}, {p.y, p.x}} {
		from, to := e[0], e[1]
		if p.turns >= 2 {
			both.MustTake(from.VI.SendDone).Rearm()
		}
		must.OK(t, from.VI.PostSend(from.Send[i]))
		d := both.MustTake(to.VI.RecvDone)
		d.Rearm()
		must.OK(t, to.VI.PostRecv(d))
	}
	p.turns++
}
