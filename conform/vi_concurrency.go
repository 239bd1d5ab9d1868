package conform

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/trapeze-nic/trapeze/via"
)

// stream sends n messages, up to window at a time, each of which says its
// number.
func stream(ctx context.Context, e *End, n, window, size int) error {
	for i := range n {
		if i >= window {
			if _, err := e.VI.SendWait(ctx); err != nil {
				return fmt.Errorf("send %d: %w", i-window, err)
			}
		}
		slot := i % window
		d := e.Send[slot]
		d.Prepare()
		pattern(e.Memory.Bytes()[slot*size:(slot+1)*size], uint64(i))
		d.SetImmediate(uint32(i))
		if err := errors.Join(e.Memory.AddTo(d, slot*size, size), e.VI.PostSend(d)); err != nil {
			return err
		}
	}
	for range min(n, window) {
		if _, err := e.VI.SendWait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// drain receives what stream sends; its memory lies behind that of the sends.
func drain(ctx context.Context, e *End, n, window, size int) error {
	base := window * size
	post := func(slot int) error {
		d := e.Recv[slot]
		d.Prepare()
		return errors.Join(e.Memory.AddTo(d, base+slot*size, size), e.VI.PostRecv(d))
	}
	for i := range min(n, window) {
		if err := post(i); err != nil {
			return err
		}
	}
	want := make([]byte, size)
	for i := range n {
		d, err := e.VI.RecvWait(ctx)
		if err != nil {
			return fmt.Errorf("receive %d: %w", i, err)
		}
		slot := i % window
		pattern(want, uint64(i))
		if v, ok := d.Immediate(); !ok || v != uint32(i) || d != e.Recv[slot] ||
			!bytes.Equal(e.Memory.Bytes()[base+slot*size:base+(slot+1)*size], want) {
			return fmt.Errorf("message %d arrived as number %d, or changed", v, i)
		}
		if i+window < n {
			if err := post(slot); err != nil {
				return err
			}
		}
	}
	return nil
}

// testConcurrentVIs streams both ways over several VIs of the same two NICs, with a
// goroutine for each queue, while VIs are made and destroyed beside them.
func testConcurrentVIs(w *World) {
	const vis, messages, window, size = 4, 60, 8, 2000
	ctx := Context(w)
	var wg sync.WaitGroup
	run := func(what string, f func() error) {
		wg.Go(func() {
			if err := f(); err != nil {
				w.Errorf("%s: %v", what, err)
			}
		})
	}
	for i := range vis {
		x, y := w.Connect(Setup{})
		for _, e := range []*End{x, y} {
			run(fmt.Sprintf("sender %d", i), func() error { return stream(ctx, e, messages, window, size) })
			run(fmt.Sprintf("receiver %d", i), func() error { return drain(ctx, e, messages, window, size) })
		}
	}
	for _, nic := range []*via.NIC{w.A, w.B} {
		run("creator", func() error {
			for range 10 {
				vi, err := nic.CreateVI(ctx, via.VIAttributes{}, nil, nil)
				if err != nil {
					return err
				}
				if _, err := vi.NewDescriptors(ctx, 4, 1); err != nil {
					return err
				}
				if err := vi.Close(ctx); err != nil {
					return err
				}
			}
			return nil
		})
	}
	wg.Wait()
}
