package via_test

import (
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/conform"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/via"
)

// TestConnCloseInUse closes a connection while others send, receive and give back:
// they end with ErrClosed, and touch nothing that Close has freed.
func TestConnCloseInUse(t *testing.T) {
	const large, rounds = 1 << 20, 30
	da, db, err := emulator.Pair(emulator.PairOptions{Threads: true})
	if err != nil {
		t.Fatal(err)
	}
	na, nb := nicOf(t, da), nicOf(t, db)
	for round := range rounds {
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
		if err := a.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		all.Wait()
		_ = b.Close() // it may have been cut off
	}
}
