package driver

import (
	"cmp"
	"context"
	"fmt"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/hotlock"
	"github.com/trapeze-nic/trapeze/internal/mmio"
)

// ChannelAttributes of a channel.
type ChannelAttributes struct {
	Ptag *Ptag // nil is the NIC's default
	// Page says how large a page is; MinChannelPageLog2, 4 KiB, if zero. Both ends of a
	// connection must have the same.
	Page datasheet.ChannelPage
	// Send and Recv are the double pages: two pages each of registered memory, aligned to a
	// page. Their Length is not used.
	Send, Recv datasheet.DataSegment
	// Spaced has the CRC so far and the clock stored behind each cell that is received.
	Spaced bool
	// Kernel makes it channel 0, of which there is one: it has no connection and receives
	// nothing, so Recv is zero. The first word of each of its messages is the number of the
	// channel that the others go on (SPEC.md 16.6).
	Kernel bool
}

// Channel is an endpoint of kind Channel (SPEC.md 16): what it sends and receives are words of
// two double pages, and a send is one store. Methods may be called from several goroutines;
// who uses which part of the double pages is for the caller to arrange.
type Channel struct {
	endpoint
	attributes ChannelAttributes
	closedAs   error

	senders [datasheet.ChannelPriorities]channelSender
	receive channelBell

	mu      hotlock.Mutex                               // guards what follows, while it is used
	words   struct{ transmit, receive, status *uint64 } // of the control page
	ends    []uint32
	closed  bool
	refuses bool // closed for doorbells, while the channel is being destroyed
	misses  uint32
}

// channelSender is one priority of a channel.
type channelSender struct {
	mu     hotlock.Mutex
	bell   channelBell
	issued uint32 // stores, free-running
	ended  uint32 // messages that have ended, as far as is known
	closed bool
}

// CreateChannel creates a channel, which is not connected and has no room for what comes. It
// fails with ErrNotSupported if the device has no channels, with ErrResource if it has no
// number or no memory for one more, or if there is a channel 0 and another is wanted, and with ErrInvalidParameter for pages that are not
// aligned, or not registered, or receiving ones that the device may not write.
func (n *NIC) CreateChannel(ctx context.Context, a ChannelAttributes) (*Channel, error) {
	return get(ctx, n.do, "create channel", func() (*Channel, error) {
		if !n.hasSRAM(datasheet.FeatureChannel) {
			return nil, hinted(fmt.Errorf("%w: channels", descriptors.ErrNotSupported), noSRAM)
		}
		if a.Page = cmp.Or(a.Page, datasheet.MinChannelPageLog2); !a.Page.Valid() {
			return nil, hinted(fmt.Errorf("%w: pages of 2^%d bytes", descriptors.ErrInvalidParameter, a.Page), "a page has 4, 8 or 16 KiB")
		}
		a.Ptag = n.ptagOr(a.Ptag)
		if err := a.Ptag.use(n); err != nil {
			return nil, err
		}
		defer a.Ptag.leave() // the NIC knows from here on that it is in use
		c := &Channel{endpoint: endpoint{n: n, what: "channel"}, attributes: a, closedAs: n.error("use channel", descriptors.ErrClosed)}
		c.queues = c
		reply, err := n.execute(ctx, newCommand(datasheet.OpCreateEndpoint, a.body()))
		if err != nil {
			return nil, err
		}
		created := datasheet.Reply[datasheet.EndpointCreated](reply)
		if err := n.adopt(&c.endpoint, created.Endpoint, a.Kernel); err != nil {
			return nil, err
		}
		if err := c.place(uint64(created.Send)); err != nil {
			return nil, n.fail(err)
		}
		return c, nil
	})
}

func (a *ChannelAttributes) body() datasheet.CreateEndpointBody {
	b := datasheet.CreateEndpointBody{Kind: datasheet.KindChannel, Reliability: datasheet.Unreliable, Ptag: a.Ptag.Number(),
		SendIOVA: a.Send.Address, SendCQ: a.Send.Handle, RecvIOVA: a.Recv.Address, RecvCQ: a.Recv.Handle,
		SendLog2: uint8(a.Page), RecvLog2: uint8(a.Page), MaxTransfer: a.Page.Bytes(),
		SendVector: datasheet.NoVector, RecvVector: datasheet.NoVector}
	if a.Spaced {
		b.Options |= datasheet.EndpointSpaced
	}
	if a.Kernel {
		b.Options |= datasheet.EndpointKernel
	}
	return b
}

// place finds the control page, which is at an offset in BAR4, and the doorbells of a channel that
// the device has created.
func (c *Channel) place(at uint64) error {
	n := c.n
	page, err := n.givenSRAM("control page", at, datasheet.PageSize, datasheet.PageSize)
	if err != nil {
		return err
	}
	control := datasheet.ChannelControlAt(page)
	c.words.transmit, c.words.receive, c.words.status = &control.Transmit, &control.Receive, &control.SendStatus
	c.ends = datasheet.ChannelEndsAt(page)
	doorbells := datasheet.EndpointPage(c.number)
	c.senders[datasheet.PriorityHigh].bell = n.channelBellAt(doorbells+datasheet.DoorbellHigh, datasheet.ChannelDepth)
	c.senders[datasheet.PriorityLow].bell = n.channelBellAt(doorbells+datasheet.DoorbellLow, datasheet.ChannelDepth)
	c.receive = n.channelBellAt(doorbells+datasheet.DoorbellReceive, 1)
	return nil
}

// Words is the number of 8-byte words of a double page.
func (c *Channel) Words() uint32 { return c.attributes.Page.Words() }

// Send has the words of the sending double page from start on up to stop, which is the word
// behind the last, sent at a priority: they may run over the end of the double page to its
// start. It is one store, and does not wait. The words must not change until the message
// has left, see Sent. It fails with ErrQueueFull (bare, and without an allocation) if
// ChannelDepth messages of that priority are under way, with ErrInvalidParameter for offsets
// that are not in the double page, or the same, with ErrClosed, and with the reason why a
// device whose doorbells are not mapped has not taken one. A channel that is not connected
// loses what is sent, and says so in SendStatus.
func (c *Channel) Send(p datasheet.ChannelPriority, start, stop uint32) error {
	if p >= datasheet.ChannelPriorities {
		return c.n.refuse("send on channel", fmt.Errorf("%w: priority %d", descriptors.ErrInvalidParameter, p), "")
	}
	s := &c.senders[p]
	s.mu.Lock()
	if s.closed { // which matters more than what is wrong with the words
		s.mu.Unlock()
		return c.closedAs
	}
	if words := c.Words(); start >= words || stop >= words || start == stop {
		s.mu.Unlock()
		return c.n.refuse("send on channel", fmt.Errorf("%w: words %d up to %d of %d", descriptors.ErrInvalidParameter, start, stop, words), "")
	}
	if s.issued-s.ended >= datasheet.ChannelDepth {
		if err := c.learn(p); err != nil {
			s.mu.Unlock()
			return err
		}
	}
	err := s.bell.ring(datasheet.ChannelBell(start, stop))
	if err == nil {
		s.issued++
	}
	s.mu.Unlock()
	if err != nil {
		return c.n.error("send on channel", err)
	}
	c.n.posted()
	return nil
}

// learn finds out how many messages of a priority have ended: one at least, or it fails. The
// sender's lock is held.
func (c *Channel) learn(p datasheet.ChannelPriority) error {
	s := &c.senders[p]
	before := s.ended
	for range 2 { // where the device must be stepped
		st, err := c.SendStatus()
		if err != nil {
			return err
		}
		// The device's count has 8 bits, and is its word only.
		underWay := uint32(uint8(s.issued) - st.Ended[p])
		if underWay > s.issued-before {
			return c.n.error("send on channel", c.n.fail(fmt.Errorf("%w: it says that %d of %d messages are under way", ErrProtocol, underWay, s.issued-before)))
		}
		if s.ended = s.issued - underWay; s.ended != before {
			return nil
		}
		if !c.n.progress() {
			break
		}
	}
	return descriptors.ErrQueueFull
}

// Sent returns how many messages of a priority Send has taken, and how many of them have
// ended: their words are the caller's again. Both count modulo 2^32.
func (c *Channel) Sent(p datasheet.ChannelPriority) (issued, ended uint32, err error) {
	s := &c.senders[p]
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return s.issued, s.issued, c.closedAs
	}
	if s.issued != s.ended {
		if err := c.learn(p); err != nil && err != descriptors.ErrQueueFull {
			return s.issued, s.ended, err
		}
	}
	return s.issued, s.ended, nil
}

// Allow lets what comes go to the receiving double page from start on, up to stop, where
// nothing more is written. It is one store. It fails as Send does.
func (c *Channel) Allow(start, stop uint32) error {
	return c.allow(start, stop, datasheet.ChannelBell(start, stop))
}

// AllowMore lets what comes go on where it has come to, up to stop.
func (c *Channel) AllowMore(stop uint32) error {
	return c.allow(0, stop, datasheet.ChannelBell(0, stop)|datasheet.ChannelKeep)
}

func (c *Channel) allow(start, stop, word uint32) error {
	if words := c.Words(); start >= words || stop >= words || c.attributes.Kernel {
		return c.n.refuse("receive on channel", fmt.Errorf("%w: words %d up to %d of %d", descriptors.ErrInvalidParameter, start, stop, words), "")
	}
	c.mu.Lock()
	if c.closed || c.refuses {
		c.mu.Unlock()
		return c.closedAs
	}
	err := c.receive.ring(word)
	c.mu.Unlock()
	if err != nil {
		return c.n.error("receive on channel", err)
	}
	c.n.posted()
	return nil
}

// Received returns the receive word. What the device wrote before it is visible.
func (c *Channel) Received() (datasheet.ReceiveWord, error) {
	w, err := c.load(c.words.receive)
	return datasheet.DecodeReceiveWord(w, c.attributes.Page), err
}

// Transmit returns the transmit word.
func (c *Channel) Transmit() (datasheet.TransmitWord, error) {
	w, err := c.load(c.words.transmit)
	return datasheet.DecodeTransmitWord(w, c.attributes.Page), err
}

// SendStatus says what has become of the stores of Send.
func (c *Channel) SendStatus() (datasheet.SendStatus, error) {
	w, err := c.load(c.words.status)
	return datasheet.DecodeSendStatus(w), err
}

// End says how PDU n ended, as the receive word counts them. It is that of PDU n+256 once
// so many more have come.
func (c *Channel) End(n uint8) (datasheet.ChannelEnd, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return 0, c.closedAs
	}
	return datasheet.ChannelEnd(mmio.Read32(&c.ends[n])), nil
}

// load reads a word of the control page.
func (c *Channel) load(word *uint64) (uint64, error) {
	c.mu.Lock()
	if c.closed {
		c.mu.Unlock()
		return 0, c.closedAs
	}
	w := mmio.Read64(word)
	c.mu.Unlock()
	mmio.FromDevice()
	return w, nil
}

// Poll returns the receive word, and steps the device if it says no more PDUs than seen and
// it needs to be stepped. It fails with ErrClosed, with how the connection ended
// (ErrDisconnected, ErrPeerLost, ErrConnectionBroken) once nothing more can come, and with
// what is wrong with the device.
func (c *Channel) Poll(seen uint8) (datasheet.ReceiveWord, error) {
	w, err := c.Received()
	if err != nil || w.PDUs != seen {
		return w, err
	}
	if c.n.progress() {
		if w, err = c.Received(); err != nil || w.PDUs != seen {
			return w, err
		}
	}
	c.mu.Lock()
	c.misses++
	overdue := c.misses%missesPerCheck == 0
	c.mu.Unlock()
	if err := c.n.notDone("poll channel", overdue); err != descriptors.ErrNotDone {
		return w, err
	}
	if w.Status&datasheet.ChannelConnected == 0 {
		if end := c.ended(datasheet.Unreliable, datasheet.StatusFlushed); end != 0 {
			return w, c.n.error("poll channel", end)
		}
	}
	return w, nil
}

// Wait waits until Poll would return another count of PDUs than seen, or would fail, or
// until ctx ends, with whose error it fails then. Channels have no interrupts: the longer
// nothing comes the more seldom it looks.
func (c *Channel) Wait(ctx context.Context, seen uint8) (datasheet.ReceiveWord, error) {
	const op = "wait for channel"
	if ctx == nil {
		return datasheet.ReceiveWord{}, c.n.noContext(op)
	}
	w := waiter{n: c.n, ctx: ctx, done: c.n.done}
	for {
		word, err := c.Poll(seen)
		if err != nil || word.PDUs != seen {
			return word, err
		}
		if err := w.pause(nil, nil, nil); err != nil {
			return word, c.n.error(op, err)
		}
	}
}

func (c *Channel) refuse(yes bool) {
	for p := range c.senders {
		s := &c.senders[p]
		s.mu.Lock()
		s.closed = yes
		s.mu.Unlock()
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.refuses = yes
}

func (c *Channel) close() {
	c.refuse(true)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

func (c *Channel) holds(handle uint32) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return !c.closed && (handle == c.attributes.Send.Handle || handle == c.attributes.Recv.Handle)
}
