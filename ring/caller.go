package ring

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/via"
)

// MaxCalls is how many calls of a Caller can be under way: each has an entry of the NIC's
// payload table.
const MaxCalls = descriptors.PayloadEntries

// DefaultTimeout is how long a call of Start waits for its reply if nothing is said.
const DefaultTimeout = 5 * time.Second

// Caller makes calls over a ring whose other end is in Serve. Its methods may be called from
// several goroutines. Nobody else uses the ring.
//
// Replies are for one call each: a peer that answers twice, or when nobody asks, is counted in
// Strays. What such a peer sends while the first reply is being taken may still land in that
// call's frame, and in no other memory; Close, and EndPlace, end that.
//
// Calls are answered in any order. Over a ring without reliability a request or a reply may
// be lost, which the call's deadline tells.
type Caller struct {
	r       *Ring
	timeout time.Duration
	calls   [MaxCalls]call
	turn    chan struct{} // whoever has it polls, among those who wait
	strays  atomic.Uint64

	mu         sync.Mutex
	free       [MaxCalls]uint8 // numbers of calls, longest unused first
	head, tail uint32          // of free

	// Of Start.
	starts     atomic.Int32
	wake       *driver.Signal
	running    sync.WaitGroup
	started    bool // guarded by mu: there is a goroutine
	timer      *time.Timer
	background context.Context
	cancel     context.CancelFunc
	closed     atomic.Bool
}

// NewCaller makes a Caller of a ring that is connected.
func NewCaller(r *Ring) (*Caller, error) {
	if r == nil {
		return nil, &via.Error{Op: "new caller", Code: via.ErrInvalidParameter, Hint: "the ring must not be nil"}
	}
	if err := r.broken(); err != nil {
		return nil, err
	}
	c := &Caller{r: r, timeout: DefaultTimeout, turn: make(chan struct{}, 1), tail: MaxCalls, wake: driver.NewSignal()}
	c.turn <- struct{}{}
	for i := range c.calls {
		c.free[i] = uint8(i)
		c.calls[i].signal = driver.NewSignal()
		c.calls[i].set(uint32(i), idle)
	}
	c.background, c.cancel = context.WithCancel(context.Background())
	c.timer = time.AfterFunc(time.Hour, c.wake.Set)
	c.timer.Stop()
	return c, nil
}

// SetTimeout is how long calls of Start that begin from now on wait for their reply.
func (c *Caller) SetTimeout(d time.Duration) {
	c.mu.Lock()
	c.timeout = d
	c.mu.Unlock()
}

// Ring is the ring of the calls.
func (c *Caller) Ring() *Ring { return c.r }

// Strays counts messages that were no reply to a call that was under way: late ones, and what
// a peer has made up.
func (c *Caller) Strays() uint64 { return c.strays.Load() }

// Call sends a request of 0 to MaxRequest bytes, with the frame send as its payload if that
// has a length, and waits for the reply, whose payload lands in into. It waits, too, while
// the ring is full or MaxCalls calls are under way.
//
// It fails with ErrDeadline if ctx ends before the reply is there; nothing lands in into any
// more then. (The NIC may still read from send, until the ring is closed, if the other end
// did not take the request.) It fails with ErrPeerGone, ErrClosed, with ErrDiscarded if
// the reply's payload was larger than into, with ErrProtocol if the reply contradicts itself,
// and with the errors of Attach. It allocates nothing unless it fails or sleeps.
func (c *Caller) Call(ctx context.Context, request []byte, send, into Frame) (Reply, error) {
	const op = "call"
	if ctx == nil {
		return Reply{}, c.r.refuse(op, via.ErrInvalidParameter, "pass context.Background() to wait without limit", "the context is nil")
	}
	k, tag, err := c.begin(request, send, into, nil)
	for err == ErrFull {
		if err := ctx.Err(); err != nil {
			return Reply{}, c.late(op, err)
		}
		if c.poll(nil) == 0 {
			runtime.Gosched()
		}
		k, tag, err = c.begin(request, send, into, nil)
	}
	if err != nil {
		return Reply{}, err
	}
	if err := c.await(ctx, k); err != nil && !c.withdraw(k, tag, err) {
		for k.state() != ended { // somebody is writing its outcome
			runtime.Gosched()
		}
	}
	reply, err := k.reply, k.err
	k.signal.Clear()
	c.give(k, tag)
	return reply, err
}

// late is the error of a call whose context has ended.
func (c *Caller) late(op string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return c.r.refuse(op, fmt.Errorf("%w: %w", ErrDeadline, err), "", "")
	}
	return err
}

// await waits until k has ended: nil says that it has.
func (c *Caller) await(ctx context.Context, k *call) error {
	for k.state() != ended {
		select {
		case <-c.turn:
			err := c.pollFor(ctx, k)
			c.turn <- struct{}{}
			if err != nil {
				return err
			}
			continue
		default:
		}
		select {
		case <-k.signal.C():
		case <-c.turn:
			err := c.pollFor(ctx, k)
			c.turn <- struct{}{}
			if err != nil {
				return err
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return nil
}

// pollFor takes messages until k has ended.
func (c *Caller) pollFor(ctx context.Context, k *call) error {
	for k.state() != ended {
		if c.poll(k) > 0 {
			continue
		}
		if err := c.r.wait(ctx, k.signal); err != nil {
			return err
		}
	}
	return nil
}

// withdraw ends a call for which nobody waits any longer. It returns false if the call has
// ended, or is being ended.
func (c *Caller) withdraw(k *call, tag uint32, why error) bool {
	if !k.claim(tag) {
		return false
	}
	if k.into.Length > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), parting)
		defer cancel()
		// It fails if the device does, or the ring is closed: nothing lands then either.
		_ = c.r.EndPlace(ctx, tag)
	}
	c.end(k, tag, c.late("call", why))
	return true
}

// begin sends a request, without waiting.
func (c *Caller) begin(b []byte, send, into Frame, done func(Reply, error)) (*call, uint32, error) {
	const op = "call"
	switch {
	case c.closed.Load():
		return nil, 0, c.r.refuse(op, ErrClosed, "", "")
	case len(b) > MaxRequest:
		return nil, 0, c.r.refuse(op, via.ErrInvalidParameter, "", "a request of %d bytes, at most %d", len(b), MaxRequest)
	case send.Length > c.r.options.MaxPayload:
		return nil, 0, c.r.refuse(op, ErrNoRoom, "", "a payload of %d bytes, of %d", send.Length, c.r.options.MaxPayload)
	}
	payload, err := c.r.segment(op, send, false)
	if err != nil {
		return nil, 0, err
	}
	place, err := c.r.segment(op, into, true)
	if err != nil {
		return nil, 0, err
	}
	k, tag, timeout := c.take()
	if k == nil {
		return nil, 0, ErrFull
	}
	e, err := c.r.GetSend()
	if err != nil {
		c.give(k, tag)
		return nil, 0, err
	}
	k.into, k.done, k.reply.Length, k.reply.size, k.err = into, done, 0, 0, nil
	k.deadline.Store(0)
	if done != nil {
		k.deadline.Store(time.Now().Add(timeout).UnixNano())
		c.starts.Add(1)
	}
	if into.Length > 0 {
		err = c.r.d.SetPlace(tag, place)
	}
	k.set(tag, active)
	header{kind: request, size: len(b), tag: tag, payload: uint32(into.Length)}.put(e.message)
	copy(e.message[headerSize:], b)
	e.frame, e.payload, e.length = send, payload, send.Length
	if err == nil {
		err = c.r.ReleaseSend(e)
	}
	if err == nil && c.closed.Load() { // Close may have come by before the call was active
		err = c.r.refuse(op, ErrClosed, "", "")
	}
	if err != nil && k.claim(tag) { // it may have ended already, with its ring
		c.undo(k, tag)
		return nil, 0, err
	}
	return k, tag, nil
}

// undo ends a call, which is claimed, of which nobody is told.
func (c *Caller) undo(k *call, tag uint32) {
	if k.done != nil {
		c.starts.Add(-1)
	}
	if k.into.Length > 0 {
		ctx, cancel := context.WithTimeout(context.Background(), parting)
		defer cancel()
		_ = c.r.EndPlace(ctx, tag)
	}
	c.give(k, tag)
}

// take takes a call that is idle, and gives it a tag that no earlier one had for long.
func (c *Caller) take() (*call, uint32, time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.head == c.tail {
		return nil, 0, 0
	}
	k := &c.calls[c.free[c.head%MaxCalls]]
	c.head++
	return k, k.tag() + MaxCalls, c.timeout
}

// give returns a call whose outcome has been taken.
func (c *Caller) give(k *call, tag uint32) {
	k.done, k.into = nil, Frame{}
	k.set(tag, idle)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free[c.tail%MaxCalls] = uint8(tag % MaxCalls)
	c.tail++
}

// poll takes the messages that have come, or those until the reply to k, for which somebody
// waits, and returns how many.
func (c *Caller) poll(k *call) (n int) {
	for {
		e, err := c.r.GetRecv()
		if e == nil {
			if err != ErrEmpty {
				c.fail(err)
			}
			return n
		}
		if err != nil || !c.took(e) {
			c.strays.Add(1)
		}
		if err := c.r.ReleaseRecv(e); err != nil {
			c.fail(err)
			return n
		}
		if n++; k != nil && k.state() == ended {
			return n
		}
	}
}

// took ends the call that a message replies to. It returns false if there is none.
func (c *Caller) took(e *Entry) bool {
	var message [MessageSize]byte
	copy(message[:], e.message) // it may be in memory that a NIC can change
	h, err := parseHeader(message[:], reply)
	tag, tagged := e.Tag()
	if err != nil || !tagged || h.tag != tag {
		return false
	}
	k := &c.calls[tag%MaxCalls]
	if !k.claim(tag) {
		return false
	}
	k.reply.size = uint8(copy(k.reply.data[:], message[headerSize:][:h.size]))
	switch {
	case e.came.Sent != h.payload:
		err = c.r.refuse("call", ErrProtocol, "", "a payload of %d bytes came, and the reply says %d", e.came.Sent, h.payload)
	case h.payload > uint32(k.into.Length), e.length == 0 && h.payload > 0:
		err = c.r.refuse("call", ErrDiscarded, "", "%d bytes, there is room for %d", h.payload, k.into.Length)
	case e.length > 0 && e.came.Place != int(tag%MaxCalls):
		err = c.r.refuse("call", driver.ErrProtocol, "", "the payload is not where it was to land")
	default:
		k.reply.Length = e.length
	}
	c.end(k, tag, err)
	return true
}

// fail ends all calls: the ring does not work any more.
func (c *Caller) fail(err error) {
	for i := range c.calls {
		k := &c.calls[i]
		if tag := k.tag(); k.claim(tag) {
			c.end(k, tag, err)
		}
	}
}

// Close ends the calls that are under way, with ErrClosed, and frees what the Caller has; the
// ring is left. Nothing lands in any frame any more when it returns. A second Close fails
// with ErrClosed.
func (c *Caller) Close() error {
	closed := c.r.refuse("use caller", ErrClosed, "", "")
	if c.closed.Swap(true) {
		return closed
	}
	c.cancel()
	c.wake.Set()
	c.running.Wait()
	c.timer.Stop()
	for i := range c.calls {
		k := &c.calls[i]
		if k.state() == active {
			c.withdraw(k, k.tag(), closed)
		}
	}
	return nil
}
