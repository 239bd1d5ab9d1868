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

// testChannelConnection connects what does not fit together, and asks for what there is not.
func testChannelConnection(w *World) {
	ctx := Context(w)
	l := Must(channel.Listen(w.B, "channels", channel.Options{PageSize: 4096}))(w)
	_, err := channel.Dial(ctx, w.A, l.Address().String(), channel.Options{PageSize: 8192})
	wantError(w, "pages of another size", err, via.ErrReject)
	// A VI finds no VI there.
	_, err = via.Dial(ctx, w.A, l.Address().String(), via.ConnOptions{})
	wantError(w, "a VI", err, via.ErrReject)
	var none context.Context
	_, err = l.Accept(none)
	wantError(w, "no context", err, via.ErrInvalidParameter)
	OK(w, l.Close())
	_, err = l.Accept(ctx)
	wantError(w, "accept after the end", err, net.ErrClosed)
	OK(w, l.Close()) // again

	for _, size := range []int{-1, 1, 2048, 4097, 6144, 32768} {
		_, err := channel.Dial(ctx, w.A, l.Address().String(), channel.Options{PageSize: size})
		wantError(w, "a size that is none", err, via.ErrInvalidParameter)
		_, err = channel.NewPages(ctx, w.A, size, via.MemoryAttributes{})
		wantError(w, "pages of no size", err, via.ErrInvalidParameter)
	}
	_, err = channel.Listen(w.B, string(make([]byte, via.MaxDiscriminator+1)), channel.Options{})
	wantError(w, "a long name", err, via.ErrInvalidParameter)

	// Nothing listens there, and until the time is up a listener may still come.
	short, cancel := context.WithTimeout(w.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = channel.Dial(short, w.A, via.Address{MAC: w.B.Query().Address, Discriminator: "nobody"}.String(), channel.Options{})
	wantError(w, "no listener", err, via.ErrTimeout)

	// What the client has is good for a server without choices.
	for _, size := range pageSizes {
		clients, servers := w.Channels(1, channel.Options{PageSize: size}, channel.Options{})
		x, y := clients[0], servers[0]
		if x.RecvPages().PageSize() != size || y.RecvPages().PageSize() != size || y.SendPages().PageSize() != size {
			w.Errorf("pages of %d bytes: the server has %d and %d", size, y.SendPages().PageSize(), y.RecvPages().PageSize())
		}
		if x.RemoteAddress().MAC != w.B.Query().Address || y.RemoteAddress().MAC != w.A.Query().Address {
			w.Errorf("at the other ends are %v and %v", x.RemoteAddress(), y.RemoteAddress())
		}
	}
}

// testChannelBadOffsets sends and makes room at offsets that make no sense: that is refused, and
// nothing has happened.
func testChannelBadOffsets(w *World) {
	x, y := w.channels(channel.Options{})
	words := x.Words()
	status := Must(x.Status())(w)
	bad := []int{-1, words, words + 1, 1 << 12, 1 << 31, 1 << 32, -1 << 32, -words}
	for _, at := range bad {
		for p := range channel.Priority(2) {
			wantError(w, "a start beyond", x.Send(p, at, 1), via.ErrInvalidParameter)
			wantError(w, "a stop beyond", x.Send(p, 1, at), via.ErrInvalidParameter)
		}
		wantError(w, "room from beyond", y.Allow(at, 1), via.ErrInvalidParameter)
		wantError(w, "room up to beyond", y.Allow(1, at), via.ErrInvalidParameter)
	}
	for _, at := range []int{0, 7, words - 1} {
		wantError(w, "nothing", x.Send(channel.High, at, at), via.ErrInvalidParameter)
	}
	wantError(w, "no such priority", x.Send(2, 0, 1), via.ErrInvalidParameter)
	if now := Must(x.Status())(w); now != status {
		w.Errorf("%+v, before %+v", now, status)
	}
	if m := w.deliver(x, y, channel.Low, 5, w.words(30)); !w.losing.Load() && m.Start != 0 {
		w.Errorf("%+v, after refusals", m)
	}
}

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

// testChannelClosed: what came before the other end was closed can be taken, and then the end is
// said; calls after Close fail with ErrClosed.
func testChannelClosed(w *World) {
	x, y := w.channels(channel.Options{})
	want := w.words(3)
	stop := x.SendPages().Put(0, want)
	w.try("a message before the end", len(want)/channel.Word, func() bool {
		OK(w, x.Send(channel.High, 0, stop))
		m, there := w.takePDU(y, want)
		if there {
			w.releasePDU(y, m)
		}
		return there
	})
	OK(w, x.Close())
	w.wantOver("the other end was closed", w.untilOver(y))
	_, err := y.Wait(Context(w))
	w.wantOver("wait", err)
	ctx := Context(w)
	_, polled := x.Poll()
	_, waited := x.Wait(ctx)
	_, sent := x.Sent(channel.High)
	_, drops := x.Drops()
	_, status := x.Status()
	OK(w, x.Close()) // again
	for what, err := range map[string]error{
		"send": x.Send(channel.Low, 0, 1), "poll": polled, "wait": waited, "sent": sent, "drops": drops, "status": status,
		"allow": x.Allow(0, 1), "release": x.Release(channel.PDU{}), "flush": x.Flush(ctx),
		"send placed": x.SendPlaced(channel.Low, nil, nil), "send placed with a header": x.SendPlaced(channel.Low, make([]byte, 8), nil),
		"enter": channel.NewParticipant(x).Enter(ctx), "allow placed": x.AllowPlaced(8),
	} {
		wantError(w, what, err, net.ErrClosed)
	}
	if x.SendPages().Bytes() != nil || x.RecvPages().Page(0) != nil {
		w.Error("there are pages after Close")
	}
	// What the other end sends now is lost, and is told so.
	w.sendWords(y, channel.Low, 0, 5)
	OK(w, y.Flush(ctx))
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

// testChannelUnderWay closes channels while cells are under way, this way and that: the other end
// learns of it, no call waits past its deadline, and others go on.
func testChannelUnderWay(w *World) {
	by, other := w.channels(channel.Options{})
	for round := range 6 {
		x, y := w.channels(channel.Options{PageSize: 8192})
		for range channel.Depth {
			w.sendWords(x, channel.Low, 0, 2000)
		}
		w.sendWords(x, channel.High, 0, 2000)
		w.sendWords(y, channel.High, 0, 300)
		if round%2 == 0 {
			x, y = y, x
		}
		if round > 3 {
			w.A.Poll()
			w.B.Poll()
		}
		OK(w, x.Close())
		w.wantOver("closed under way", w.untilOver(y))
		OK(w, y.Flush(Context(w)))
		OK(w, y.Close())
		w.releasePDU(other, w.deliver(by, other, channel.High, 7, w.words(20)))
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
