package via

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// Conn is a connection that carries messages, whole and in order, in both
// directions: a VI together with the buffers and descriptors of its two queues.
// Dial and Listener.Accept make one.
//
// Send copies a message. Acquire, Post, Receive and Release do without the copy.
//
// A reliable Conn loses no message to a slow reader. What was posted waits in the NIC until the
// other side has a free receive, and keeps its send buffer until then; Acquire waits once all
// buffers are in use. So a sender can be SendDepth messages ahead of what the other side can
// hold. Flush says when all of them are there.
//
// Acquire and Post belong to one goroutine at a time, Receive and Release to one,
// which may be another; Send, CloseSend, Flush and Close may be called by any.
type Conn struct {
	nic             *NIC
	vi              *VI
	memory          *Memory
	remote          Remote
	local           Address
	address         Address // of the other end
	max             int     // bytes of the largest message
	stride          int     // bytes from one buffer to the next
	sends, receives int     // descriptors for messages
	reliable        bool
	lazy            int           // receives that are posted again together
	inline          bool          // messages are built in their descriptors
	buffers         []byte        // memory, for as long as there is any: of the sends, then of the receives
	send, recv      []*Descriptor // recv twice, so that those that are posted together are in one piece
	last            []*Descriptor // the one that says that no message follows; none if unreliable
	sending         chan struct{} // held by Send and CloseSend

	closed atomic.Bool
	lost   atomic.Pointer[error] // why nothing can be sent or received any more
	out    sendSide
	in     recvSide
}

// ConnOptions are the sizes of a Conn. The zero value has those of the constants
// below.
type ConnOptions struct {
	// Reliability level; zero is ReliableDelivery. An Unreliable Conn drops
	// messages for which the other side has no receive.
	Reliability Reliability
	// MaxMessage is the largest message in bytes, 1 to the NIC's MaxTransfer; zero
	// is DefaultMaxTransfer. Both ends have the same: Listen takes the dialler's.
	MaxMessage int
	// SendDepth and RecvDepth are the numbers of messages, of MaxMessage bytes each,
	// for which there are buffers in either direction, 1 to the NIC's MaxDescriptors, and one
	// less for SendDepth; zero is DefaultConnDepth.
	SendDepth, RecvDepth int
	// Local is the name that the dialing side gives its own end, 0 to MaxDiscriminator bytes; the
	// other side sees it.
	Local string
}

// DefaultConnDepth is the number of messages that a Conn holds in each direction if nothing
// else is said.
const DefaultConnDepth = 32

// mostInline is up to which length in bytes messages are built in descriptors: so
// many as share the descriptor's cache lines, or those next to them.
const mostInline = 224

func (o ConnOptions) complete(n *NIC) (ConnOptions, error) {
	const op = "create connection"
	if o.Reliability == 0 {
		o.Reliability = ReliableDelivery
	}
	if o.MaxMessage == 0 {
		o.MaxMessage = min(DefaultMaxTransfer, int(n.Query().MaxTransfer))
	}
	if o.SendDepth == 0 {
		o.SendDepth = DefaultConnDepth
	}
	if o.RecvDepth == 0 {
		o.RecvDepth = DefaultConnDepth
	}
	for _, d := range []struct {
		field        string
		depth, limit int
	}{{"SendDepth", o.SendDepth, n.Query().MaxDescriptors - 1}, {"RecvDepth", o.RecvDepth, n.Query().MaxDescriptors}} {
		if d.depth < 1 || d.depth > d.limit {
			return o, n.Refuse(op, ErrInvalidParameter, "", "%s is %d, it may be 1 to %d", d.field, d.depth, d.limit)
		}
	}
	if o.MaxMessage < 1 || o.MaxMessage > int(n.Query().MaxTransfer) {
		return o, n.Refuse(op, ErrInvalidMTU, "", "MaxMessage is %d bytes, it may be 1 to %d", o.MaxMessage, n.Query().MaxTransfer)
	}
	return o, nil
}

// newConn makes an idle Conn without buffers.
func newConn(ctx context.Context, n *NIC, o ConnOptions) (*Conn, error) {
	o, err := o.complete(n)
	if err != nil {
		return nil, err
	}
	c := &Conn{nic: n, max: o.MaxMessage, sends: o.SendDepth, receives: o.RecvDepth, reliable: o.Reliability != Unreliable, sending: make(chan struct{}, 1)}
	if c.reliable {
		c.lazy = c.receives / 4
	}
	a := VIAttributes{Reliability: o.Reliability, MaxTransfer: uint32(o.MaxMessage), SendDepth: c.sends + 1, RecvDepth: c.receives}
	if c.vi, err = n.CreateVI(ctx, a, nil, nil); err != nil {
		return nil, err
	}
	c.out.mu, c.in.mu = c.vi.Held()
	if err := n.keep(c); err != nil {
		return nil, errors.Join(err, c.vi.Abandon(context.WithoutCancel(ctx)))
	}
	// Buffers start on cache lines of their own.
	const line = 64
	c.stride = (o.MaxMessage + line - 1) &^ (line - 1)
	c.inline = o.MaxMessage <= min(mostInline, n.Query().MaxInline)
	if !c.reliable {
		// What comes to an unreliable VI without a receive is lost.
		if err := c.furnish(ctx); err != nil {
			return nil, errors.Join(err, c.free())
		}
	}
	return c, nil
}

// furnish makes buffers and descriptors, and posts the receives.
func (c *Conn) furnish(ctx context.Context) (err error) {
	if c.memory, err = c.nic.Alloc(ctx, c.stride*(c.sends+c.receives), MemoryAttributes{}); err != nil {
		return err
	}
	c.buffers = c.memory.Bytes()
	segments := 1
	if c.inline {
		segments = (c.max + datasheet.DataSegmentSize - 1) / datasheet.DataSegmentSize
	}
	if c.send, err = c.vi.NewDescriptors(ctx, c.sends, segments); err != nil {
		return err
	}
	if c.recv, err = c.vi.NewDescriptors(ctx, c.receives, 1); err != nil {
		return err
	}
	with := c.recv // buffers
	if !c.inline {
		with = slices.Concat(c.send, c.recv)
	}
	for i, d := range with {
		if err := c.memory.AddTo(d, (c.sends+c.receives-len(with)+i)*c.stride, c.max); err != nil {
			return err
		}
	}
	if c.reliable {
		if c.last, err = c.vi.NewDescriptors(ctx, 1, 0); err != nil {
			return err
		}
		c.last[0].SetImmediate(endMark)
	}
	c.recv = slices.Repeat(c.recv, 2)
	_, err = c.vi.PostRecvBatch(c.recv[:c.receives])
	return err
}

// start is called once the VI is connected with remote. A reliable sender waits for
// receives, so that only a peer that has been heard takes memory.
func (c *Conn) start(ctx context.Context, remote Remote, address Address) error {
	c.remote, c.address = remote, address
	if !c.reliable {
		return nil
	}
	return c.furnish(ctx)
}

// MaxMessage is the size in bytes of the largest message.
func (c *Conn) MaxMessage() int { return c.max }

// VI is the connection's VI, for what a Conn has no call for, such as Query. Its
// queues belong to the Conn.
func (c *Conn) VI() *VI { return c.vi }

// Poll is NIC.Poll of the connection's NIC.
func (c *Conn) Poll() bool { return c.nic.Poll() }

// Remote describes the other end.
func (c *Conn) Remote() Remote { return c.remote }

// parting bounds how long Close waits for the other side to take a message, and for the NIC to
// end the connection.
const parting = 2 * time.Second

// Close ends the connection in order: the other side gets all that was posted and
// then io.EOF. It frees everything, and ends calls in progress with ErrClosed;
// buffers must not be touched any more. If the other side takes no message for 2 s while some
// wait for it, Close drops those and says so: call Flush before to wait longer. A second Close
// does nothing.
func (c *Conn) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	err := c.shut()
	return errors.Join(err, c.free())
}

// shut ends a connection that is marked as closed, but leaves the memory: buffers may be in
// use.
func (c *Conn) shut() error {
	var err error
	if c.broken() == nil {
		err = c.end()
		for taken := true; err == nil && taken; {
			before := datasheet.LoadIndex(&c.out.completed)
			ctx, cancel := context.WithTimeout(context.Background(), parting)
			err = c.Flush(ctx)
			cancel()
			if taken = errors.Is(err, ErrTimeout) && before != datasheet.LoadIndex(&c.out.completed); taken {
				err = nil
			}
		}
	}
	_ = c.lose(c.closedError())
	switch {
	case (errors.Is(err, ErrPeerLost) || errors.Is(err, ErrTimeout)) && c.settled(): // it had nothing to wait for
		err = nil
	case errors.Is(err, ErrTimeout):
		err = fmt.Errorf("close connection: the other side has not taken all that was sent: %w", err)
	case errors.Is(err, ErrDisconnected): // it was faster
		err = nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), parting)
	defer cancel()
	return errors.Join(err, c.vi.Disconnect(ctx))
}

// settled reports whether the other side has ended, and taken all messages: only the word
// that we end too may not have come there, and neither side waits for that.
func (c *Conn) settled() bool {
	c.in.mu.Lock()
	finished := c.in.failed == io.EOF
	c.in.mu.Unlock()
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	return finished && c.out.outstanding() <= c.out.last
}

// free takes back the descriptors of a VI that is not connected, and destroys it, once
// they and the buffers are not in use any more.
func (c *Conn) free() error {
	ctx, cancel := context.WithTimeout(context.Background(), parting)
	defer cancel()
	if err := c.leave(ctx); err != nil {
		return err
	}
	// Only now: calls that have just left may have posted to a VI that was disconnected
	// before, where nothing comes back by itself.
	if err := c.vi.Disconnect(ctx); err != nil {
		return err
	}
	for _, done := range []func() (*Descriptor, error){c.vi.SendDone, c.vi.RecvDone} {
		for {
			_, err := done()
			if err == ErrQueueEmpty {
				break
			}
			if err == ErrNotDone && ctx.Err() != nil {
				return fmt.Errorf("close connection: descriptors do not come back: %w", ctx.Err())
			}
			if err != nil && err != ErrNotDone && !errors.Is(err, ErrDescriptor) {
				return err
			}
		}
	}
	err := c.vi.Close(ctx)
	if c.memory != nil && err == nil {
		err = c.memory.Close(ctx)
	}
	c.nic.forget(c)
	return err
}

// abandon closes a connection whose NIC is being closed, and takes the memory of buffers and
// descriptors with it.
func (c *Conn) abandon() {
	if !c.closed.Swap(true) {
		_ = c.lose(c.closedError())
		c.bar()
	}
}

// leave waits until calls that had begun when the connection was closed have left the
// buffers and descriptors. Those that come later find it closed before they touch any.
func (c *Conn) leave(ctx context.Context) error {
	if err := c.lockSending(ctx); err != nil {
		return err
	}
	<-c.sending
	c.bar()
	return nil
}

// bar waits until no call is in the queues. Those that come later touch nothing.
func (c *Conn) bar() {
	c.in.mu.Lock()
	c.in.failed = c.closedError()
	c.in.mu.Unlock()
	c.out.mu.Lock()
	c.out.ended.Store(true)
	c.out.mu.Unlock()
}

func (c *Conn) closedError() error { return c.nic.Refuse("use connection", ErrClosed, "", "") }

// lose ends the connection, unless it has ended. A call that waits in the NIC finds out
// when that ends its descriptors.
func (c *Conn) lose(err error) error {
	c.lost.CompareAndSwap(nil, &err)
	return c.broken()
}

// broken is why the connection has ended, nil if it has not.
func (c *Conn) broken() error {
	if err := c.lost.Load(); err != nil {
		return *err
	}
	return nil
}

// ends reports whether err is the end of the connection. A context that has ended is
// not.
func (c *Conn) ends(err error) bool {
	for _, end := range []error{ErrDescriptor, ErrDevice, ErrClosed, ErrProtocol} {
		if errors.Is(err, end) {
			return true
		}
	}
	return false
}
