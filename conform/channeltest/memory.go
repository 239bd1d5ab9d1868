package channeltest

import (
	"bytes"
	"encoding/binary"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/conform/viatest"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/via"
)

// count is the receive word's count of so many dropped cells: modulo 512, and from there on
// the top bit sticks.
func count(n uint64) uint16 {
	c := uint16(n % descriptors.ChannelDropsMany)
	if n >= descriptors.ChannelDropsMany {
		c |= descriptors.ChannelDropsMany
	}
	return c
}

// testDrops has more than 1023 cells find memory that may not be written: each is dropped and
// counted. The rate of a sender that is told so halves.
func testDrops(w *world) {
	x, y := w.rawPair()
	words := x.Words()
	viatest.OK(w, x.Allow(0, words-1))
	before := bytes.Clone(x.pages(1))
	viatest.OK(w, x.recv.SetAttributes(viatest.Context(w), via.MemoryAttributes{ReadOnly: true}))
	dropped := func() uint64 { return w.counters(w.A)[descriptors.CounterCellsDropped.String()] }
	start, sent := dropped(), uint64(0)
	stop := y.SendPages().Put(0, w.message(int(words)-1))
	for n := uint64(0); n < 1200; {
		const each = 171 // cells
		w.try("a message that is dropped", short, func() bool {
			seen := viatest.Must(x.Received())(w)
			w.send(y, channel.Low, 0, stop)
			sent += each
			if !w.patiently(func() bool { return viatest.Must(x.Poll(seen.PDUs))(w).PDUs != seen.PDUs }) {
				return false
			}
			if end := viatest.Must(x.End(seen.PDUs))(w); end&descriptors.ChannelEndCut == 0 {
				w.Errorf("a message of which nothing was written ended as %08x", end)
			}
			return true
		})
		w.Until(w, "the counts to agree", func() bool {
			n = dropped() - start
			word := viatest.Must(x.Received())(w)
			return word.Drops == count(n) && word.Status&descriptors.ChannelUnreachable != 0
		})
		if n != sent && !w.lost() {
			w.Fatalf("%d cells of %d were dropped", n, sent)
		}
	}
	if !bytes.Equal(x.pages(1), before) {
		w.Error("memory that may not be written was")
	}

	// In reach again: what comes is whole, and the count stays.
	viatest.OK(w, x.recv.SetAttributes(viatest.Context(w), via.MemoryAttributes{}))
	viatest.OK(w, x.Allow(0, words-1))
	want := w.message(9)
	stop = w.put(y, 0, want)
	w.try("a message in reach", len(want)/channel.Word, func() bool {
		seen := viatest.Must(x.Received())(w)
		w.send(y, channel.High, 0, stop)
		if !w.patiently(func() bool { return viatest.Must(x.Poll(seen.PDUs))(w).PDUs != seen.PDUs }) {
			return false
		}
		end := viatest.Must(x.End(seen.PDUs))(w)
		from := int(end.Offset()) - 14 // two cells, CRC and clock
		return end.Whole() && end.Length() == len(want) && from >= 0 && bytes.Equal(x.pages(1)[from*channel.Word:][:len(want)], want)
	})
	word := viatest.Must(x.Received())(w)
	if word.Drops&descriptors.ChannelDropsMany == 0 || word.Status&descriptors.ChannelUnreachable != 0 {
		w.Errorf("%+v after new room", word)
	}

	// The sender is told.
	rate := channel.NewRate(1e6, 64e6)
	rate.Report(0)
	binary.LittleEndian.PutUint64(x.pages(0), uint64(word.Drops))
	w.try("a report", 1, func() bool {
		viatest.OK(w, x.Send(descriptors.PriorityHigh, 0, 1))
		m, there := w.next(y)
		if !there || m.Err != nil {
			return false
		}
		got, err := y.ReadReport(m)
		if lost := rate.Report(got); err != nil || got != word.Drops || lost == 0 || rate.BytesPerSecond() != 2.5e6 {
			w.Errorf("%#x drops, %d of them new, %v; %v bytes per second", got, lost, err, rate.BytesPerSecond())
		}
		return true
	})
}

// testOutOfReach takes the memory that is sent from out of reach: the message comes to nothing,
// and both ends are told. In reach again, the channel goes on.
func testOutOfReach(w *world) {
	x, y := w.rawPair()
	ctx := viatest.Context(w)
	tag := viatest.Must(w.A.CreatePtag(ctx))(w)
	viatest.OK(w, x.send.SetAttributes(ctx, via.MemoryAttributes{Ptag: tag}))
	w.try("an aborted message", 1, func() bool {
		viatest.OK(w, x.Send(descriptors.PriorityLow, 0, 300))
		m, there := w.next(y)
		if s := viatest.Must(x.SendStatus())(w); s.Result[descriptors.PriorityLow] != descriptors.ChannelUnreadable || s.Ended[descriptors.PriorityLow] != s.Stores[descriptors.PriorityLow] {
			w.Errorf("%+v, of memory out of reach", s)
		}
		if !there || m.Err == channel.ErrCRC {
			return false
		}
		if m.Err != channel.ErrAborted || m.Length != 0 {
			w.Errorf("%+v, of memory out of reach", m)
		}
		w.release(y, m)
		return true
	})
	viatest.OK(w, x.send.SetAttributes(ctx, via.MemoryAttributes{}))
	want := w.message(20)
	copy(x.pages(0), want)
	w.try("a message in reach", 20, func() bool {
		viatest.OK(w, x.Send(descriptors.PriorityLow, 0, 20))
		_, there := w.take(y, want)
		return there
	})
	viatest.OK(w, tag.Destroy(ctx))
	if s := viatest.Must(x.SendStatus())(w); s.Result[descriptors.PriorityLow] != descriptors.ChannelTaken {
		w.Errorf("%+v, of memory in reach", s)
	}
}

// testMemoryInUse: a channel's memory cannot be deregistered, nor its tag destroyed; the
// channel goes on, and afterwards both can.
func testMemoryInUse(w *world) {
	ctx := viatest.Context(w)
	tag := viatest.Must(w.A.CreatePtag(ctx))(w)
	pages := viatest.Must(channel.NewPages(ctx, w.A, channel.DefaultPageSize, via.MemoryAttributes{Ptag: tag}))(w)
	clients, servers := Connect(w, w.Pair, 1, &channel.Options{Send: pages, Ptag: tag}, nil)
	x, y := clients[0], servers[0]
	for what, err := range map[string]error{
		"pages to send from":    pages.Free(ctx),
		"pages to receive into": y.RecvPages().Free(ctx),
		"ptag":                  tag.Destroy(ctx),
	} {
		viatest.WantError(w, what, err, via.ErrResource)
	}
	want := w.message(33)
	w.release(y, w.deliver(x, y, channel.Low, 1000, want))
	w.release(x, w.deliver(y, x, channel.High, 1000, want))
	viatest.OK(w, x.Close())
	viatest.OK(w, pages.Free(ctx))
	if pages.Bytes() != nil || pages.Page(1) != nil {
		w.Error("there are pages after Free")
	}
	viatest.WantError(w, "freed twice", pages.Free(ctx), via.ErrClosed)
	viatest.OK(w, tag.Destroy(ctx))
}

// testForeign makes channels of memory that is not theirs.
func testForeign(w *world) {
	ctx := viatest.Context(w)
	tag := viatest.Must(w.A.CreatePtag(ctx))(w)
	address := via.Address{MAC: w.B.Query().Address}
	for what, c := range map[string]struct {
		nic *via.NIC
		a   via.MemoryAttributes
	}{
		"of another NIC":  {w.B, via.MemoryAttributes{}},
		"of another ptag": {w.A, via.MemoryAttributes{Ptag: tag}},
	} {
		pages := viatest.Must(channel.NewPages(ctx, c.nic, channel.DefaultPageSize, c.a))(w)
		_, err := channel.Dial(ctx, w.A, address, &channel.Options{Send: pages})
		// A handle of another NIC may be that of other memory here, so that the code differs.
		if what == "of another ptag" {
			viatest.WantError(w, what, err, via.ErrInvalidParameter)
		} else {
			viatest.WantError(w, what, err)
		}
		viatest.OK(w, pages.Free(ctx))
	}
	viatest.OK(w, tag.Destroy(ctx))

	m := viatest.Must(w.A.Alloc(ctx, 1<<16, via.MemoryAttributes{}))(w)
	readOnly := viatest.Must(w.A.Alloc(ctx, 1<<16, via.MemoryAttributes{ReadOnly: true}))(w)
	at := func(m *via.Memory, skip int) descriptors.DataSegment {
		return descriptors.DataSegment{Address: (m.Address()+1<<14-1)&^(1<<14-1) + uint64(skip), Handle: m.Handle()}
	}
	for what, spoil := range map[string]func(*driver.ChannelAttributes){
		"no sending page":      func(a *driver.ChannelAttributes) { a.Send = descriptors.DataSegment{} },
		"a handle of nobody's": func(a *driver.ChannelAttributes) { a.Recv.Handle = 0xdeadbeef },
		"not aligned":          func(a *driver.ChannelAttributes) { a.Recv.Address += 8 },
		"not all registered":   func(a *driver.ChannelAttributes) { a.Send = at(m, 1<<16-1<<12) },
		"receiving, read only": func(a *driver.ChannelAttributes) { a.Recv = at(readOnly, 0) },
		"pages of 2 KiB":       func(a *driver.ChannelAttributes) { a.Page = 11 },
		"pages of 32 KiB":      func(a *driver.ChannelAttributes) { a.Page = 15 },
	} {
		a := driver.ChannelAttributes{Ptag: w.A.Ptag().Number(), Send: at(m, 0), Recv: at(m, 0)}
		spoil(&a)
		_, err := w.A.Driver().CreateChannel(ctx, a)
		viatest.WantError(w, what, err, via.ErrInvalidParameter)
	}
	viatest.OK(w, m.Deregister(ctx))
	viatest.OK(w, readOnly.Deregister(ctx))
}

// testDeviceMemory makes channels until the NIC has no number or no memory left: then that is
// said, and all of it comes back.
func testDeviceMemory(w *world) {
	ctx := viatest.Context(w)
	d := w.A.Driver()
	free := func() uint32 {
		n, _, err := d.FreeSRAM()
		viatest.OK(w, err)
		return n
	}
	before := free()
	clients, servers := Connect(w, w.Pair, 3, nil, nil)
	for i := range clients {
		w.release(servers[i], w.deliver(clients[i], servers[i], channel.Low, 0, w.message(10)))
		viatest.OK(w, clients[i].Close())
		viatest.OK(w, servers[i].Close())
	}
	if now := free(); now != before {
		w.Errorf("%d bytes of its memory were free, and %d are after channels were closed", before, now)
	}
	m := viatest.Must(w.A.Alloc(ctx, 3<<14, via.MemoryAttributes{}))(w)
	before = free() // eager memory has a copy in the NIC
	segment := descriptors.DataSegment{Address: (m.Address() + 1<<14 - 1) &^ (1<<14 - 1), Handle: m.Handle()}
	a := driver.ChannelAttributes{Ptag: w.A.Ptag().Number(), Page: descriptors.MaxChannelPageLog2, Send: segment, Recv: segment}
	var channels []*driver.Channel
	for {
		c, err := d.CreateChannel(ctx, a)
		if err != nil {
			viatest.WantError(w, "none left", err, via.ErrResource)
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
		viatest.OK(w, c.Destroy(ctx))
		viatest.WantError(w, "destroyed twice", c.Destroy(ctx), via.ErrClosed)
	}
	if now := free(); now != before {
		w.Errorf("%d bytes of its memory were free, and %d are", before, now)
	}
	viatest.OK(w, m.Deregister(ctx))
}
