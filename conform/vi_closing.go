package conform

import (
	"context"
	"time"

	"github.com/trapeze-nic/trapeze/via"
)

// testConcurrentClose closes both NICs while goroutines poll and post.
func testConcurrentClose(w *World) {
	ctx, cancel := context.WithCancel(Context(w))
	defer cancel()
	x, y := w.Connect(Setup{})
	running := make(chan error, 4)
	for _, e := range []*End{x, y} {
		for _, q := range []struct {
			post func(*via.Descriptor) error
			done func() (*via.Descriptor, error)
			d    *via.Descriptor
		}{
			{e.VI.PostSend, e.VI.SendDone, e.Send[0]},
			{e.VI.PostRecv, e.VI.RecvDone, e.Recv[0]},
		} {
			go func() {
				// The status of a completed descriptor stays, so that posts of it
				// are refused from then on: nothing here writes to memory that a
				// Close may have unmapped.
				var err error
				for ctx.Err() == nil && !isClosed(err) {
					_ = q.post(q.d)
					_, err = q.done()
				}
				running <- err
			}()
		}
	}
	time.Sleep(10 * time.Millisecond)
	errs := make(chan error, 4)
	for _, nic := range []*via.NIC{w.A, w.B, w.A, w.B} {
		go func() { errs <- nic.Close() }()
	}
	for range 4 {
		OK(w, <-errs)
	}
	for range 4 {
		wantError(w, "poll", <-running, via.ErrClosed)
	}
}
