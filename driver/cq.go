package driver

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// CQ is a completion queue: it says on which work queue of which VI a
// descriptor has completed. Methods may be called from several goroutines.
type CQ struct {
	queue
	number  uint32
	entries int // guarded by NIC.mu
	vec     *vector

	change sync.Mutex    // held while the CQ is destroyed or gets another ring
	buf    *dmaBuffer    // guarded by change, as is ready
	ready  *vfio.Eventfd // see FD; nil until it is asked for
	armed  atomic.Bool

	path    vfio.CQPath // into a device of this process; nil if it has none
	notices notices[Completion]
	arms    notices[struct{}]

	leaving  leaving
	promised int // sum of the depths of the attached queues; guarded by NIC.mu

	ring  []datasheet.Completion
	log2  uint8
	index *uint32 // where the device reads taken
	read  uint64  // entries, see CQStats
	// sorted holds entries that were taken from the ring to drop others between
	// them: of a VI that was destroyed, of descriptors that were taken back.
	sorted []entry
	// seen is the queue of the entry before.
	seen struct {
		endpoint *endpoint
		receive  bool
		q        *workQueue
	}
}

// Queue names one of the two work queues of a VI.
type Queue uint8

// The work queues of a VI.
const (
	SendQueue Queue = iota
	RecvQueue
)

func (q Queue) String() string {
	if q == SendQueue {
		return "send queue"
	}
	return "receive queue"
}

// Completion says that the oldest outstanding descriptor of a work queue has
// completed. The descriptor itself is taken with VI.SendDone or VI.RecvDone.
type Completion struct {
	VI    *VI
	Queue Queue
	// Index is the descriptor's number on its queue, free-running from 0.
	Index uint32
	// User is the word of the application's own in the descriptor, as it was when it was
	// posted: see Descriptor.User.
	User uint64
	// Descriptor, of a ReceiveQueue, is the receive itself: there is nothing more to
	// take. Err is RecvDone's error: nil, or one that holds a
	// *StatusError. VI is the VI that took the receive, which may be destroyed by now.
	// Descriptor is nil of other queues.
	Descriptor *descriptors.Descriptor
	Err        error
}

// CreateCQ makes a completion queue for at least the given number of entries, 1 to the NIC's limit.
// It must be able to hold the completions of all the queues that are tied to
// it; CreateVI checks that.
func (n *NIC) CreateCQ(ctx context.Context, entries int) (*CQ, error) {
	return get(ctx, n.do, "create CQ", func() (*CQ, error) {
		if err := n.checkEntries(entries); err != nil {
			return nil, err
		}
		r, err := n.newCQRing(ctx, entries)
		if err != nil {
			return nil, err
		}
		c := &CQ{queue: queue{n: n, side: "poll CQ"}, entries: entries, buf: r.buf, vec: n.pickVector()}
		c.use(r)
		reply, err := n.execute(ctx, newCommand(datasheet.OpCreateCQ, datasheet.CreateCQBody{
			IOVA: r.buf.iova, IndexIOVA: r.buf.iova + r.indexAt, Vector: vectorNumber(c.vec), Log2: r.log2,
		}))
		if err != nil {
			return nil, n.release(r.buf, err)
		}
		c.number = datasheet.Reply[datasheet.CQBody](reply).CQ
		if c.number >= n.identity.MaxCQs {
			return nil, n.fail(fmt.Errorf("%w: it gave out completion queue %d of %d", ErrProtocol, c.number, n.identity.MaxCQs))
		}
		if n.local != nil {
			c.path = n.local.CQPath(c.number)
		}
		c.armBell = n.doorbellAt(datasheet.CQPage(n.identity.MaxEndpoints, c.number) + datasheet.DoorbellCQArm)
		if !n.enterCQ(c) {
			return nil, n.fail(fmt.Errorf("%w: it gave out completion queue %d twice", ErrProtocol, c.number))
		}
		return c, nil
	})
}

// enterCQ is adopt for a CQ. It reports false if another one has its number.
func (n *NIC) enterCQ(c *CQ) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if old := n.cqs[c.number]; old != nil {
		n.mu.Unlock()
		old.leaving.wait(n)
		n.mu.Lock()
	}
	if n.cqs[c.number] != nil {
		return false
	}
	n.cqs[c.number] = c
	return true
}

// Number returns the CQ's number on this device.
func (c *CQ) Number() uint32 { return c.number }

// CQ returns the CQ with a number, such as that of an event; nil if there is none.
func (n *NIC) CQ(number uint32) *CQ {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.cqs[number]
}

// Entries returns how many completions the CQ has room for.
func (c *CQ) Entries() int {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	return c.entries
}

// Done takes the oldest completion whose descriptor has not been taken back yet. It
// does not block: ErrNotDone, bare, stands for none. It fails
// with ErrClosed, ErrCQOverrun, ErrProtocol if the device wrote an
// impossible entry, or what is wrong with the device.
func (c *CQ) Done() (done Completion, err error) {
	err = c.take(&done, true)
	return done, err
}

// Ready is Done that does not run a NIC which works in its callers' calls.
func (c *CQ) Ready() (done Completion, err error) {
	err = c.take(&done, false)
	return done, err
}

// Wait waits for a completion until ctx ends, and takes it as Done does.
func (c *CQ) Wait(ctx context.Context) (Completion, error) {
	if ctx == nil {
		return Completion{}, c.n.noContext("wait for CQ")
	}
	return c.await(&waiter{n: c.n, ctx: ctx, done: c.n.done})
}

// end lets every later Done return err, unless it fails already.
func (c *CQ) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.fail(err)
	}
}

// fail is end with mu held, also if it fails already.
func (c *CQ) fail(err error) { c.closed, c.closedAs = true, err }

// close ends all use of the ring and of the doorbell.
func (c *CQ) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fail(c.n.error("use CQ", descriptors.ErrClosed))
	c.sorted, c.ring, c.index = nil, nil, nil
}

// Close ends the CQ. It fails with ErrInUse while a VI completes there. A second call
// does nothing.
func (c *CQ) Close(ctx context.Context) error {
	n := c.n
	return n.doClosing(ctx, "close CQ", func() error {
		c.change.Lock()
		defer c.change.Unlock()
		return c.leaving.close(ctx, n, "close the VIs that complete there first", func() bool { return c.promised > 0 },
			newCommand(datasheet.OpDestroyCQ, datasheet.CQBody{CQ: c.number}), func(err error) error {
				c.close()
				if err = errors.Join(err, c.endNotices()); err != nil {
					return err
				}
				n.mu.Lock()
				delete(n.cqs, c.number)
				n.mu.Unlock()
				return n.freeDMA(c.buf)
			})
	})
}

// attach promises room for depth completions in c, which may be nil.
func (n *NIC) attach(c *CQ, depth int) error {
	if c == nil {
		return nil
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case c.n != n:
		return fmt.Errorf("%w: not a completion queue of this NIC", descriptors.ErrInvalidParameter)
	case c.leaving.ended != nil:
		return fmt.Errorf("completion queue: %w", descriptors.ErrClosed)
	case depth > c.entries-c.promised:
		return fmt.Errorf("%w: %d entries, %d of them promised to other queues, and %d more needed", ErrCQTooSmall, c.entries, c.promised, depth)
	}
	c.promised += depth
	return nil
}

func (n *NIC) detach(c *CQ, depth int) {
	if c == nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	c.promised -= depth
}

// cqNumber is c's number as a command wants it.
func cqNumber(c *CQ) uint32 {
	if c == nil {
		return datasheet.NoCQ
	}
	return c.number
}
