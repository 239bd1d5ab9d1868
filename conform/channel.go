package conform

import (
	"bytes"
	"encoding/binary"
	"errors"
	"iter"
	"math/rand/v2"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// Channels returns the checks of channels.
//
// Channels are best effort. What a wire loses is missing, and what it damages says so; a
// check that meets that sends again, but only after the counters of both NICs have shown that
// frames were lost. Over a wire that loses nothing, the first message that is missing or
// damaged fails the check.
func Channels() Suite { return suite(channelKind, channels) }

var channels = []section{{"channels", []entry{
	{"one cell", testChannelOneCell},
	{"messages", testChannelMessages},
	{"around the double page", testChannelWraps},
	{"spaced", testChannelSpaced},
	{"room", testChannelRoom},
	{"stamps", testChannelStamps},
	{"messages before one look", testChannelManyBeforeALook},
	{"order", testChannelOrder},
	{"urgent beside bulk", testChannelUrgent},
	{"several senders", testChannelSenders},
	{"placement", testChannelPlacement},
	{"multicast", testChannelMulticast},
	{"barrier", func(w *World) {
		testChannelBarrier(w, channel.High)
		testChannelBarrier(w, channel.Low)
	}},
	{"drops", testChannelDrops},
	{"memory out of reach", testChannelOutOfReach},
	{"waits", testChannelWaits},
	{"last messages", testChannelLast},
	{"peer gone", testChannelPeerGone},
	{"device memory", testChannelDeviceMemory},
}}}

// Channels opens n pairs of channels between A and B, which are closed at the end; options may
// be nil.
func (w *World) Channels(n int, dial, listen channel.Options) (clients, servers []*channel.Channel) {
	w.Helper()
	ctx := Context(w)
	l := Must(channel.Listen(w.B, "channels", listen))(w)
	for range n {
		client := Must(channel.Dial(ctx, w.A, l.Address().String(), dial))(w)
		closeAtEnd(w, client)
		server := Must(l.Accept(ctx))(w)
		closeAtEnd(w, server)
		clients, servers = append(clients, client), append(servers, server)
	}
	OK(w, l.Close())
	return clients, servers
}

// nextPDU takes the next message of c; there is none if the wire has lost it.
func (w *World) nextPDU(c *channel.Channel) (m channel.PDU, there bool) {
	w.Helper()
	there = w.patiently(func() bool {
		var err error
		if m, err = c.Poll(); err != nil && err != via.ErrNotDone {
			w.Fatal(err)
		}
		return err == nil
	})
	return m, there
}

// pdus yields up to count messages of c that are whole; those that a wire loses, or damages, are missing.
func (w *World) pdus(c *channel.Channel, count int) iter.Seq[channel.PDU] {
	return func(yield func(channel.PDU) bool) {
		for range count {
			m, there := w.nextPDU(c)
			if !there {
				return
			}
			if m.Err != nil && !w.lost() {
				w.Fatalf("%+v, over a wire that has lost nothing", m)
			}
			if m.Err == nil && !yield(m) {
				return
			}
		}
	}
}

// allowWords has c store what comes from start on up to stop. What a wire that loses frames still
// brings of before must not land there.
func (w *World) allowWords(c *channel.Channel, start, stop int) {
	w.Helper()
	if w.losing.Load() {
		w.patiently(func() bool {
			_, err := c.Poll()
			return err != nil && err != via.ErrNotDone
		})
	}
	OK(w, c.Allow(start, stop))
}

// sendWords posts the words from start up to stop, once there is room.
func (w *World) sendWords(c *channel.Channel, p channel.Priority, start, stop int) {
	w.Helper()
	w.Until("room to send", func() bool {
		err := c.Send(p, start, stop)
		if err != nil && err != via.ErrQueueFull {
			w.Fatal(err)
		}
		return err == nil
	})
}

// words makes n words at random, of which the first has a number of its own.
func (w *World) words(n int) []byte {
	w.number++
	b := make([]byte, n*channel.Word)
	_, _ = rand.NewChaCha8([32]byte{byte(w.number), byte(w.number >> 8)}).Read(b)
	binary.LittleEndian.PutUint64(b, w.number)
	return b
}

func numberOf(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// differs fails the check over a message that is not what was sent. On a wire that loses frames
// it may be an older one, which was sent again while it was slow: then it is to be sent anew.
func (w *World) differs(format string, args ...any) (there bool) {
	w.Helper()
	if !w.losing.Load() {
		w.Fatalf(format, args...)
	}
	return false
}

// readPDU returns the bytes of a message.
func readPDU(c *channel.Channel, m channel.PDU) []byte {
	b := make([]byte, m.Length)
	return b[:c.Read(m, b)]
}

// takePDU takes messages until the one comes that is want, and releases those before it. It
// returns false if the wire has lost it; a message that was damaged excuses nothing by
// itself.
func (w *World) takePDU(c *channel.Channel, want []byte) (m channel.PDU, there bool) {
	w.Helper()
	for {
		m, there := w.nextPDU(c)
		if !there {
			return m, false
		}
		if m.Err != nil {
			w.releasePDU(c, m)
			if !w.lost() {
				w.Fatalf("%+v, over a wire that has lost nothing", m)
			}
			continue
		}
		got := readPDU(c, m)
		switch {
		case bytes.Equal(got, want):
			return m, true
		case len(got) >= channel.Word && numberOf(got) < numberOf(want) && w.losing.Load():
			w.releasePDU(c, m) // a copy that was sent again
		default:
			w.Fatalf("a message of %d bytes differs from that of %d that was sent: %+v", len(got), len(want), m)
		}
	}
}

func (w *World) releasePDU(c *channel.Channel, m channel.PDU) {
	w.Helper()
	OK(w, c.Release(m))
}

// putWords writes b to the pages from which c sends, at a word, once all has left that c has sent: on a
// wire that loses frames a copy of a message that has come may still be read from there.
func (w *World) putWords(c *channel.Channel, start int, b []byte) (stop int) {
	w.Helper()
	OK(w, c.Flush(Context(w)))
	return c.SendPages().Put(start, b)
}

// deliver sends want, which is short, from a word on until it has come.
func (w *World) deliver(from, to *channel.Channel, p channel.Priority, start int, want []byte) (m channel.PDU) {
	w.Helper()
	stop := w.putWords(from, start, want)
	w.try("a message", shortMessage, func() (there bool) {
		w.sendWords(from, p, start, stop)
		m, there = w.takePDU(to, want)
		return there
	})
	return m
}

// newPages makes pages of a NIC, which are freed when the check has ended.
func (w *World) newPages(nic *via.NIC) *channel.Pages {
	w.Helper()
	pages := Must(channel.NewPages(Context(w), nic, channel.DefaultPageSize, via.MemoryAttributes{}))(w)
	closeAfterwards(w, pages.Close)
	return pages
}

// channels opens one pair of channels.
func (w *World) channels(o channel.Options) (x, y *channel.Channel) {
	w.Helper()
	clients, servers := w.Channels(1, o, o)
	return clients[0], servers[0]
}

// rawChannel is a channel of A as its driver has it, over memory whose rights a check may change.
type rawChannel struct {
	*driver.Channel
	send, recv *via.Memory
	at         [2]int // where the double pages begin in them
}

// pages is a double page of either memory.
func (r *rawChannel) pages(i int) []byte {
	m := []*via.Memory{r.send, r.recv}[i]
	return m.Bytes()[r.at[i]:][:2*channel.DefaultPageSize]
}

// leave waits until all that x has sent has left, or has come to nothing.
func (w *World) leave(x *rawChannel) {
	w.Helper()
	w.Until("what was sent to leave", func() bool {
		for p := range datasheet.ChannelPriorities {
			if issued, ended, err := x.Sent(p); err != nil || issued != ended {
				OK(w, err)
				return false
			}
		}
		return true
	})
}

func (w *World) rawPair() (x *rawChannel, y *channel.Channel) {
	w.Helper()
	ctx := Context(w)
	x = &rawChannel{}
	var segments [2]datasheet.DataSegment
	for i, m := range []**via.Memory{&x.send, &x.recv} {
		*m = Must(w.A.Alloc(ctx, 3*channel.DefaultPageSize, via.MemoryAttributes{}))(w)
		x.at[i] = -int((*m).Address()) & (channel.DefaultPageSize - 1)
		segments[i] = datasheet.DataSegment{Address: (*m).Address() + uint64(x.at[i]), Handle: (*m).Handle()}
	}
	x.Channel = Must(w.A.CreateChannel(ctx, driver.ChannelAttributes{Ptag: w.A.Ptag(), Send: segments[0], Recv: segments[1]}))(w)
	closeAfterwards(w, x.Close, x.send.Close, x.recv.Close)
	l := Must(channel.Listen(w.B, "raw", channel.Options{}))(w)
	w.Until("a connection", func() bool {
		_, err := x.ConnectRequest(ctx, l.Address(), "")
		if err != nil && !errors.Is(err, via.ErrNoMatch) { // the listener does not wait yet
			w.Fatal(err)
		}
		return err == nil
	})
	y = Must(l.Accept(ctx))(w)
	closeAtEnd(w, y)
	OK(w, l.Close())
	return x, y
}
