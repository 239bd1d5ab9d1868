package conform

import (
	"bytes"
	"context"
	"net"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// testChannelPlacement: between a header of fixed length and a trailer of any, a page of data lands
// aligned to a page, where it is.
func testChannelPlacement(w *World) {
	for _, size := range pageSizes {
		x, y := w.channels(channel.Options{PageSize: size})
		header, data := w.words(14), w.words(size/channel.Word)
		copy(x.SendPages().Page(1), data)
		for _, n := range []int{0, 1, 8, 84, 1000} {
			trailer := w.words(n/channel.Word + 1)[:n]
			w.try("a page that is placed", x.Words(), func() bool {
				OK(w, y.AllowPlaced(len(header)))
				OK(w, x.SendPlaced(channel.Low, header, trailer))
				m, there := w.nextPDU(y)
				if !there {
					return false
				}
				h, d, tail, err := y.Placed(m, len(header))
				if err != nil {
					return false
				}
				if !bytes.Equal(h, header) || !bytes.Equal(d, data) || len(tail) != (n+7)&^7 || !bytes.Equal(tail[:n], trailer) {
					return w.differs("trailer of %d bytes: %d, %d and %d bytes", n, len(h), len(d), len(tail))
				}
				if &d[0] != &y.RecvPages().Page(1)[0] || y.RecvPages().Stats().Copied != 0 {
					w.Error("the data were copied")
				}
				if at := reflect.ValueOf(d).Pointer(); at%uintptr(size) != 0 || cap(h) != len(h) || cap(d) != len(d) || cap(tail) != len(tail) {
					w.Errorf("the data are at %#x; there is room for %d, %d and %d bytes", at, cap(h), cap(d), cap(tail))
				}
				return true
			})
			OK(w, x.Flush(Context(w)))
		}
		for what, err := range map[string]error{
			"header of part of a word": x.SendPlaced(channel.Low, header[:9], nil),
			"header of a page":         x.SendPlaced(channel.Low, make([]byte, size), nil),
			"trailer of a page":        x.SendPlaced(channel.Low, header, make([]byte, size)),
			"room for half a word":     y.AllowPlaced(4),
			"room for less":            y.AllowPlaced(-8),
		} {
			wantError(w, what, err, via.ErrInvalidParameter)
		}
		// A message of another shape is not taken for one.
		w.try("a short message", 3, func() bool {
			OK(w, y.AllowPlaced(len(header)))
			w.sendWords(x, channel.Low, 0, 3)
			m, there := w.nextPDU(y)
			if !there || m.Err != nil {
				return false
			}
			if _, _, _, err := y.Placed(m, len(header)); err != channel.ErrLength {
				return w.differs("a short message: error %v", err)
			}
			return true
		})
		start := (size - len(header)) / channel.Word
		whole := channel.PDU{Start: start, Length: len(header) + size}
		damaged := whole
		damaged.Err = channel.ErrCRC
		_, _, _, err := y.Placed(damaged, len(header))
		wantEqual(w, err, error(channel.ErrCRC), "a damaged message")
		OK(w, x.Close())
		OK(w, y.Close())
		_, _, _, err = y.Placed(whole, len(header))
		wantError(w, "a closed channel", err, net.ErrClosed)
	}
}

// testChannelMulticast sends one double page on many channels.
func testChannelMulticast(w *World) {
	ctx := Context(w)
	pages := w.newPages(w.A)
	const members = 6
	clients, servers := w.Channels(members, channel.Options{Send: pages}, channel.Options{})
	other, _ := w.channels(channel.Options{})
	for _, words := range []int{500, 1, 37} {
		want := w.words(words)
		stop := pages.Put(3, want)
		missing := clients
		w.try("a message to all", words, func() bool {
			for to := missing; len(to) > 0; {
				n, err := channel.Multicast(channel.Low, 3, stop, to...)
				if err != nil && err != via.ErrQueueFull {
					w.Fatal(err)
				}
				to = to[n:]
				w.A.Poll()
			}
			missing = slices.DeleteFunc(slices.Clone(missing), func(c *channel.Channel) bool {
				s := servers[slices.Index(clients, c)]
				m, there := w.takePDU(s, want)
				if there {
					w.releasePDU(s, m)
				}
				return there
			})
			return len(missing) == 0
		})
		for _, c := range clients {
			OK(w, c.Flush(ctx))
		}
	}
	n, err := channel.Multicast(channel.Low, 0, 1, append(clients[:members:members], other)...)
	wantEqual(w, n, 0, "messages sent on channels that do not share pages")
	wantError(w, "other pages", err, via.ErrInvalidParameter)
	_, err = channel.Dial(ctx, w.A, via.Address{MAC: w.B.Query().Address}.String(), channel.Options{Send: pages, PageSize: 8192})
	wantError(w, "pages of another size", err, via.ErrInvalidParameter)
	OK(w, clients[2].Close())
	n, err = channel.Multicast(channel.Low, 0, 1, clients...)
	wantEqual(w, n, 2, "channels before the closed one that have taken the message")
	wantError(w, "a channel that is closed", err, net.ErrClosed)
}

// testChannelBarrier has a barrier of a priority: no participant leaves a round before all have entered it, and all cells
// have the priority. A cell that the wire loses holds all of them up until the time is over.
func testChannelBarrier(w *World, priority channel.Priority) {
	ctx := Context(w)
	pages := w.newPages(w.B)
	const members, rounds = 4, 15
	clients, servers := w.Channels(members, channel.Options{}, channel.Options{Send: pages})
	barrier := Must(channel.NewBarrier(servers...))(w)
	barrier.Priority = priority
	under, cancel := w.under()
	defer cancel()
	var entered atomic.Int64
	var all sync.WaitGroup
	results := make(chan error, members+1)
	for _, c := range clients {
		all.Go(func() {
			p := channel.NewParticipant(c)
			p.Priority = priority
			for round := range int64(rounds) {
				entered.Add(1)
				if err := p.Enter(under); err != nil {
					results <- err
					return
				}
				if n := entered.Load(); n < (round+1)*members {
					w.Errorf("round %d ended when %d had entered", round, n-round*members)
				}
			}
		})
	}
	for range rounds {
		if err := barrier.Run(under); err != nil {
			results <- err
			break
		}
	}
	all.Wait()
	close(results)
	for err := range results {
		if !w.lost() {
			w.Errorf("error %v, over a wire that has lost nothing", err)
		}
		wantError(w, "a cell was lost", err)
	}
	if w.losing.Load() {
		return
	}
	for _, c := range append(clients, servers...) {
		for p := range datasheet.ChannelPriorities {
			want := map[channel.Priority]uint32{priority: rounds}[p]
			wantEqual(w, Must(c.Sent(p))(w).Taken, want, "messages of priority %d in a barrier of priority %d", p, priority)
		}
	}
	none := channel.NewParticipant(clients[0])
	none.Priority = datasheet.ChannelPriorities
	wantError(w, "no priority", none.Enter(ctx), via.ErrInvalidParameter)
	// Who does not come keeps the others until the time is up.
	short, end := context.WithTimeout(w.Context(), 10*time.Millisecond)
	defer end()
	wantError(w, "no other end enters", barrier.Run(short), context.DeadlineExceeded, via.ErrTimeout)
	over, stop := context.WithCancel(w.Context())
	stop()
	wantError(w, "interrupted", barrier.Run(over), context.Canceled)
	wantError(w, "interrupted", none.Enter(over), context.Canceled)
	// Who is in another round breaks the barrier.
	OK(w, clients[0].Send(channel.High, 0, 2))
	wantError(w, "another round", barrier.Run(Context(w)), via.ErrProtocol)
	mixed, _ := w.Channels(2, channel.Options{}, channel.Options{})
	_, err := channel.NewBarrier(mixed...)
	wantError(w, "other pages", err, via.ErrInvalidParameter)
	OK(w, clients[0].Close())
	wantError(w, "a participant has left", barrier.Run(Context(w)), via.ErrDisconnected)
}
