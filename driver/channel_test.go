package driver_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/soak"
	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// channelOver is a channel over memory of its own.
type channelOver struct {
	*driver.Channel
	send, recv []byte
	memory     *driver.Memory
}

func newChannel(t *testing.T, n *driver.NIC, page datasheet.ChannelPage) channelOver {
	t.Helper()
	size := int(page.Bytes())
	m, err := n.Alloc(contextFor(t), 3*size, driver.MemoryAttributes{})
	if err != nil {
		t.Fatal(err)
	}
	skip := -int(m.Address()) & (1<<page - 1)
	at := func(i int) datasheet.DataSegment {
		return datasheet.DataSegment{Address: m.Address() + uint64(skip+i*size), Handle: m.Handle()}
	}
	c, err := n.CreateChannel(contextFor(t), driver.ChannelAttributes{Page: page, Send: at(0), Recv: at(1)})
	if err != nil {
		t.Fatal(err)
	}
	return channelOver{c, m.Bytes()[skip:][:size], m.Bytes()[skip+size:][:size], m}
}

// connectedChannels makes a pair of channels and connects them.
func connectedChannels(t *testing.T, a, b *driver.NIC, page datasheet.ChannelPage) (x, y channelOver) {
	t.Helper()
	x, y = newChannel(t, a, page), newChannel(t, b, page)
	done := make(chan error, 1)
	go func() {
		c, err := b.ConnectWait(contextFor(t), "channel")
		if err == nil {
			_, err = c.Accept(contextFor(t), y.Channel)
		}
		done <- err
	}()
	err := error(descriptors.ErrNoMatch) // nobody waits yet
	for errors.Is(err, descriptors.ErrNoMatch) {
		_, err = x.ConnectRequest(contextFor(t), driver.Address{MAC: b.Identity().MAC, Discriminator: "channel"}, "")
	}
	if err := errors.Join(err, <-done); err != nil {
		t.Fatal(err)
	}
	return x, y
}

// TestChannels: messages of any size cross between channels both ways, whoever steps the
// devices and however they learn of doorbells, more of them than there are doorbell words.
func TestChannels(t *testing.T) {
	for name, options := range map[string]emulator.PairOptions{
		"inline": {}, "threads": emulator.PairOptions{Threads: true}, "mapped": emulator.PairOptions{Doorbells: emulator.DoorbellsMapped},
		"mapped, threads": emulator.PairOptions{Doorbells: emulator.DoorbellsMapped, Threads: true},
		"trapped":         emulator.PairOptions{Doorbells: emulator.DoorbellsTrapped, Threads: true},
	} {
		t.Run(name, func(t *testing.T) {
			checkLeaks(t)
			_, _, a, b := newPair(t, options)
			rounds := uint32(datasheet.ChannelDepth + 4)
			if soak.Wanted() {
				rounds = 3 * datasheet.ChannelDepth
			}
			for page := datasheet.ChannelPage(datasheet.MinChannelPageLog2); page <= datasheet.MaxChannelPageLog2; page++ {
				x, y := connectedChannels(t, a, b, page)
				for round := range rounds {
					bounceOn(t, x, y, datasheet.ChannelPriority(round%2), round)
				}
				for _, c := range []channelOver{x, y} {
					if err := c.Close(contextFor(t)); err != nil {
						t.Error(err)
					}
				}
			}
			if err := errors.Join(a.Close(), b.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// bounceOn sends a message from x to y and back, at a place that depends on round.
func bounceOn(t *testing.T, x, y channelOver, p datasheet.ChannelPriority, round uint32) {
	t.Helper()
	words := x.Words()
	start := round * 97 % words
	n := 1 + round*53%(words/2)
	message := bytes.Repeat([]byte{byte(round + 1)}, int(n)*8)
	binary.LittleEndian.PutUint32(message, round)
	for _, way := range [][2]channelOver{{x, y}, {y, x}} {
		from, to := way[0], way[1]
		seen, err := to.Received()
		if err == nil {
			err = to.Allow(start, (start+words-1)%words)
		}
		if err != nil {
			t.Fatal(err)
		}
		for i, v := range message {
			from.send[(int(start)*8+i)%len(from.send)] = v
		}
		if err := from.Send(p, start, (start+n)%words); err != nil {
			t.Fatal(err)
		}
		w, err := to.Wait(contextFor(t), seen.PDUs)
		if err != nil {
			t.Fatal(err)
		}
		end, err := to.End(seen.PDUs)
		if err != nil || !end.Whole() || end.Length() != len(message) || end.Offset() != uint32(w.Current) {
			t.Fatalf("round %d: end %08x, %+v, %v", round, end, w, err)
		}
		for i, v := range message {
			if got := to.recv[(int(start)*8+i)%len(to.recv)]; got != v {
				t.Fatalf("round %d: byte %d is %#x", round, i, got)
			}
		}
		if issued, ended, err := from.Sent(p); err != nil || issued != ended {
			t.Fatalf("round %d: %d of %d messages have left, %v", round, ended, issued, err)
		}
	}
}

// TestChannelRefusals: what makes no sense is refused, and names what.
func TestChannelRefusals(t *testing.T) {
	checkLeaks(t)
	_, _, a, b := newPair(t, emulator.PairOptions{})
	m, err := a.Alloc(contextFor(t), 64<<10, driver.MemoryAttributes{})
	if err != nil {
		t.Fatal(err)
	}
	readOnly, err := a.Alloc(contextFor(t), 64<<10, driver.MemoryAttributes{ReadOnly: true})
	if err != nil {
		t.Fatal(err)
	}
	aligned := func(m *driver.Memory) datasheet.DataSegment {
		return datasheet.DataSegment{Address: (m.Address() + 16383) &^ 16383, Handle: m.Handle()}
	}
	for name, spoil := range map[string]func(*driver.ChannelAttributes){
		"page of 2 KiB":        func(a *driver.ChannelAttributes) { a.Page = 11 },
		"page of 32 KiB":       func(a *driver.ChannelAttributes) { a.Page = 15 },
		"no sending page":      func(a *driver.ChannelAttributes) { a.Send = datasheet.DataSegment{} },
		"no receiving page":    func(a *driver.ChannelAttributes) { a.Recv.Handle++ },
		"not aligned":          func(a *driver.ChannelAttributes) { a.Recv.Address += 8 },
		"not all registered":   func(a *driver.ChannelAttributes) { a.Send.Address += 60 << 10 },
		"receiving, read only": func(a *driver.ChannelAttributes) { a.Recv = aligned(readOnly) },
	} {
		attributes := driver.ChannelAttributes{Send: aligned(m), Recv: aligned(m)}
		spoil(&attributes)
		if _, err := a.CreateChannel(contextFor(t), attributes); !errors.Is(err, descriptors.ErrInvalidParameter) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := a.CreateChannel(contextFor(t), driver.ChannelAttributes{Ptag: driver.PtagOf(a, 12345), Send: aligned(m), Recv: aligned(m)}); !errors.Is(err, descriptors.ErrInvalidPtag) {
		t.Error(err)
	}
	x := newChannel(t, a, datasheet.MinChannelPageLog2)
	for name, err := range map[string]error{
		"no such priority":   x.Send(datasheet.ChannelPriorities, 0, 1),
		"start beyond":       x.Send(datasheet.PriorityLow, 1024, 1),
		"stop beyond":        x.Send(datasheet.PriorityLow, 0, 1024),
		"nothing":            x.Send(datasheet.PriorityLow, 7, 7),
		"receive from afar":  x.Allow(1024, 0),
		"receive up to afar": x.AllowMore(1024),
	} {
		if !errors.Is(err, descriptors.ErrInvalidParameter) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// Nobody is at the other end: what is sent is lost, and the status says so.
	if err := x.Send(datasheet.PriorityHigh, 0, 1); err != nil {
		t.Error(err)
	}
	a.Poll()
	if s, err := x.SendStatus(); err != nil || s.Result[datasheet.PriorityHigh] != datasheet.ChannelNotConnected || s.Ended[0] != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	if err := x.memory.Close(contextFor(t)); !errors.Is(err, driver.ErrInUse) {
		t.Errorf("memory of a channel: %v", err)
	}
	if err := x.Close(contextFor(t)); err != nil {
		t.Error(err)
	}
	if err := x.Send(datasheet.PriorityHigh, 0, 1); !errors.Is(err, descriptors.ErrClosed) {
		t.Error(err)
	}
	if err := x.Allow(0, 1); !errors.Is(err, descriptors.ErrClosed) {
		t.Error(err)
	}
	if _, err := x.Poll(0); !errors.Is(err, descriptors.ErrClosed) {
		t.Error(err)
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
}

// TestChannelFull: with as many messages under way as may be Send says so at once, and goes on
// when one has left.
func TestChannelFull(t *testing.T) {
	checkLeaks(t)
	_, _, a, b := newPair(t, emulator.PairOptions{Doorbells: emulator.DoorbellsTrapped})
	x, _ := connectedChannels(t, a, b, datasheet.MinChannelPageLog2)
	full := 0
	for sent := 0; sent < 4*datasheet.ChannelDepth; {
		switch err := x.Send(datasheet.PriorityLow, 0, 1023); {
		case err == nil:
			sent++
		case err == descriptors.ErrQueueFull && sent >= datasheet.ChannelDepth:
			full++
			b.Poll()
		default:
			t.Fatal(sent, err)
		}
	}
	if full == 0 {
		t.Error("it was never full")
	}
	if s, err := x.SendStatus(); err != nil || s.Result != [2]datasheet.ChannelResult{} {
		t.Errorf("%+v, %v", s, err)
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
}

// TestChannelEnds: who waits learns how the connection has ended.
func TestChannelEnds(t *testing.T) {
	checkLeaks(t)
	_, _, a, b := newPair(t, emulator.PairOptions{Threads: true})
	x, y := connectedChannels(t, a, b, datasheet.MinChannelPageLog2)
	if err := x.Close(contextFor(t)); err != nil {
		t.Fatal(err)
	}
	if _, err := y.Wait(contextFor(t), 0); !errors.Is(err, descriptors.ErrDisconnected) {
		t.Error(err)
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
}

// TestChannelAllocatesNothing: a send, and a look for what has come.
func TestChannelAllocatesNothing(t *testing.T) {
	_, _, a, b := newPair(t, emulator.PairOptions{})
	x, y := connectedChannels(t, a, b, datasheet.MinChannelPageLog2)
	seen := uint8(0)
	if n := testing.AllocsPerRun(1000, func() {
		if err := y.Allow(0, 100); err != nil {
			t.Fatal(err)
		}
		if err := x.Send(datasheet.PriorityHigh, 0, 5); err != nil {
			t.Fatal(err)
		}
		for {
			w, err := y.Poll(seen)
			if err != nil {
				t.Fatal(err)
			}
			if w.PDUs != seen {
				seen = w.PDUs
				break
			}
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
}

// unmapped is a device of which nothing can be mapped.
type unmapped struct{ *emulator.Device }

func (d unmapped) Region(index int) (vfio.RegionInfo, error) {
	r, err := d.Device.Region(index)
	r.Flags &^= vfio.RegionMmap
	return r, err
}

// TestChannelsUnmapped: where nothing of a device is mapped, doorbells and the control page are
// reached by calls.
func TestChannelsUnmapped(t *testing.T) {
	checkLeaks(t)
	x, y, err := emulator.Pair(emulator.PairOptions{Doorbells: emulator.DoorbellsMapped, Threads: true})
	if err != nil {
		t.Fatal(err)
	}
	a, err := driver.New(contextFor(t), unmapped{x}, driver.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	b, err := driver.New(contextFor(t), unmapped{y}, driver.Options{Logger: quiet})
	if err != nil {
		t.Fatal(err)
	}
	p, q := connectedChannels(t, a, b, datasheet.MinChannelPageLog2)
	for round := range uint32(2 * datasheet.ChannelDepth) {
		bounceOn(t, p, q, datasheet.ChannelPriority(round%2), round)
	}
	if w, err := p.Transmit(); err != nil || w.Current != w.Stop {
		t.Errorf("%+v, %v", w, err)
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
}

// TestChannelLevels: the driver reads what the device says of its FIFOs.
func TestChannelLevels(t *testing.T) {
	checkLeaks(t)
	_, _, a, b := newPair(t, emulator.PairOptions{})
	x, y := connectedChannels(t, a, b, datasheet.MinChannelPageLog2)
	bounceOn(t, x, y, datasheet.PriorityHigh, 0)
	for _, n := range []*driver.NIC{a, b} {
		got, err := n.ChannelLevels()
		if err != nil {
			t.Fatal(err)
		}
		if got.Channels != 1 || got.Transmit != [2]int{} || got.TransmitHighest != [2]int{1, 0} || got.Receive != 0 ||
			got.ReceiveHighest < 1 || got.ReceiveSize < got.ReceiveHighest || got.Stopped != 0 || got.StoppedBy != 0 {
			t.Errorf("%+v", got)
		}
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
}

// TestAcceptNothing: an endpoint that is nil accepts nothing, and the request waits on.
func TestAcceptNothing(t *testing.T) {
	checkLeaks(t)
	_, _, a, b := newPair(t, emulator.PairOptions{Threads: true})
	x := newChannel(t, a, datasheet.MinChannelPageLog2)
	asked := make(chan error, 1)
	go func() {
		_, err := x.Dial(contextFor(t), driver.Address{MAC: b.Identity().MAC, Discriminator: "nothing"}, "")
		asked <- err
	}()
	c, err := b.ConnectWait(contextFor(t), "nothing")
	if err != nil {
		t.Fatal(err)
	}
	for _, none := range []driver.Endpoint{nil, (*driver.VI)(nil), (*driver.Ring)(nil), (*driver.Channel)(nil), x.Channel} {
		if _, err := c.Accept(contextFor(t), none); !errors.Is(err, descriptors.ErrInvalidParameter) {
			t.Errorf("%T: %v", none, err)
		}
	}
	if err := c.Reject(contextFor(t)); err != nil {
		t.Error(err)
	}
	if err := <-asked; !errors.Is(err, descriptors.ErrReject) {
		t.Error(err)
	}
	if err := errors.Join(a.Close(), b.Close()); err != nil {
		t.Error(err)
	}
}
