package conform

import (
	"errors"
	"sync"

	"github.com/trapeze-nic/trapeze/via"
)

// testNotifyAgain has a handler ask for the next notice and post. It may call anything.
func testNotifyAgain(w *World) {
	x, y := w.Connect(Setup{})
	again := make(chan error, 2)
	var handler func(d *via.Descriptor, err error)
	handler = func(d *via.Descriptor, err error) {
		if err == nil && len(again) == 0 {
			err = errors.Join(y.VI.NotifyRecv(handler), y.VI.PostRecv(y.Prepare(w, d, 0, 8)))
		}
		again <- err
	}
	OK(w, y.VI.NotifyRecv(handler))
	OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, 8)))
	for range 2 {
		OK(w, x.VI.PostSend(x.Prepare(w, x.Send[0], 0, 8)))
		w.MustTake(x.VI.SendDone)
		w.Until("a handler that posts again", func() bool { return len(again) > 0 })
		OK(w, <-again)
	}
}

// testNotifyDestroyed destroys a VI while another goroutine asks for notices: a handler is called, or never.
func testNotifyDestroyed(w *World) {
	ctx := Context(w)
	for range 20 {
		x, y := w.Connect(Setup{})
		var wg sync.WaitGroup
		wg.Go(func() {
			for range 50 {
				if err := y.VI.NotifyRecv(func(*via.Descriptor, error) {}); err != nil {
					wantError(w, "notice", err, via.ErrClosed)
					return
				}
			}
		})
		OK(w, y.VI.PostRecv(y.Prepare(w, y.Recv[0], 0, 8)))
		OK(w, x.VI.PostSend(x.Prepare(w, x.Send[0], 0, 8)))
		OK(w, y.VI.Disconnect(ctx))
		w.Until("the VI to be destroyed", func() bool {
			_, _ = y.VI.RecvDone()
			err := y.VI.Close(ctx)
			if err != nil && !errors.Is(err, via.ErrResource) && !errors.Is(err, via.ErrInvalidState) {
				w.Error(err)
			}
			return err == nil
		})
		wg.Wait()
		OK(w, x.VI.Disconnect(ctx))
		w.Until("the sender to be empty", func() bool { _, err := x.VI.SendDone(); return err == via.ErrQueueEmpty })
		OK(w, x.VI.Close(ctx))
	}
}
