package ring

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/via"
)

// maxCalls bounds the calls of a Caller that are under way: each has an entry of the NIC's
// payload table.
const maxCalls = datasheet.PayloadEntries

// Caller makes calls over a ring whose other end is in Serve: 256 at a time at most. Its
// methods may be called from several goroutines. The ring must have no other use meanwhile.
//
// Each call takes one reply. Another one is counted in CallerStats.Strays. Its payload may
// still land in the frame of the call that it names, until Close or Ring.EndPlace, and in no
// other memory.
//
// Calls are answered in any order. A ring without reliability may lose a request or a reply;
// then the call ends at its deadline.
type Caller struct {
	// Timeout, unless it is zero, bounds each call beside its context. It does not change once there are calls.
	Timeout time.Duration

	r      *Ring
	calls  [maxCalls]call
	turn   chan struct{} // among the calls that wait, its holder polls
	strays atomic.Uint64

	mu         sync.Mutex
	free       [maxCalls]uint8 // numbers of calls, longest unused first
	head, tail uint32          // of free
	closed     atomic.Bool
}

// CallerStats are counters of a Caller.
type CallerStats struct {
	Strays uint64 `json:"strays" help:"Messages that replied to no call: late ones, and ones that the peer made up." unit:"messages"`
}

// Stats returns the counters.
func (c *Caller) Stats() CallerStats { return CallerStats{Strays: c.strays.Load()} }

// NewCaller makes a Caller of a connected ring.
func NewCaller(r *Ring) (*Caller, error) {
	if r == nil {
		return nil, &via.Error{Op: "new caller", Code: via.ErrInvalidParameter, Hint: "the ring must not be nil"}
	}
	if err := r.broken(); err != nil {
		return nil, err
	}
	c := &Caller{r: r, turn: make(chan struct{}, 1), tail: maxCalls}
	c.turn <- struct{}{}
	for i := range c.calls {
		c.free[i] = uint8(i)
		c.calls[i].signal = driver.NewSignal()
		c.calls[i].set(uint32(i), idle)
	}
	return c, nil
}

// Call sends a request of 0 to MaxRequest bytes and waits for the reply. The frame send is
// the request's payload if it has a length; the reply's payload lands in into. Call also
// waits while the ring is full or 256 calls are under way.
//
// It fails with ErrDeadline if ctx ends, or Timeout is over, before the reply comes. Then nothing lands in into any
// more, but the NIC may read from send until the ring is closed. It fails with ErrPeerGone,
// with net.ErrClosed, and with the errors of Attach. It fails with ErrDiscarded if the reply's
// payload was larger than into, and with via.ErrProtocol if the reply contradicts itself. It
// allocates nothing unless it fails or sleeps.
func (c *Caller) Call(ctx context.Context, request []byte, send, into Frame) (Reply, error) {
	const op = "call"
	if ctx == nil {
		return Reply{}, c.r.refuse(op, via.ErrInvalidParameter, "pass context.Background() to wait without limit", "the context is nil")
	}
	k, tag, err := c.begin(request, send, into)
	for began := time.Now(); err == via.ErrQueueFull; {
		why := ctx.Err()
		if why == nil && c.Timeout > 0 && time.Since(began) > c.Timeout {
			why = context.DeadlineExceeded
		}
		if why != nil {
			return Reply{}, c.late(op, why)
		}
		if c.poll(nil) == 0 {
			runtime.Gosched()
		}
		k, tag, err = c.begin(request, send, into)
	}
	if err != nil {
		return Reply{}, err
	}
	if c.Timeout > 0 {
		k.start(c.Timeout)
	}
	if err := c.await(ctx, k); err != nil && !c.withdraw(k, tag, err) {
		for k.state() != ended { // another goroutine is writing the outcome
			runtime.Gosched()
		}
	}
	k.end.Store(0)
	reply, err := k.reply, k.err
	k.signal.Clear()
	c.give(k, tag)
	return reply, err
}

// late makes the error of a call whose context has ended.
func (c *Caller) late(op string, err error) error {
	if errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return c.r.refuse(op, fmt.Errorf("%w: %w", ErrDeadline, err), "", "")
	}
	return err
}

// await waits until k has ended, or ctx or its time has. It takes messages when it is its turn.
func (c *Caller) await(ctx context.Context, k *call) (err error) {
	for err == nil && k.state() != ended {
		select {
		case <-c.turn:
		default:
			select {
			case <-c.turn:
			case <-k.signal.C():
				err = k.late()
				continue
			case <-ctx.Done():
				return ctx.Err()
			}
		}
		for err == nil && k.state() != ended {
			if c.poll(k) == 0 {
				if err = c.r.waited(c.r.d.Recv.Wait(ctx, k.signal)); err == nil {
					err = k.late()
				}
			}
		}
		c.turn <- struct{}{}
	}
	return err
}

// withdraw ends a call before its reply. It returns false if the call has ended, or another
// goroutine is ending it.
func (c *Caller) withdraw(k *call, tag uint32, why error) bool {
	if !k.claim(tag) {
		return false
	}
	if k.into.Length > 0 {
		// It fails if the device does or the ring is closed: then nothing lands either.
		_ = inTime(func(ctx context.Context) error { return c.r.EndPlace(ctx, tag) })
	}
	c.end(k, tag, c.late("call", why))
	return true
}

// begin sends a request, without waiting.
func (c *Caller) begin(b []byte, send, into Frame) (*call, uint32, error) {
	const op = "call"
	switch {
	case c.closed.Load():
		return nil, 0, c.r.refuse(op, via.ErrClosed, "", "")
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
	k, tag := c.take()
	if k == nil {
		return nil, 0, via.ErrQueueFull
	}
	e, err := c.r.GetSend()
	if err != nil {
		c.give(k, tag)
		return nil, 0, err
	}
	k.into, k.reply.Length, k.reply.size, k.err = into, 0, 0, nil
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
	if err == nil && c.closed.Load() { // Close may have run before the call was active
		err = c.r.refuse(op, via.ErrClosed, "", "")
	}
	if err != nil && k.claim(tag) { // it may have ended already, with its ring
		if k.into.Length > 0 {
			_ = inTime(func(ctx context.Context) error { return c.r.EndPlace(ctx, tag) })
		}
		c.give(k, tag)
		return nil, 0, err
	}
	return k, tag, nil
}

// take takes an idle call and gives it a new tag, which stays unique for 2^24 uses of its
// place.
func (c *Caller) take() (*call, uint32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.head == c.tail {
		return nil, 0
	}
	k := &c.calls[c.free[c.head%maxCalls]]
	c.head++
	return k, uint32(k.word.Load()) + maxCalls
}

// give makes a call idle once its outcome has been taken.
func (c *Caller) give(k *call, tag uint32) {
	k.into = Frame{}
	k.set(tag, idle)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.free[c.tail%maxCalls] = uint8(tag % maxCalls)
	c.tail++
}

// poll takes messages until none is left, or k has its reply, and returns how many. k may be
// nil.
func (c *Caller) poll(k *call) (n int) {
	for {
		e, err := c.r.GetRecv()
		if e == nil {
			if err != via.ErrNotDone {
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

// took ends the call that a message replies to. It returns false if no call has that tag.
func (c *Caller) took(e *Entry) bool {
	var message [MessageSize]byte
	copy(message[:], e.message) // e.message may be memory that a NIC can change
	h, err := parseHeader(message[:], reply)
	tag := e.tag
	if err != nil || !e.tagged || h.tag != tag {
		return false
	}
	k := &c.calls[tag%maxCalls]
	if !k.claim(tag) {
		return false
	}
	k.reply.size = uint8(copy(k.reply.data[:], message[headerSize:][:h.size]))
	switch {
	case e.came.Sent != h.payload:
		err = c.r.refuse("call", via.ErrProtocol, "", "a payload of %d bytes came, and the reply says %d", e.came.Sent, h.payload)
	case h.payload > uint32(k.into.Length), e.length == 0 && h.payload > 0:
		err = c.r.refuse("call", ErrDiscarded, "", "%d bytes, there is room for %d", h.payload, k.into.Length)
	case e.length > 0 && e.came.Place != int(tag%maxCalls):
		err = c.r.refuse("call", driver.ErrProtocol, "", "the payload is not where it was to land")
	default:
		k.reply.Length = e.length
	}
	c.end(k, tag, err)
	return true
}

// fail ends all calls, as the ring does not work any more.
func (c *Caller) fail(err error) {
	for i := range c.calls {
		k := &c.calls[i]
		if tag := uint32(k.word.Load()); k.claim(tag) {
			c.end(k, tag, err)
		}
	}
}

// Close ends the calls that are under way, with net.ErrClosed. The ring stays open. When Close
// returns, nothing lands in any frame any more.
func (c *Caller) Close() error {
	if c.closed.Swap(true) {
		return nil
	}
	closed := c.r.refuse("use caller", via.ErrClosed, "", "")
	for i := range c.calls {
		k := &c.calls[i]
		c.withdraw(k, uint32(k.word.Load()), closed)
	}
	return nil
}
