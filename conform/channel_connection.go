package conform

import (
	"context"
	"errors"
	"fmt"
	"net"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/via"
)

// testChannelWaits waits for messages that come, and for some that do not.
func testChannelWaits(w *World) {
	x, y := w.channels(channel.Options{})
	short, cancel := context.WithTimeout(w.Context(), 10*time.Millisecond)
	defer cancel()
	_, err := y.Wait(short)
	wantError(w, "nothing comes", err, context.DeadlineExceeded, via.ErrTimeout)
	OK(w, x.Flush(Context(w))) // nothing is under way
	var none context.Context
	_, err = y.Wait(none)
	wantError(w, "no context", err, via.ErrInvalidParameter)
	for range 3 {
		want := w.words(4)
		stop := x.SendPages().Put(0, want)
		w.try("a message that is waited for", len(want)/channel.Word, func() bool {
			under, cancel := w.under()
			defer cancel()
			sent := make(chan error, 1)
			go func() {
				time.Sleep(5 * time.Millisecond) // so long that who waits sleeps
				sent <- errors.Join(x.Send(channel.High, 0, stop), x.Flush(under))
			}()
			m, err := y.Wait(under)
			if serr := <-sent; serr != nil && !errors.Is(serr, context.Canceled) {
				w.Fatal(serr)
			}
			if err != nil || m.Err != nil {
				return false
			}
			if got := readPDU(y, m); numberOf(got) != numberOf(want) && !w.losing.Load() {
				w.Errorf("message %d, want %d", numberOf(got), numberOf(want))
			}
			w.releasePDU(y, m)
			return true
		})
	}
}

// untilOver waits for how the connection of c ends, while messages of before may still come.
func (w *World) untilOver(c *channel.Channel) (err error) {
	w.Helper()
	w.Until("the end of the connection", func() bool {
		for {
			if _, err = c.Poll(); err != nil {
				return err != via.ErrNotDone
			}
		}
	})
	return err
}

// wantOver: the connection has ended, one way or another.
func (w *World) wantOver(what string, err error) {
	w.Helper()
	wantError(w, what, err)
	if !errors.Is(err, via.ErrDisconnected) && !errors.Is(err, via.ErrPeerLost) && !errors.Is(err, via.ErrConnectionBroken) {
		w.Errorf("%s: error %v", what, err)
	}
}

// testChannelLast closes channels as soon as Flush says that all has left. The other end, which waits,
// takes all of it and then learns of the end.
func testChannelLast(w *World) {
	for range 8 {
		x, y := w.channels(channel.Options{})
		lengths := []int{1, 400, 2, 300}
		taken := make(chan error, 1)
		go func() {
			for i := 0; ; i++ {
				m, err := y.Wait(Context(w))
				switch {
				case err != nil && (i == len(lengths) || w.lost()):
					taken <- err
					return
				case err != nil || i == len(lengths) || (m.Err != nil || m.Length != lengths[i]*channel.Word) && !w.lost():
					taken <- fmt.Errorf("message %d: %+v, %v", i, m, err)
					return
				}
			}
		}()
		for _, n := range lengths {
			w.sendWords(x, channel.Low, 0, n)
		}
		OK(w, x.Flush(Context(w)))
		OK(w, x.Close())
		w.wantOver("the last messages have come", <-taken)
		OK(w, y.Close())
	}
}

// testChannelPeerGone takes the NIC at the other end away: who waits is told.
func testChannelPeerGone(w *World) {
	x, y := w.channels(channel.Options{})
	clients, servers := w.Channels(1, channel.Options{}, channel.Options{})
	waits := make(chan error, 2)
	for _, c := range []*channel.Channel{x, y} {
		go func() {
			_, err := c.Wait(Context(w))
			waits <- err
		}()
	}
	w.sendWords(clients[0], channel.Low, 0, 1000)
	OK(w, w.B.Close())
	// Either the one on the closed NIC is first or its peer.
	for range 2 {
		if err := <-waits; errors.Is(err, net.ErrClosed) {
			wantError(w, "wait on a closed NIC", err)
		} else {
			w.wantOver("wait for a NIC that has gone", err)
		}
	}
	w.wantOver("a message to a NIC that has gone", w.untilOver(clients[0]))
	OK(w, clients[0].Flush(Context(w)))
	_, err := servers[0].Poll()
	wantError(w, "poll on a closed NIC", err, net.ErrClosed)
	wantError(w, "send on a closed NIC", y.Send(channel.High, 0, 1), net.ErrClosed)
	for _, c := range []*channel.Channel{x, clients[0]} {
		OK(w, c.Close())
	}
}
