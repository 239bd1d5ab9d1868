package via_test

import (
	"fmt"
	"testing"
	"time"

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
			if err := e.VI.PostRecv(d); err != nil {
				t.Fatal(err)
			}
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

// stream keeps a window of messages on their way in one direction.
type stream struct {
	x, y                 *conform.End
	window, posted, sent int
	got                  int
}

func newStream(t testing.TB, p *conform.World, size, window int) *stream {
	t.Helper()
	x, y := p.Connect(conform.Setup{
		Attributes: via.VIAttributes{MaxTransfer: 64 << 10, SendDepth: window, RecvDepth: 2 * window},
		Memory:     2 * window * size,
	})
	for i, d := range x.Send {
		x.Prepare(t, d, i*size, size)
	}
	for i, d := range y.Recv {
		if err := y.VI.PostRecv(y.Prepare(t, d, i*size, size)); err != nil {
			t.Fatal(err)
		}
	}
	return &stream{x: x, y: y, window: window}
}

// run sends n messages and returns when all have been received.
func (s *stream) run(t testing.TB, n int) {
	until := s.got + n
	for s.got < until {
		for s.posted < until && s.posted-s.sent < s.window {
			d := s.x.Send[s.posted%s.window]
			d.Rearm()
			if err := s.x.VI.PostSend(d); err != nil {
				t.Fatal(err)
			}
			s.posted++
		}
		for {
			d, err := s.y.VI.RecvDone()
			if err == via.ErrNotDone {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			d.Rearm()
			if err := s.y.VI.PostRecv(d); err != nil {
				t.Fatal(err)
			}
			s.got++
		}
		for s.sent < s.posted {
			_, err := s.x.VI.SendDone()
			if err == via.ErrNotDone {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			s.sent++
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
		cq, err := nic.CreateCQ(ctx, 2*batch)
		if err != nil {
			t.Fatal(err)
		}
		vi, err := nic.CreateVI(ctx, via.VIAttributes{SendDepth: batch, RecvDepth: batch}, cq, cq)
		if err != nil {
			t.Fatal(err)
		}
		e, err := conform.Equip(ctx, nic, vi, batch*size, 1)
		if err != nil {
			t.Fatal(err)
		}
		for i := range batch {
			e.Prepare(t, e.Send[i], i*size, size)
			e.Prepare(t, e.Recv[i], i*size, size)
		}
		return e, cq
	}
	s.x, s.xcq = end(p.A)
	s.y, s.ycq = end(p.B)
	if err := conform.ConnectVIs(ctx, s.x.VI, s.y.VI, t.Name()); err != nil {
		t.Fatal(err)
	}
	return s
}

// round posts one batch of receives and one of sends, and takes them back.
func (s *cqStream) round(t testing.TB) {
	for i := range s.batch {
		s.x.Send[i].Rearm()
		s.y.Recv[i].Rearm()
	}
	if _, err := s.y.VI.PostRecvBatch(s.y.Recv); err != nil {
		t.Fatal(err)
	}
	if _, err := s.x.VI.PostSendBatch(s.x.Send); err != nil {
		t.Fatal(err)
	}
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
	if _, err := done(); err != nil {
		t.Fatal(err)
	}
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
		if err := from.VI.PostSend(from.Send[i]); err != nil {
			t.Fatal(err)
		}
		d := both.MustTake(to.VI.RecvDone)
		d.Rearm()
		if err := to.VI.PostRecv(d); err != nil {
			t.Fatal(err)
		}
	}
	p.turns++
}
