package driver_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestCloseWhileBusy closes while everything is being called.
func TestCloseWhileBusy(t *testing.T) {
	for range 20 {
		func() {
			d := newFake(t)
			n := open(t, d, driver.Options{})
			r := &rig{d: d, n: n}
			r.m = must.Get(n.Alloc(contextFor(t), 16384, driver.MemoryAttributes{}))(t)
			r.sendCQ = must.Get(n.CreateCQ(contextFor(t), 8))(t)
			r.v = must.Get(n.CreateVI(contextFor(t), driver.VIAttributes{Reliability: datasheet.Unreliable, MaxTransfer: 64, SendDepth: 4, RecvDepth: 4}, r.sendCQ, nil))(t)
			ds := r.descriptors(t, 3)
			must.OK(t, errors.Join(r.v.PostSend(ds[0]), r.v.PostRecv(ds[1])))
			d.with(func() {
				d.answer = func(c *datasheet.Command) (datasheet.Result, bool) {
					return datasheet.ResultSuccess, c.Opcode != datasheet.OpConnectWait
				}
			})
			ctx := contextFor(t)
			var wg sync.WaitGroup
			start := make(chan struct{})
			for name, f := range map[string]func() error{
				"RecvWait":    func() error { _, err := r.v.RecvWait(ctx); return err },
				"CQ.Wait":     func() error { _, err := r.sendCQ.Wait(ctx); return err },
				"ConnectWait": func() error { _, err := n.ConnectWait(ctx, ""); return err },
				"CreatePtag":  func() error { _, err := n.CreatePtag(ctx); return err },
				"CreateVI": func() error {
					_, err := n.CreateVI(ctx, driver.VIAttributes{Reliability: datasheet.Unreliable, MaxTransfer: 64, SendDepth: 1, RecvDepth: 1}, nil, nil)
					return err
				},
				"memory": func() error {
					m, err := n.Alloc(ctx, 4096, driver.MemoryAttributes{})
					if err == nil {
						err = m.Close(ctx)
					}
					return err
				},
				"RecvDone": func() error {
					_, err := r.v.RecvDone()
					if err == descriptors.ErrNotDone {
						err = nil
					}
					return err
				},
				"Health": func() error { _, err := n.Health(ctx); return err },
				"Poll":   func() error { n.Poll(); _, err := n.Clock(); return err },
			} {
				wg.Go(func() {
					<-start
					for {
						// The device has only so many endpoints.
						if err := f(); err != nil && !errors.Is(err, descriptors.ErrResource) {
							should.Fail(t, err, descriptors.ErrClosed, "%s", name)
							return
						}
						if errors.Is(ctx.Err(), context.DeadlineExceeded) {
							t.Errorf("%s never ended", name)
							return
						}
					}
				})
			}
			close(start)
			time.Sleep(2 * time.Millisecond)
			for range 2 {
				wg.Go(func() {
					should.OK(t, n.Close())
				})
			}
			wg.Wait()
		}()
	}
}
