package viatest

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/via"
)

func testBuilder(t T, p *Pair) {
	ctx := Context(t)
	m := Must(p.A.Alloc(ctx, 8192, via.MemoryAttributes{}))(t)
	limit := p.A.Query().MaxSegments // of data, and RDMA takes one more
	for _, c := range []struct {
		name          string
		offset, n     int
		cause, refuse error
	}{
		{"misaligned", 32, 1, descriptors.ErrMisaligned, via.ErrInvalidParameter},
		{"truncated", 8192 - 64, 3, descriptors.ErrTooSmall, via.ErrInvalidParameter},
		{"no room at all", 8192, 0, descriptors.ErrTooSmall, via.ErrInvalidParameter},
		{"negative offset", -64, 1, nil, via.ErrInvalidParameter},
		{"outside", 1 << 40, 1, nil, via.ErrInvalidParameter},
		{"too many segments", 0, limit + 2, nil, via.ErrInvalidParameter},
		{"negative segments", 0, -1, nil, via.ErrInvalidParameter},
	} {
		_, err := m.NewDescriptor(c.offset, c.n)
		WantError(t, c.name, err, c.refuse)
		if c.cause != nil {
			WantError(t, c.name, err, c.cause)
		}
	}
	d := Must(m.NewDescriptor(0, 2))(t)
	for _, c := range []struct {
		name           string
		offset, length int
	}{
		{"negative offset", -1, 1}, {"negative length", 0, -1}, {"past the end", 8000, 193}, {"wraps", 1, int(^uint(0) >> 1)},
	} {
		WantError(t, c.name, m.AddTo(d, c.offset, c.length), via.ErrInvalidParameter)
	}
	OK(t, d.AddData(m.Address(), m.Handle(), 1<<32-1))
	WantError(t, "total over 32 bits", m.AddTo(d, 0, 1), via.ErrInvalidParameter, descriptors.ErrLengthOverflow)
	OK(t, m.AddTo(d, 0, 0))
	WantError(t, "no room for a segment", m.AddTo(d, 0, 0), via.ErrInvalidParameter, descriptors.ErrTooManySegments)
	if len(d.Segments()) != 2 || d.Length() != 1<<32-1 {
		t.Errorf("refused segments were added: %d, %d bytes", len(d.Segments()), d.Length())
	}

	vi := Must(p.A.CreateVI(ctx, via.VIAttributes{}, nil, nil))(t)
	for _, c := range [][2]int{{0, 1}, {-1, 1}, {1, limit + 2}, {1, -1}, {1 << 60, 1}} {
		_, err := vi.NewDescriptors(ctx, c[0], c[1])
		WantError(t, "new descriptors", err, via.ErrInvalidParameter)
	}
}

// testForged changes descriptors behind the builder's back, as a hostile
// program would.
func testForged(t T, p *Pair) {
	bystanderA, bystanderB := p.Connect(t, Setup{})
	cases := []struct {
		name  string
		forge func(d *via.Descriptor)
		want  via.Status
	}{
		{"more segments than the NIC takes", func(d *via.Descriptor) { d.Control().SegCount = 60000 }, via.StatusFormatError},
		{"reserved control bits", func(d *via.Descriptor) { d.Control().Control |= 0x8000 }, via.StatusFormatError},
		{"reserved operation", func(d *via.Descriptor) { d.Control().Control |= 3 }, via.StatusFormatError},
		{"length less than the segments", func(d *via.Descriptor) { d.Control().Length-- }, 0},
		{"length more than the segments", func(d *via.Descriptor) { d.Control().Length++ }, 0},
		{"segment of nearly 4 GiB", func(d *via.Descriptor) { d.Segments()[0].Length = 1<<32 - 1 }, 0},
		{"two segments that wrap to the length", func(d *via.Descriptor) {
			d.Segments()[0].Length, d.Segments()[1].Length = 1<<31, 1<<31
			d.Control().Length = 0
		}, 0},
	}
	for _, level := range []via.Reliability{via.ReliableDelivery, via.Unreliable} {
		for _, c := range cases {
			subtest(t, level.String()+"/"+c.name, func(t T) {
				x, y := p.Connect(t, Setup{Attributes: via.VIAttributes{Reliability: level}, Segments: 2})
				OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 1000)))
				d := x.Prepare(t, x.Send[0], 0, 100)
				OK(t, x.Memory.AddTo(d, 200, 100))
				c.forge(d)
				OK(t, x.VI.PostSend(d))
				d, err := p.Take(t, x.VI.SendDone)
				wantStatus(t, "send", d, err, c.want)
				wantBroken(t, p, x, y, level)
			})
		}
	}
	x, y := p.Connect(t, Setup{})
	d := x.Prepare(t, x.Send[0], 0, 10)
	d.Control().StoreStatus(descriptors.StatusDone)
	WantError(t, "descriptor that is done already", x.VI.PostSend(d), via.ErrInvalidParameter)
	exchange(t, p, x, y, 10, 1)
	exchange(t, p, bystanderA, bystanderB, 1000, 1)
}

func testLength(t T, p *Pair) {
	for _, level := range []via.Reliability{via.ReliableDelivery, via.Unreliable} {
		subtest(t, level.String(), func(t T) {
			s := Setup{Attributes: via.VIAttributes{Reliability: level, MaxTransfer: 1000}}
			x, y := p.Connect(t, s)
			OK(t, y.VI.PostRecv(y.Prepare(t, y.Recv[0], 0, 2000)))
			OK(t, x.VI.PostSend(x.Prepare(t, x.Send[0], 0, 1001)))
			d, err := p.Take(t, x.VI.SendDone)
			wantStatus(t, "send over the maximum transfer size", d, err, via.StatusLengthError)
			wantBroken(t, p, x, y, level)

			x, y = p.Connect(t, s)
			OK(t, x.VI.PostRecv(x.Prepare(t, x.Recv[0], 0, 99)))
			d, err = receiveSome(t, p, y, x)
			wantStatus(t, "receive too small", d, err, via.StatusLengthError)
			if level == via.ReliableDelivery {
				d, err = p.Take(t, y.VI.SendDone)
				wantStatus(t, "send into a receive too small", d, err, via.StatusRemoteDescriptor)
			}
			wantBroken(t, p, x, y, level)
		})
	}
	subtest(t, "receive queue empty", func(t T) {
		dropped := make(chan via.AsyncError, 1)
		p.B.OnError(func(e via.AsyncError) {
			if e.Code == via.AsyncReceiveQueueEmpty {
				select {
				case dropped <- e:
				default: // one is enough
				}
			}
		})
		x, y := p.Connect(t, Setup{Attributes: via.VIAttributes{Reliability: via.Unreliable}})
		p.Until(t, "the asynchronous error", func() bool {
			OK(t, x.VI.PostSend(x.Prepare(t, x.Send[0], 0, 100)))
			p.MustTake(t, x.VI.SendDone)
			select {
			case e := <-dropped:
				if e.VI != y.VI {
					t.Error("the error names the wrong VI")
				}
				return true
			default:
				return false
			}
		})
		wantState(t, y.VI, via.Connected)
	})
}

// testPostedOnce posts descriptors that are posted already, or another VI's: the post
// is refused and changes nothing, for as long as the descriptor is outstanding.
func testPostedOnce(t T, p *Pair) {
	ctx := Context(t)
	x, y := p.Connect(t, Setup{})
	other := NewEnd(t, p.B, Setup{})
	free := Must(y.Memory.NewDescriptor(32<<10, 1))(t) // nobody's
	refused := func(what string, d *via.Descriptor, posts ...func(*via.Descriptor) error) {
		t.Helper()
		for _, post := range posts {
			WantError(t, what, post(d), via.ErrInvalidParameter)
		}
	}
	everywhere := []func(*via.Descriptor) error{y.VI.PostRecv, y.VI.PostSend, other.VI.PostRecv, other.VI.PostSend}
	queued := func(sends, receives int) {
		t.Helper()
		s := Must(y.VI.Query(ctx))(t)
		o := Must(other.VI.Query(ctx))(t)
		if s.SendQueued != sends || s.RecvQueued != receives || o.SendQueued+o.RecvQueued != 0 {
			t.Errorf("%d sends and %d receives are queued, want %d and %d; %d on the other VI",
				s.SendQueued, s.RecvQueued, sends, receives, o.SendQueued+o.RecvQueued)
		}
	}

	OK(t, y.VI.PostRecv(y.Prepare(t, free, 0, 64)))
	refused("posted", free, everywhere...)
	n, err := y.VI.PostRecvBatch([]*via.Descriptor{y.Prepare(t, y.Recv[0], 64, 64), free, y.Recv[1]})
	WantError(t, "posted, in a batch", err, via.ErrInvalidParameter)
	if n != 1 {
		t.Errorf("%d of a batch were posted, want 1", n)
	}
	n, err = y.VI.PostRecvBatch([]*via.Descriptor{y.Prepare(t, y.Recv[1], 128, 64), y.Recv[1]})
	WantError(t, "twice in a batch", err, via.ErrInvalidParameter)
	if n != 1 {
		t.Errorf("%d of a batch were posted, want 1", n)
	}
	queued(0, 3)
	refused("another VI's", y.Send[0], other.VI.PostSend, other.VI.PostRecv)

	// It has completed and was not taken back, and is made to look new.
	for i := range 3 {
		OK(t, x.VI.PostSend(x.Prepare(t, x.Send[i], 0, 8)))
	}
	p.Until(t, "completion", func() bool { return free.Status().Done() })
	free.Rearm()
	refused("completed and not taken back", free, everywhere...)
	queued(0, 3)
}

// testPostedByMany has goroutines post one descriptor to several queues: one of them
// gets it.
func testPostedByMany(t T, p *Pair) {
	a, b := NewEnd(t, p.A, Setup{}), NewEnd(t, p.A, Setup{})
	d := Must(a.Memory.NewDescriptor(0, 0))(t)
	posts := []func(*via.Descriptor) error{a.VI.PostRecv, a.VI.PostRecv, b.VI.PostRecv, b.VI.PostRecv}
	for range 50 {
		d.Prepare()
		var posted atomic.Int32
		var all sync.WaitGroup
		for _, post := range posts {
			all.Go(func() {
				switch err := post(d); {
				case err == nil:
					posted.Add(1)
				case !errors.Is(err, via.ErrInvalidParameter):
					t.Error(err)
				}
			})
		}
		all.Wait()
		if n := posted.Load(); n != 1 {
			t.Fatalf("posted %d times", n)
		}
		for _, e := range []*End{a, b} {
			OK(t, e.VI.Disconnect(Context(t)))
			if got, err := p.Take(t, e.VI.RecvDone); err != via.ErrQueueEmpty {
				wantStatus(t, "flushed", got, err, via.StatusFlushed)
			}
		}
	}
}
