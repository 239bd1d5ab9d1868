package conform

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

func testBuilder(w *World) {
	ctx := Context(w)
	m := Must(w.A.Alloc(ctx, 8192, via.MemoryAttributes{}))(w)
	limit := w.A.Query().MaxSegments // of data, and RDMA takes one more
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
		wantError(w, c.name, err, c.refuse)
		if c.cause != nil {
			wantError(w, c.name, err, c.cause)
		}
	}
	d := Must(m.NewDescriptor(0, 2))(w)
	for _, c := range []struct {
		name           string
		offset, length int
	}{
		{"negative offset", -1, 1}, {"negative length", 0, -1}, {"past the end", 8000, 193}, {"wraps", 1, int(^uint(0) >> 1)},
	} {
		wantError(w, c.name, m.AddTo(d, c.offset, c.length), via.ErrInvalidParameter)
	}
	OK(w, d.AddData(m.Address(), m.Handle(), 1<<32-1))
	wantError(w, "total over 32 bits", m.AddTo(d, 0, 1), via.ErrInvalidParameter, descriptors.ErrLengthOverflow)
	OK(w, m.AddTo(d, 0, 0))
	wantError(w, "no room for a segment", m.AddTo(d, 0, 0), via.ErrInvalidParameter, descriptors.ErrTooManySegments)
	if len(d.Segments()) != 2 || d.Length() != 1<<32-1 {
		w.Errorf("refused segments were added: %d, %d bytes", len(d.Segments()), d.Length())
	}

	vi := Must(w.A.CreateVI(ctx, via.VIAttributes{}, nil, nil))(w)
	for _, c := range [][2]int{{0, 1}, {-1, 1}, {1, limit + 2}, {1, -1}, {1 << 60, 1}} {
		_, err := vi.NewDescriptors(ctx, c[0], c[1])
		wantError(w, "new descriptors", err, via.ErrInvalidParameter)
	}
}

// testForged changes descriptors behind the builder's back, as a hostile
// program would.
func testForged(w *World) {
	bystanderA, bystanderB := w.Connect(Setup{})
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
			w.part(level.String()+"/"+c.name, func(w *World) {
				x, y := w.Connect(Setup{Attributes: via.VIAttributes{Reliability: level}, Segments: 2})
				OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, 1000)))
				d := x.Prepare(w, x.Send[0], 0, 100)
				OK(w, x.Memory.AddTo(d, 200, 100))
				c.forge(d)
				OK(w, x.VI.PostSend(d))
				d, err := w.Take(x.VI.SendDone)
				wantStatus(w, "send", d, err, c.want)
				wantBroken(w, x, y, level)
			})
		}
	}
	x, y := w.Connect(Setup{})
	d := x.Prepare(w, x.Send[0], 0, 10)
	d.Control().StoreStatus(datasheet.StatusDone)
	wantError(w, "descriptor that is done already", x.VI.PostSend(d), via.ErrInvalidParameter)
	exchange(w, x, y, 10, 1)
	exchange(w, bystanderA, bystanderB, 1000, 1)
}

func testLength(w *World) {
	for _, level := range []via.Reliability{via.ReliableDelivery, via.Unreliable} {
		w.part(level.String(), func(w *World) {
			s := Setup{Attributes: via.VIAttributes{Reliability: level, MaxTransfer: 1000}}
			x, y := w.Connect(s)
			OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, 2000)))
			OK(w, x.VI.PostSend(x.Prepare(w, x.Send[0], 0, 1001)))
			d, err := w.Take(x.VI.SendDone)
			wantStatus(w, "send over the maximum transfer size", d, err, via.StatusLengthError)
			wantBroken(w, x, y, level)

			x, y = w.Connect(s)
			OK(w, x.VI.PostRecv(x.Prepare(w, x.Recv[0], 0, 99)))
			d, err = receiveSome(w, y, x)
			wantStatus(w, "receive too small", d, err, via.StatusLengthError)
			if level == via.ReliableDelivery {
				d, err = w.Take(y.VI.SendDone)
				wantStatus(w, "send into a receive too small", d, err, via.StatusRemoteDescriptor)
			}
			wantBroken(w, x, y, level)
		})
	}
	w.part("receive queue empty", func(w *World) {
		dropped := make(chan via.AsyncError, 1)
		w.B.OnError(func(e via.AsyncError) {
			if e.Code == via.AsyncReceiveQueueEmpty {
				select {
				case dropped <- e:
				default: // one is enough
				}
			}
		})
		x, y := w.Connect(Setup{Attributes: via.VIAttributes{Reliability: via.Unreliable}})
		w.Until("the asynchronous error", func() bool {
			OK(w, x.VI.PostSend(x.Prepare(w, x.Send[0], 0, 100)))
			w.MustTake(x.VI.SendDone)
			select {
			case e := <-dropped:
				if e.VI != y.VI {
					w.Error("the error names the wrong VI")
				}
				return true
			default:
				return false
			}
		})
		wantState(w, y.VI, via.Connected)
	})
}

// testPostedOnce posts descriptors that are posted already, or another VI's: the post
// is refused and changes nothing, for as long as the descriptor is outstanding.
func testPostedOnce(w *World) {
	ctx := Context(w)
	x, y := w.Connect(Setup{})
	other := NewEnd(w, w.B, Setup{})
	free := Must(y.Memory.NewDescriptor(32<<10, 1))(w) // no memory's
	refused := func(what string, d *via.Descriptor, posts ...func(*via.Descriptor) error) {
		w.Helper()
		for _, post := range posts {
			wantError(w, what, post(d), via.ErrInvalidParameter)
		}
	}
	everywhere := []func(*via.Descriptor) error{y.VI.PostRecv, y.VI.PostSend, other.VI.PostRecv, other.VI.PostSend}
	queued := func(sends, receives int) {
		w.Helper()
		s := Must(y.VI.Query(ctx))(w)
		o := Must(other.VI.Query(ctx))(w)
		if s.SendQueued != sends || s.RecvQueued != receives || o.SendQueued+o.RecvQueued != 0 {
			w.Errorf("%d sends and %d receives are queued, want %d and %d; %d on the other VI",
				s.SendQueued, s.RecvQueued, sends, receives, o.SendQueued+o.RecvQueued)
		}
	}

	OK(w, y.VI.PostRecv(y.Prepare(w, free, 0, 64)))
	refused("posted", free, everywhere...)
	n, err := y.VI.PostRecvBatch([]*via.Descriptor{y.Prepare(w, y.Recv[0], 64, 64), free, y.Recv[1]})
	wantError(w, "posted, in a batch", err, via.ErrInvalidParameter)
	if n != 1 {
		w.Errorf("%d of a batch were posted, want 1", n)
	}
	n, err = y.VI.PostRecvBatch([]*via.Descriptor{y.Prepare(w, y.Recv[1], 128, 64), y.Recv[1]})
	wantError(w, "twice in a batch", err, via.ErrInvalidParameter)
	if n != 1 {
		w.Errorf("%d of a batch were posted, want 1", n)
	}
	queued(0, 3)
	refused("another VI's", y.Send[0], other.VI.PostSend, other.VI.PostRecv)

	// It has completed and was not taken back, and is made to look new.
	for i := range 3 {
		OK(w, x.VI.PostSend(x.Prepare(w, x.Send[i], 0, 8)))
	}
	w.Until("completion", func() bool { return free.Status().Done() })
	free.Rearm()
	refused("completed and not taken back", free, everywhere...)
	queued(0, 3)
}

// testPostedByMany has goroutines post one descriptor to several queues: one of them
// gets it.
func testPostedByMany(w *World) {
	a, b := NewEnd(w, w.A, Setup{}), NewEnd(w, w.A, Setup{})
	d := Must(a.Memory.NewDescriptor(0, 0))(w)
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
					w.Error(err)
				}
			})
		}
		all.Wait()
		if n := posted.Load(); n != 1 {
			w.Fatalf("posted %d times", n)
		}
		for _, e := range []*End{a, b} {
			OK(w, e.VI.Disconnect(Context(w)))
			if got, err := w.Take(e.VI.RecvDone); err != via.ErrQueueEmpty {
				wantStatus(w, "flushed", got, err, via.StatusFlushed)
			}
		}
	}
}
