package conform

import (
	"bytes"
	"context"
	"errors"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/via"
)

// testChannelPlacement: between a header of fixed length and a trailer of any, a page of data lands
// aligned to a page, where it is.
func testChannelPlacement(w *World) {
	for _, size := range pageSizes {
		x, y := w.channels(&channel.Options{PageSize: size})
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
				if &d[0] != &y.RecvPages().Page(1)[0] || y.RecvPages().Copied() != 0 {
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
			WantError(w, what, err, via.ErrInvalidParameter)
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
		if _, _, _, err := y.Placed(damaged, len(header)); err != channel.ErrCRC {
			w.Errorf("a damaged message: error %v", err)
		}
		OK(w, x.Close())
		OK(w, y.Close())
		_, _, _, err := y.Placed(whole, len(header))
		WantError(w, "a closed channel", err, channel.ErrClosed)
	}
}

// testChannelMulticast sends one double page on many channels.
func testChannelMulticast(w *World) {
	ctx := Context(w)
	pages := Must(channel.NewPages(ctx, w.A, channel.DefaultPageSize, via.MemoryAttributes{}))(w)
	w.freePages(pages)
	const members = 6
	clients, servers := w.Channels(members, &channel.Options{Send: pages}, nil)
	other, _ := w.channels(nil)
	for _, words := range []int{500, 1, 37} {
		want := w.words(words)
		stop := pages.Put(3, want)
		missing := clients
		w.try("a message to everybody", words, func() bool {
			for to := missing; len(to) > 0; {
				n, err := channel.Multicast(channel.Low, 3, stop, to...)
				if err != nil && err != channel.ErrFull {
					w.Fatal(err)
				}
				to = to[n:]
				w.A.Poll()
			}
			var still []*channel.Channel
			for i, s := range servers {
				if !slices.Contains(missing, clients[i]) {
					continue
				}
				m, there := w.takePDU(s, want)
				if !there {
					still = append(still, clients[i])
					continue
				}
				w.releasePDU(s, m)
			}
			missing = still
			return len(missing) == 0
		})
		for _, c := range clients {
			OK(w, c.Flush(ctx))
		}
	}
	n, err := channel.Multicast(channel.Low, 0, 1, append(clients[:members:members], other)...)
	if n != 0 {
		w.Errorf("%d messages were sent on channels that do not share pages", n)
	}
	WantError(w, "other pages", err, via.ErrInvalidParameter)
	_, err = channel.Dial(ctx, w.A, via.Address{MAC: w.B.Query().Address}, &channel.Options{Send: pages, PageSize: 8192})
	WantError(w, "pages of another size", err, via.ErrInvalidParameter)
	OK(w, clients[2].Close())
	if n, err = channel.Multicast(channel.Low, 0, 1, clients...); n != 2 {
		w.Errorf("%d of the channels before the closed one have taken the message", n)
	}
	WantError(w, "a channel that is closed", err, channel.ErrClosed)
}

// testChannelBarrier has barriers of both priorities.
func testChannelBarrier(w *World) {
	for _, p := range []channel.Priority{channel.High, channel.Low} {
		testChannelBarrierOf(w, p)
	}
}

// testChannelBarrierOf: no participant leaves a round before all have entered it, and all cells
// have the priority. A cell that the wire loses holds all of them up until the time is over.
func testChannelBarrierOf(w *World, priority channel.Priority) {
	ctx := Context(w)
	pages := Must(channel.NewPages(ctx, w.B, channel.DefaultPageSize, via.MemoryAttributes{}))(w)
	w.freePages(pages)
	const members, rounds = 4, 15
	clients, servers := w.Channels(members, nil, &channel.Options{Send: pages})
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
		WantError(w, "a cell was lost", err)
	}
	if w.losing.Load() {
		return
	}
	for _, c := range append(clients, servers...) {
		for p := range descriptors.ChannelPriorities {
			want := uint32(0)
			if p == priority {
				want = rounds
			}
			if _, taken, err := c.Left(p); err != nil || taken != want {
				w.Errorf("%d messages of priority %d, %v; %d rounds of priority %d", taken, p, err, rounds, priority)
			}
		}
	}
	none := channel.NewParticipant(clients[0])
	none.Priority = descriptors.ChannelPriorities
	WantError(w, "no priority", none.Enter(ctx), via.ErrInvalidParameter)
	// Who does not come keeps the others until the time is up.
	short, end := context.WithTimeout(w.Context(), 10*time.Millisecond)
	defer end()
	WantError(w, "nobody enters", barrier.Run(short), context.DeadlineExceeded, via.ErrTimeout)
	over, stop := context.WithCancel(w.Context())
	stop()
	WantError(w, "interrupted", barrier.Run(over), context.Canceled)
	WantError(w, "interrupted", none.Enter(over), context.Canceled)
	// Who is in another round breaks the barrier.
	OK(w, clients[0].Send(channel.High, 0, 2))
	WantError(w, "another round", barrier.Run(Context(w)), via.ErrProtocol)
	mixed, _ := w.Channels(2, nil, nil)
	_, err := channel.NewBarrier(mixed...)
	WantError(w, "other pages", err, via.ErrInvalidParameter)
	OK(w, clients[0].Close())
	WantError(w, "a participant has left", barrier.Run(Context(w)), via.ErrDisconnected)
}

// testChannelBounce has messages of many sizes come back.
func testChannelBounce(w *World) {
	x, y := w.channels(nil)
	const rounds = 10
	for _, size := range []int{8, 40, 48, 4096, 8104} {
		under, cancel := w.under()
		echoed := make(chan error, 1)
		go func() { echoed <- y.Echo(under, channel.High, rounds) }()
		took, err := x.Bounce(under, channel.High, size, rounds)
		if err != nil {
			cancel() // no call waits for what does not come
		}
		err = errors.Join(err, <-echoed)
		cancel()
		switch {
		case err != nil && !w.lost():
			w.Fatalf("%d bytes: %d rounds, %v, over a wire that has lost nothing", size, len(took), err)
		case err != nil:
			WantError(w, "a cell was lost", err)
			OK(w, x.Close())
			OK(w, y.Close())
			x, y = w.channels(nil) // what is under way is of the old one
		case len(took) != rounds:
			w.Errorf("%d bytes: %d rounds", size, len(took))
		}
		for _, d := range took {
			if d <= 0 {
				w.Errorf("a round trip of %v", d)
			}
		}
	}
	for _, size := range []int{-8, 0, 7, 8120, 8192} {
		_, err := x.Bounce(Context(w), channel.High, size, 1)
		WantError(w, "a size that is no good", err, via.ErrInvalidParameter)
	}
	_, err := x.Bounce(Context(w), channel.High, 40, -1)
	WantError(w, "less than no rounds", err, via.ErrInvalidParameter)
	short, cancel := context.WithTimeout(w.Context(), 10*time.Millisecond)
	defer cancel()
	WantError(w, "nothing comes", y.Echo(short, channel.High, -1), context.DeadlineExceeded, via.ErrTimeout)
	testChannelInterrupted(w)
}

// testChannelInterrupted: an order to stop ends it also where what is waited for is always there.
func testChannelInterrupted(w *World) {
	x, y := w.channels(nil)
	over, cancel := context.WithCancel(w.Context())
	cancel()
	const there = 3
	for range there {
		w.sendWords(x, channel.High, 0, 5)
	}
	if err := x.Flush(Context(w)); err != nil {
		w.Fatal(err)
	}
	WantError(w, "echo", y.Echo(over, channel.High, there), context.Canceled)
	took, err := y.Bounce(over, channel.High, 40, there)
	WantError(w, "bounce", err, context.Canceled)
	_, sent, err := y.Left(channel.High)
	if OK(w, err); len(took) != 0 || sent != 0 {
		w.Errorf("%d rounds and %d messages after the end", len(took), sent)
	}
	var none context.Context
	_, err = y.Bounce(none, channel.High, 40, 1)
	WantError(w, "bounce without a context", err, via.ErrInvalidParameter)
	WantError(w, "echo without a context", y.Echo(none, channel.High, 1), via.ErrInvalidParameter)
}

// testChannelReports: the receiver's count of drops reaches the sender's Rate.
func testChannelReports(w *World) {
	x, y := w.channels(nil)
	rate := channel.NewRate(1e6, 64e6)
	report := func(send func()) (drops uint16, err error) {
		w.try("a report", 2, func() bool {
			send()
			m, there := w.nextPDU(x)
			if !there || m.Err != nil {
				return false
			}
			drops, err = x.ReadReport(m)
			w.releasePDU(x, m)
			return true
		})
		return drops, err
	}
	drops, err := report(func() { OK(w, y.ReportDrops()) })
	if lost := rate.Report(drops); err != nil || drops != 0 || lost != 0 || rate.BytesPerSecond() != 5e6 {
		w.Errorf("%d drops, %d of them new, %v; %v bytes per second", drops, lost, err, rate.BytesPerSecond())
	}
	for words, value := range map[int]byte{1: 0xff, 2: 0} { // no count, and no report
		y.SendPages().Put(0, bytes.Repeat([]byte{value}, 16))
		_, err := report(func() { w.sendWords(y, channel.High, 0, words) })
		if err == nil && w.losing.Load() {
			continue // an older report
		}
		WantError(w, "no report", err, via.ErrProtocol)
	}
}
