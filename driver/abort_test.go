package driver_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestContextEndsBeforeCommand: nothing is given to the device.
func TestContextEndsBeforeCommand(t *testing.T) {
	checkLeaks(t)
	d := newFake(t)
	n := openFake(t, d)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	before := d.get(datasheet.AdminOffset + datasheet.RegSQProducer)
	for name, f := range map[string]func() error{
		"ptag":   func() error { _, err := n.CreatePtag(ctx); return err },
		"memory": func() error { _, err := n.AllocMemory(ctx, 100, driver.MemoryAttributes{}); return err },
		"CQ":     func() error { _, err := n.CreateCQ(ctx, 4); return err },
		"VI": func() error {
			_, err := n.CreateVI(ctx, driver.VIAttributes{SendDepth: 1, RecvDepth: 1}, nil, nil)
			return err
		},
		"connect": func() error { _, err := n.ConnectWait(ctx, ""); return err },
		"health":  func() error { _, err := n.Health(ctx); return err },
	} {
		if err := f(); !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", name, err)
		}
	}
	d.with(func() {
		if after := d.get(datasheet.AdminOffset + datasheet.RegSQProducer); after != before || len(d.dma) != 1 {
			t.Errorf("%d commands given, %d DMA mappings", after-before, len(d.dma))
		}
	})
}

// TestAbort: a context that ends while the network is waited for.
func TestAbort(t *testing.T) {
	checkLeaks(t)
	d := newFake(t)
	n := openFake(t, d)
	var aborted []uint16
	d.with(func() {
		d.answer = func(c *datasheet.Command) (datasheet.Result, bool) {
			switch c.Opcode {
			case datasheet.OpConnectWait:
				return 0, false
			case datasheet.OpAbort:
				id := datasheet.Body[datasheet.AbortBody](c).ID
				aborted = append(aborted, id)
				for _, u := range d.admin.unanswered {
					if u.ID == id {
						d.reply(&u, datasheet.ResultAborted)
					}
				}
			}
			return datasheet.ResultSuccess, true
		}
	})
	for name, c := range map[string]struct {
		end  func() (context.Context, context.CancelFunc)
		want error
	}{
		"cancel": {func() (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(5*time.Millisecond, cancel)
			return ctx, cancel
		}, context.Canceled},
		"deadline": {func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), 5*time.Millisecond)
		}, context.DeadlineExceeded},
	} {
		ctx, cancel := c.end()
		_, err := n.ConnectWait(ctx, "here")
		cancel()
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	d.with(func() {
		if len(aborted) != 2 || len(d.admin.unanswered) != 2 || d.admin.unanswered[0].ID != aborted[0] {
			t.Errorf("aborted %v", aborted)
		}
		w := datasheet.Body[datasheet.ConnectWaitBody](&d.admin.unanswered[0])
		if w.TimeoutMS == 0 || w.Local.Len != 4 || string(w.Local.Data[:4]) != "here" {
			t.Errorf("command %+v", w)
		}
	})
}

// TestAbortTooLate: the connection came between the context's end and the
// ABORT, so it is handed out.
func TestAbortTooLate(t *testing.T) {
	checkLeaks(t)
	d := newFake(t)
	n := openFake(t, d)
	d.with(func() {
		d.answer = func(c *datasheet.Command) (datasheet.Result, bool) {
			if c.Opcode == datasheet.OpConnectWait {
				return 0, false
			}
			if c.Opcode == datasheet.OpAbort {
				d.reply(&d.admin.unanswered[0], datasheet.ResultSuccess)
				return datasheet.ResultInvalidParameter, true
			}
			return datasheet.ResultSuccess, true
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Millisecond)
	defer cancel()
	c, err := n.ConnectWait(ctx, "")
	if err != nil || c == nil {
		t.Errorf("%v, %v", c, err)
	}
}

// TestManyWaiters: those who wait for clients do not keep others from working.
func TestManyWaiters(t *testing.T) {
	checkLeaks(t)
	d := newFake(t)
	n := openFake(t, d)
	d.with(func() {
		d.answer = func(c *datasheet.Command) (datasheet.Result, bool) {
			if c.Opcode == datasheet.OpAbort {
				id := datasheet.Body[datasheet.AbortBody](c).ID
				for _, u := range d.admin.unanswered {
					if u.ID == id {
						d.reply(&u, datasheet.ResultAborted)
					}
				}
			}
			return datasheet.ResultSuccess, c.Opcode != datasheet.OpConnectWait
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	var wg sync.WaitGroup
	for range 300 { // more than the driver has room for
		wg.Go(func() {
			if _, err := n.ConnectWait(ctx, ""); !errors.Is(err, context.Canceled) {
				t.Error(err)
			}
		})
	}
	waittest.Until(t, "the device has many", func() bool {
		d.mu.Lock()
		defer d.mu.Unlock()
		return len(d.admin.unanswered) >= 256
	})
	if _, err := n.CreatePtag(contextFor(t)); err != nil {
		t.Error(err)
	}
	cancel()
	wg.Wait()
}

// TestHostileDiscriminator: a length that reaches past the entry.
func TestHostileDiscriminator(t *testing.T) {
	checkLeaks(t)
	d := newFake(t)
	n := openFake(t, d)
	d.with(func() {
		d.tamper = func(e *datasheet.AdminEntry) { datasheet.Reply[datasheet.ConnectionReply](e).Remote.Len = 200 }
	})
	if _, err := n.ConnectWait(contextFor(t), ""); !errors.Is(err, driver.ErrProtocol) {
		t.Error(err)
	}
}
