package conform

import (
	"bytes"
	"context"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// dropsOf is the receive word's count of so many dropped cells: modulo 512, and from there on
// the top bit sticks.
func dropsOf(n uint64) uint16 {
	c := uint16(n % datasheet.ChannelDropsMany)
	if n >= datasheet.ChannelDropsMany {
		c |= datasheet.ChannelDropsMany
	}
	return c
}

// testChannelDrops has more than 1023 cells find memory that may not be written: each is dropped and
// counted. The rate of a sender that is told so halves.
func testChannelDrops(w *World) {
	x, y := w.rawPair()
	words := x.Words()
	OK(w, x.Allow(0, words-1))
	before := bytes.Clone(x.pages(1))
	OK(w, x.recv.SetAttributes(Context(w), via.MemoryAttributes{ReadOnly: true}))
	dropped := func() uint64 { return Must(w.A.Counters())(w)[datasheet.CounterCellsDropped.String()] }
	start, sent := dropped(), uint64(0)
	stop := y.SendPages().Put(0, w.words(int(words)-1))
	for n := uint64(0); n < 1200; {
		const each = 171 // cells
		w.try("a message that is dropped", shortMessage, func() bool {
			seen := Must(x.Received())(w)
			w.sendWords(y, channel.Low, 0, stop)
			sent += each
			if !w.patiently(func() bool { return Must(x.Poll(seen.PDUs))(w).PDUs != seen.PDUs }) {
				return false
			}
			if end := Must(x.End(seen.PDUs))(w); end&datasheet.ChannelEndCut == 0 {
				w.Errorf("a message of which nothing was written ended as %08x", end)
			}
			return true
		})
		w.Until("the counts to agree", func() bool {
			n = dropped() - start
			word := Must(x.Received())(w)
			return word.Drops == dropsOf(n) && word.Status&datasheet.ChannelUnreachable != 0
		})
		if n != sent && !w.lost() {
			w.Fatalf("%d cells of %d were dropped", n, sent)
		}
	}
	if !bytes.Equal(x.pages(1), before) {
		w.Error("memory that may not be written was")
	}

	// In reach again: what comes is whole, and the count stays.
	OK(w, x.recv.SetAttributes(Context(w), via.MemoryAttributes{}))
	OK(w, x.Allow(0, words-1))
	want := w.words(9)
	stop = w.putWords(y, 0, want)
	w.try("a message in reach", len(want)/channel.Word, func() bool {
		seen := Must(x.Received())(w)
		w.sendWords(y, channel.High, 0, stop)
		if !w.patiently(func() bool { return Must(x.Poll(seen.PDUs))(w).PDUs != seen.PDUs }) {
			return false
		}
		end := Must(x.End(seen.PDUs))(w)
		from := int(end.Offset()) - 14 // two cells, CRC and clock
		return end.Whole() && end.Length() == len(want) && from >= 0 && bytes.Equal(x.pages(1)[from*channel.Word:][:len(want)], want)
	})
	word := Must(x.Received())(w)
	if word.Drops&datasheet.ChannelDropsMany == 0 || word.Status&datasheet.ChannelUnreachable != 0 {
		w.Errorf("%+v after new room", word)
	}

	// The sender slows down.
	rate := channel.NewRate(1e6, 64e6)
	rate.Report(channel.Drops{})
	drops := channel.Drops{Cells: int(word.Drops % datasheet.ChannelDropsMany), Many: true}
	if lost := rate.Report(drops); lost == 0 || rate.BytesPerSecond() != 2.5e6 {
		w.Errorf("%+v, %d of them new; %v bytes per second", drops, lost, rate.BytesPerSecond())
	}
}

// testChannelOutOfReach takes the memory that is sent from out of reach: the message comes to nothing,
// and both ends are told. In reach again, the channel goes on.
func testChannelOutOfReach(w *World) {
	x, y := w.rawPair()
	ctx := Context(w)
	tag := Must(w.A.CreatePtag(ctx))(w)
	OK(w, x.send.SetAttributes(ctx, via.MemoryAttributes{Ptag: tag}))
	w.try("an aborted message", 1, func() bool {
		OK(w, x.Send(datasheet.PriorityLow, 0, 300))
		// A copy that is read when the memory is in reach again would be whole.
		w.leave(x)
		s := Must(x.SendStatus())(w)
		wantEqual(w, s.Result[datasheet.PriorityLow], datasheet.ChannelUnreadable, "the result of memory out of reach")
		m, there := w.nextPDU(y)
		if !there || m.Err == channel.ErrCRC {
			return false
		}
		if m.Err != channel.ErrAborted || m.Length != 0 {
			w.Errorf("%+v, of memory out of reach", m)
		}
		w.releasePDU(y, m)
		return true
	})
	OK(w, x.send.SetAttributes(ctx, via.MemoryAttributes{}))
	want := w.words(20)
	copy(x.pages(0), want)
	w.try("a message in reach", 20, func() bool {
		OK(w, x.Send(datasheet.PriorityLow, 0, 20))
		_, there := w.takePDU(y, want)
		return there
	})
	OK(w, tag.Close(ctx))
	s := Must(x.SendStatus())(w)
	wantEqual(w, s.Result[datasheet.PriorityLow], datasheet.ChannelTaken, "the result of memory in reach")
}

// testChannelDeviceMemory makes channels until the NIC has no number or no memory left. Before, some have done their work.
func testChannelDeviceMemory(w *World) {
	before := freeMemory(w)
	clients, servers := w.Channels(3, channel.Options{}, channel.Options{})
	for i := range clients {
		w.releasePDU(servers[i], w.deliver(clients[i], servers[i], channel.Low, 0, w.words(10)))
		OK(w, clients[i].Close())
		OK(w, servers[i].Close())
	}
	wantEqual(w, freeMemory(w), before, "free bytes of the NIC's memory after channels were closed")
	m := w.alloc(w.A, 3<<14) // eager memory has a copy in the NIC
	segment := datasheet.DataSegment{Address: (m.Address() + 1<<14 - 1) &^ (1<<14 - 1), Handle: m.Handle()}
	a := driver.ChannelAttributes{Ptag: w.A.Ptag(), Page: datasheet.MaxChannelPageLog2, Send: segment, Recv: segment}
	exhaust(w, func(ctx context.Context) (*driver.Channel, error) { return w.A.CreateChannel(ctx, a) })
	OK(w, m.Close(Context(w)))
}
