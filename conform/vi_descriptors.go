package conform

import (
	"errors"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/via"
)

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
