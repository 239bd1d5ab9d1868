package driver

import (
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver/internal/dma"
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
	buf    *dma.Buffer   // guarded by change, as is ready
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

// entry is an entry of a CQ that has been checked: descriptor number index of a queue
// has completed.
type entry struct {
	q     *workQueue
	index uint32
	// quiet says that the application wants no completion of it.
	quiet  bool
	user   uint64
	status datasheet.Status
	by     *VI // of a shared receive queue: the VI that has taken the descriptor
}
