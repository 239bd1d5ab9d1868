package via_test

import (
	"errors"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/via"
)

// TestConnCloseInUse closes a connection while others send, receive and give back:
// they end with ErrClosed, and touch nothing that Close has freed.
func TestConnCloseInUse(t *testing.T) {
	const large = 1 << 20
	da, db := must.Two(emulator.Pair(emulator.PairOptions{Threads: true}))(t)
	na, nb := nicOf(t, da), nicOf(t, db)
	for round := range soak.Count(10, 30) {
		a, b := connect(t, na, nb, via.ConnOptions{MaxMessage: large, SendDepth: 2, RecvDepth: 2})
		ctx := conform.Context(t)
		var all sync.WaitGroup
		send := func(c *via.Conn) {
			p := make([]byte, large)
			for {
				if err := c.Send(ctx, p); err != nil {
					if !errors.Is(err, via.ErrClosed) && c == a {
						t.Errorf("send: %v", err)
					}
					return
				}
			}
		}
		receive := func(c *via.Conn) {
			for {
				_, err := c.Receive(ctx)
				if err == nil {
					err = c.Release()
				}
				if err != nil {
					if !errors.Is(err, via.ErrClosed) && c == a {
						t.Errorf("receive: %v", err)
					}
					return
				}
			}
		}
		for _, c := range []*via.Conn{a, b} {
			all.Go(func() { send(c) })
			all.Go(func() { receive(c) })
		}
		time.Sleep(time.Duration(round%10) * 300 * time.Microsecond)
		should.OK(t, a.Close())
		all.Wait()
		_ = b.Close() // it may have been cut off
	}
}

// TestConnOfClosedNIC: the NIC takes the memory of its connections with it. Their calls end with ErrClosed
// and touch none of it.
func TestConnOfClosedNIC(t *testing.T) {
	for _, o := range []via.ConnOptions{{}, {MaxMessage: 64}, {Reliability: via.Unreliable}} {
		for _, threads := range []bool{false, true} {
			da, db := must.Two(emulator.Pair(emulator.PairOptions{Threads: threads}))(t)
			na, nb := nicOf(t, da), nicOf(t, db)
			a, b := connect(t, na, nb, o)
			ctx := conform.Context(t)
			for range 2 {
				must.OK(t, b.Send(ctx, []byte("for a NIC that is closed")))
			}
			must.Get(a.Receive(ctx))(t)
			if !threads { // else one is lent
				must.OK(t, a.Release())
			}
			must.OK(t, na.Close())
			for name, do := range map[string]func() error{
				"send":    func() error { return a.Send(ctx, []byte("x")) },
				"acquire": func() error { _, err := a.TryAcquire(); return err },
				"post":    func() error { return a.Post(1) },
				"flush":   func() error { return a.Flush(ctx) },
				"receive": func() error {
					if threads {
						return a.Release()
					}
					_, err := a.Receive(ctx)
					return err
				},
				"close send": func() error {
					err := a.CloseSend(ctx)
					if o.Reliability == via.Unreliable && errors.Is(err, via.ErrNotSupported) {
						return net.ErrClosed
					}
					return err
				},
			} {
				should.Fail(t, do(), net.ErrClosed, "%+v, threads %v: %s", o, threads, name)
			}
			if err := errors.Join(a.Close(), a.Close()); err != nil {
				t.Errorf("%+v, threads %v: close: %v", o, threads, err)
			}
			if _, err := b.Receive(ctx); err == nil && o.Reliability != via.Unreliable {
				t.Errorf("%+v, threads %v: the other side received", o, threads)
			}
			if err := b.Close(); err != nil {
				t.Logf("the other side: %v", err)
			}
		}
	}
}
