package conform

import (
	"bytes"

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
	dropped := func() uint64 { return w.counters(w.A)[datasheet.CounterCellsDropped.String()] }
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
		if s := Must(x.SendStatus())(w); s.Result[datasheet.PriorityLow] != datasheet.ChannelUnreadable {
			w.Errorf("%+v, of memory out of reach", s)
		}
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
	if s := Must(x.SendStatus())(w); s.Result[datasheet.PriorityLow] != datasheet.ChannelTaken {
		w.Errorf("%+v, of memory in reach", s)
	}
}

// testChannelMemoryInUse: a channel's memory cannot be deregistered, nor its tag destroyed; the
// channel goes on, and afterwards both can.
func testChannelMemoryInUse(w *World) {
	ctx := Context(w)
	tag := Must(w.A.CreatePtag(ctx))(w)
	pages := Must(channel.NewPages(ctx, w.A, channel.DefaultPageSize, via.MemoryAttributes{Ptag: tag}))(w)
	clients, servers := w.Channels(1, channel.Options{Send: pages, Ptag: tag}, channel.Options{})
	x, y := clients[0], servers[0]
	for what, err := range map[string]error{
		"pages to send from":    pages.Close(ctx),
		"pages to receive into": y.RecvPages().Close(ctx),
		"ptag":                  tag.Close(ctx),
	} {
		wantError(w, what, err, via.ErrResource)
	}
	want := w.words(33)
	w.releasePDU(y, w.deliver(x, y, channel.Low, 1000, want))
	w.releasePDU(x, w.deliver(y, x, channel.High, 1000, want))
	OK(w, x.Close())
	OK(w, pages.Close(ctx))
	if pages.Bytes() != nil || pages.Page(1) != nil {
		w.Error("there are pages after Close")
	}
	OK(w, pages.Close(ctx)) // again
	OK(w, tag.Close(ctx))
}

// testChannelForeign makes channels of memory that is not theirs.
func testChannelForeign(w *World) {
	ctx := Context(w)
	tag := Must(w.A.CreatePtag(ctx))(w)
	address := via.Address{MAC: w.B.Query().Address}
	for what, c := range map[string]struct {
		nic *via.NIC
		a   via.MemoryAttributes
	}{
		"of another NIC":  {w.B, via.MemoryAttributes{}},
		"of another ptag": {w.A, via.MemoryAttributes{Ptag: tag}},
	} {
		pages := Must(channel.NewPages(ctx, c.nic, channel.DefaultPageSize, c.a))(w)
		_, err := channel.Dial(ctx, w.A, address.String(), channel.Options{Send: pages})
		// A handle of another NIC may be that of other memory here, so that the code differs.
		if what == "of another ptag" {
			wantError(w, what, err, via.ErrInvalidParameter)
		} else {
			wantError(w, what, err)
		}
		OK(w, pages.Close(ctx))
	}
	OK(w, tag.Close(ctx))

	m := Must(w.A.Alloc(ctx, 1<<16, via.MemoryAttributes{}))(w)
	readOnly := Must(w.A.Alloc(ctx, 1<<16, via.MemoryAttributes{ReadOnly: true}))(w)
	at := func(m *via.Memory, skip int) datasheet.DataSegment {
		return datasheet.DataSegment{Address: (m.Address()+1<<14-1)&^(1<<14-1) + uint64(skip), Handle: m.Handle()}
	}
	for what, spoil := range map[string]func(*driver.ChannelAttributes){
		"no sending page":           func(a *driver.ChannelAttributes) { a.Send = datasheet.DataSegment{} },
		"a handle without a region": func(a *driver.ChannelAttributes) { a.Recv.Handle = 0xdeadbeef },
		"not aligned":               func(a *driver.ChannelAttributes) { a.Recv.Address += 8 },
		"not all registered":        func(a *driver.ChannelAttributes) { a.Send = at(m, 1<<16-1<<12) },
		"receiving, read only":      func(a *driver.ChannelAttributes) { a.Recv = at(readOnly, 0) },
		"pages of 2 KiB":            func(a *driver.ChannelAttributes) { a.Page = 11 },
		"pages of 32 KiB":           func(a *driver.ChannelAttributes) { a.Page = 15 },
	} {
		a := driver.ChannelAttributes{Ptag: w.A.Ptag(), Send: at(m, 0), Recv: at(m, 0)}
		spoil(&a)
		_, err := w.A.CreateChannel(ctx, a)
		wantError(w, what, err, via.ErrInvalidParameter)
	}
	OK(w, m.Close(ctx))
	OK(w, readOnly.Close(ctx))
}

// testChannelDeviceMemory makes channels until the NIC has no number or no memory left: then that is
// said, and all of it comes back.
func testChannelDeviceMemory(w *World) {
	ctx := Context(w)
	d := w.A.NIC
	free := func() uint32 {
		n, _, err := d.FreeSRAM()
		OK(w, err)
		return n
	}
	before := free()
	clients, servers := w.Channels(3, channel.Options{}, channel.Options{})
	for i := range clients {
		w.releasePDU(servers[i], w.deliver(clients[i], servers[i], channel.Low, 0, w.words(10)))
		OK(w, clients[i].Close())
		OK(w, servers[i].Close())
	}
	if now := free(); now != before {
		w.Errorf("%d bytes of its memory were free, and %d are after channels were closed", before, now)
	}
	m := Must(w.A.Alloc(ctx, 3<<14, via.MemoryAttributes{}))(w)
	before = free() // eager memory has a copy in the NIC
	segment := datasheet.DataSegment{Address: (m.Address() + 1<<14 - 1) &^ (1<<14 - 1), Handle: m.Handle()}
	a := driver.ChannelAttributes{Ptag: w.A.Ptag(), Page: datasheet.MaxChannelPageLog2, Send: segment, Recv: segment}
	var channels []*driver.Channel
	for {
		c, err := d.CreateChannel(ctx, a)
		if err != nil {
			wantError(w, "none left", err, via.ErrResource)
			break
		}
		if channels = append(channels, c); len(channels) > 1024 {
			w.Fatal("there are more channels with pages of 16 KiB than their numbers have room for")
		}
	}
	if len(channels) == 0 {
		w.Error("there is no room for a channel")
	}
	for _, c := range channels {
		OK(w, c.Close(ctx))
		OK(w, c.Close(ctx)) // again
	}
	if now := free(); now != before {
		w.Errorf("%d bytes of its memory were free, and %d are", before, now)
	}
	OK(w, m.Close(ctx))
}
