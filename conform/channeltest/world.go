package channeltest

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/conform/viatest"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/via"
)

// world is two NICs and the wire between them.
type world struct {
	viatest.T
	*viatest.Pair
	before [2]tally
	losing atomic.Bool // frames have been lost on the wire: that stays true
	number uint64      // of the last message
}

// tally is what a NIC has counted of its frames, and of the cells in them.
type tally struct{ sent, received, damaged, dropped, cellsSent, cellsReceived uint64 }

func newWorld(t viatest.T, p *viatest.Pair) *world {
	w := &world{T: t, Pair: p}
	w.before = viatest.Must(w.tally())(t)
	return w
}

// tally reads what both NICs have counted since the check began.
func (w *world) tally() (now [2]tally, err error) {
	for i, nic := range []*via.NIC{w.A, w.B} {
		counters, err := nic.Driver().Counters()
		if err != nil {
			return now, err
		}
		c := func(n descriptors.Counter) uint64 { return counters[n.String()] }
		was := w.before[i]
		now[i] = tally{
			sent:          c(descriptors.CounterFramesSent) - was.sent,
			received:      c(descriptors.CounterFramesReceived) - was.received,
			damaged:       c(descriptors.CounterChecksumErrors) - was.damaged,
			dropped:       c(descriptors.CounterFramesDropped) - was.dropped,
			cellsSent:     c(descriptors.CounterCellsSent) - was.cellsSent,
			cellsReceived: c(descriptors.CounterCellsReceived) + c(descriptors.CounterCellsDropped) - was.cellsReceived,
		}
	}
	return now, nil
}

const (
	// quiet is how long nothing comes before a check asks whether something was lost; patter
	// the same on a wire that is known to lose frames.
	quiet  = 20 * time.Millisecond
	patter = 5 * time.Millisecond
	// settling is how long what is under way may take to be counted at its end, and ceasing
	// how long both ends may go on without ever having counted the same: the probes of a
	// connection whose frames are lost never end.
	settling, ceasing = time.Second, 2 * time.Second
)

// excuses counts how often a check was told that the wire loses frames.
var excuses atomic.Int64

// lost reports whether the wire has lost, doubled or damaged frames.
func (w *world) lost() bool {
	w.Helper()
	viatest.OK(w, w.look(w.Context()))
	if w.losing.Load() {
		excuses.Add(1)
	}
	return w.losing.Load()
}

// look finds out whether the wire loses frames, by what both NICs have counted: other numbers
// of frames at its ends, or damaged ones. A copy may make up for a frame that was lost; then
// cells are missing, and the copy was dropped.
func (w *world) look(ctx context.Context) error {
	var last [2]tally
	limit := time.Now().Add(ceasing)
	for end := time.Now().Add(settling); !w.losing.Load() && ctx.Err() == nil; time.Sleep(time.Millisecond) {
		for range 16 { // NICs that are stepped
			w.A.Poll()
			w.B.Poll()
		}
		now, err := w.tally()
		if err != nil {
			return err
		}
		a, b := now[0], now[1]
		missing := a.cellsSent != b.cellsReceived || b.cellsSent != a.cellsReceived
		switch {
		case a.damaged+b.damaged > 0:
			w.losing.Store(true)
		case now == last && a.sent == b.received && b.sent == a.received && (a.dropped+b.dropped == 0 || !missing):
			return nil
		case time.Now().After(end) || time.Now().After(limit):
			w.losing.Store(true)
		case now != last: // it goes on
			end, last = time.Now().Add(settling), now
		}
	}
	return nil
}

const (
	// short is how many words a message may have of which a frame that is lost now and then
	// leaves most copies whole.
	short = 40
	// tries bounds how often a longer one is sent over a wire that loses frames.
	tries = 5
)

// try has attempt made until it says that a message of so many words has come. Only a wire that
// loses frames excuses one that has not; there, a long message is given up after some.
func (w *world) try(what string, words int, attempt func() bool) (came bool) {
	w.Helper()
	end := time.Now().Add(viatest.Patience)
	for i := 1; !attempt(); i++ {
		if !w.lost() {
			w.Fatalf("%s: it has not come as it was sent, over a wire that has lost nothing", what)
		}
		if words > short && i == tries {
			return false
		}
		if time.Now().After(end) {
			w.Fatalf("waited %v for: %s", viatest.Patience, what)
		}
	}
	return true
}

// under returns a context that also ends when the wire has lost something.
func (w *world) under() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithTimeout(w.Context(), viatest.Patience)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-ctx.Done():
				return
			case <-time.After(10 * quiet):
			}
			if w.look(ctx) != nil || w.losing.Load() {
				cancel()
			}
		}
	}()
	return ctx, func() {
		cancel()
		<-ended
	}
}

// patiently polls until f reports true; it returns false if the wire has lost something, and
// nothing is under way any more.
func (w *world) patiently(f func() bool) bool {
	w.Helper()
	began := time.Now()
	silent, last := began, [2]tally{}
	for i := 0; !f(); i++ {
		w.A.Poll()
		w.B.Poll()
		if i%64 != 63 {
			continue
		}
		switch now := time.Now(); {
		case now.Sub(began) > viatest.Patience:
			w.Fatalf("waited %v for a message", viatest.Patience)
		case w.losing.Load() && now.Sub(silent) > patter:
			t := viatest.Must(w.tally())(w)
			if t == last {
				return !w.lost()
			}
			silent, last = now, t
		case now.Sub(silent) > quiet:
			if w.lost() {
				return false
			}
			silent = time.Now()
		default:
			time.Sleep(time.Microsecond)
		}
	}
	return true
}

// next takes the next message of c; there is none if the wire has lost it.
func (w *world) next(c *channel.Channel) (m channel.PDU, there bool) {
	w.Helper()
	there = w.patiently(func() bool {
		var err error
		if m, err = c.Poll(); err != nil && err != channel.ErrEmpty {
			w.Fatal(err)
		}
		return err == nil
	})
	return m, there
}

// allow has c store what comes from start on up to stop. What a wire that loses frames still
// brings of before must not land there.
func (w *world) allow(c *channel.Channel, start, stop int) {
	w.Helper()
	if w.losing.Load() {
		w.patiently(func() bool {
			_, err := c.Poll()
			return err != nil && err != channel.ErrEmpty
		})
	}
	viatest.OK(w, c.Allow(start, stop))
}

// send posts the words from start up to stop, once there is room.
func (w *world) send(c *channel.Channel, p channel.Priority, start, stop int) {
	w.Helper()
	w.Until(w, "room to send", func() bool {
		err := c.Send(p, start, stop)
		if err != nil && err != channel.ErrFull {
			w.Fatal(err)
		}
		return err == nil
	})
}

// counters are those of a NIC.
func (w *world) counters(nic *via.NIC) map[string]uint64 {
	w.Helper()
	return viatest.Must(nic.Driver().Counters())(w)
}

// message makes n words at random, of which the first has a number of its own.
func (w *world) message(n int) []byte {
	w.number++
	b := make([]byte, n*channel.Word)
	_, _ = rand.NewChaCha8([32]byte{byte(w.number), byte(w.number >> 8)}).Read(b)
	binary.LittleEndian.PutUint64(b, w.number)
	return b
}

func numberOf(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }

// differs fails the check over a message that is not what was sent. On a wire that loses frames
// it may be an older one, which was sent again while it was slow: then it is to be sent anew.
func (w *world) differs(format string, args ...any) (there bool) {
	w.Helper()
	if !w.losing.Load() {
		w.Fatalf(format, args...)
	}
	return false
}

// read returns the bytes of a message.
func read(c *channel.Channel, m channel.PDU) []byte {
	b := make([]byte, m.Length)
	return b[:c.Read(m, b)]
}

// take takes messages until the one comes that is want, and releases those before it. It
// returns false if the wire has lost it; a message that was damaged excuses nothing by
// itself.
func (w *world) take(c *channel.Channel, want []byte) (m channel.PDU, there bool) {
	w.Helper()
	for {
		m, there := w.next(c)
		if !there {
			return m, false
		}
		if m.Err != nil {
			w.release(c, m)
			if !w.lost() {
				w.Fatalf("%+v, over a wire that has lost nothing", m)
			}
			continue
		}
		got := read(c, m)
		switch {
		case bytes.Equal(got, want):
			return m, true
		case len(got) >= channel.Word && numberOf(got) < numberOf(want) && w.losing.Load():
			w.release(c, m) // a copy that was sent again
		default:
			w.Fatalf("a message of %d bytes differs from that of %d that was sent: %+v", len(got), len(want), m)
		}
	}
}

func (w *world) release(c *channel.Channel, m channel.PDU) {
	w.Helper()
	viatest.OK(w, c.Release(m))
}

// put writes b to the pages from which c sends, at a word, once all has left that c has sent: on a
// wire that loses frames a copy of a message that has come may still be read from there.
func (w *world) put(c *channel.Channel, start int, b []byte) (stop int) {
	w.Helper()
	viatest.OK(w, c.Flush(viatest.Context(w)))
	return c.SendPages().Put(start, b)
}

// deliver sends want, which is short, from a word on until it has come.
func (w *world) deliver(from, to *channel.Channel, p channel.Priority, start int, want []byte) (m channel.PDU) {
	w.Helper()
	stop := w.put(from, start, want)
	w.try("a message", short, func() (there bool) {
		w.send(from, p, start, stop)
		m, there = w.take(to, want)
		return there
	})
	return m
}

// afterwards is a context for what is cleaned up, when that of the check has ended.
func (w *world) afterwards() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), viatest.Patience)
}

// free frees pages when the check has ended.
func (w *world) free(pages *channel.Pages) {
	w.Cleanup(func() {
		ctx, cancel := w.afterwards()
		defer cancel()
		if err := pages.Free(ctx); err != nil {
			w.Error(err)
		}
	})
}

// pair opens one pair of channels.
func (w *world) pair(o *channel.Options) (x, y *channel.Channel) {
	w.Helper()
	clients, servers := Connect(w, w.Pair, 1, o, o)
	return clients[0], servers[0]
}

// raw is a channel of A as its driver has it, over memory whose rights a check may change, and
// the channel of B that it is connected with.
type raw struct {
	*driver.Channel
	send, recv *via.Memory
	at         [2]int // where the double pages begin in them
}

// pages is a double page of either memory.
func (r *raw) pages(i int) []byte {
	m := []*via.Memory{r.send, r.recv}[i]
	return m.Bytes()[r.at[i]:][:2*channel.DefaultPageSize]
}

func (w *world) rawPair() (x *raw, y *channel.Channel) {
	w.Helper()
	ctx := viatest.Context(w)
	x = &raw{}
	var segments [2]descriptors.DataSegment
	for i, m := range []**via.Memory{&x.send, &x.recv} {
		*m = viatest.Must(w.A.Alloc(ctx, 3*channel.DefaultPageSize, via.MemoryAttributes{}))(w)
		x.at[i] = -int((*m).Address()) & (channel.DefaultPageSize - 1)
		segments[i] = descriptors.DataSegment{Address: (*m).Address() + uint64(x.at[i]), Handle: (*m).Handle()}
	}
	x.Channel = viatest.Must(w.A.Driver().CreateChannel(ctx, driver.ChannelAttributes{Ptag: w.A.Ptag().Number(), Send: segments[0], Recv: segments[1]}))(w)
	w.Cleanup(func() {
		ctx, cancel := w.afterwards()
		defer cancel()
		for _, end := range []func(context.Context) error{x.Destroy, x.send.Deregister, x.recv.Deregister} {
			if err := end(ctx); err != nil {
				w.Error(err)
			}
		}
	})
	l := viatest.Must(channel.Listen(w.B, "raw", nil))(w)
	w.Until(w, "a connection", func() bool {
		_, err := x.ConnectRequest(ctx, l.Address(), nil)
		if err != nil && !errors.Is(err, via.ErrNoMatch) { // the listener does not wait yet
			w.Fatal(err)
		}
		return err == nil
	})
	y = viatest.Must(l.Accept(ctx))(w)
	w.Cleanup(func() {
		if err := y.Close(); err != nil {
			w.Error(err)
		}
	})
	viatest.OK(w, l.Close())
	return x, y
}
