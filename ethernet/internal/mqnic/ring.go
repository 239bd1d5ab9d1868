package mqnic

import (
	"fmt"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/function"
	"github.com/trapeze-nic/trapeze/internal/mmio"
)

// completions is a completion ring. Its counters run freely. It has twice the entries of the ring
// whose completions it takes. So the device needs to be told only now and then how far the driver is:
// what is consumed and not told, and what may still come, fit.
type completions struct {
	entries  []completion
	consumer uint32 // of the entries that the driver has read
	told     uint32 // the consumer that the device knows
	number   uint32
	at       uint64 // of its registers
	iova     uint64
	bell     function.Doorbell
}

// ready counts the entries that are new, at most so many.
func (c *completions) ready(most uint32) (n uint32) {
	entries, at := c.entries, c.consumer
	size := uint32(len(entries))
	for n < most && fresh(load(&entries[at&(size-1)].phase), at, size) {
		n++
		at++
	}
	if n > 0 {
		mmio.FromDevice()
	}
	return n
}

// consume moves past n entries.
func (c *completions) consume(n uint32) error {
	c.consumer += n
	if c.consumer-c.told < uint32(len(c.entries))/4 {
		return nil
	}
	c.told = c.consumer
	return c.bell.Ring(cmdConsumer | c.consumer&0xffff)
}

// arm has the next completion, or one that is there, bring an event.
func (c *completions) arm() error {
	c.told = c.consumer
	return c.bell.Ring(cmdConsumerArm | c.consumer&0xffff)
}

// work is a transmit or receive ring. Its counters run freely: entries from clean to posted are the
// device's, but those that are done. The device may complete them in any order.
type work struct {
	descriptors []descriptor
	buffers     []uint32 // by slot
	done        []bool   // by slot: completed, and not the oldest
	ahead       uint32   // how many are done
	clean       uint32
	posted      uint32
	number      uint32
	at          uint64 // of its registers
	iova        uint64
	bell        function.Doorbell
	completions completions
	fault       error // what the device did wrong
}

// next takes the entry that a completion is for, and returns its slot, if it is the oldest and all
// others come in order. Most completions are of this kind; claim takes the others.
func (w *work) next(queue, index uint16) (slot uint32, ok bool) {
	slot = uint32(index) & uint32(len(w.descriptors)-1)
	if (slot^w.clean)&uint32(len(w.descriptors)-1) != 0 || uint32(queue) != w.number || w.clean == w.posted || w.ahead != 0 {
		return 0, false
	}
	w.clean++
	return slot, true
}

// claim takes the entry that a completion is for, and returns its slot. It fails if the entry is not
// the device's.
func (w *work) claim(queue, index uint16) (slot uint32, ok bool) {
	mask := uint32(len(w.descriptors) - 1)
	slot = uint32(index) & mask
	distance := (slot - w.clean) & mask
	if uint32(queue) != w.number || distance >= w.posted-w.clean || w.done[slot] {
		return 0, false
	}
	if distance > 0 {
		w.done[slot] = true
		w.ahead++
		return slot, true
	}
	w.clean++
	for w.ahead > 0 && w.done[w.clean&mask] {
		w.done[w.clean&mask] = false
		w.ahead--
		w.clean++
	}
	return slot, true
}

// blame notes a completion that cannot be.
func (w *work) blame(c *completion) {
	w.fault = fmt.Errorf("%w: queue %d has a completion of queue %d for entry %d, of which %d to %d are with the device",
		ethernet.ErrProtocol, w.number, c.queue, c.index, w.clean&0xffff, w.posted&0xffff)
}

// held returns how many entries the device has.
func (w *work) held() uint32 { return w.posted - w.clean - w.ahead }

// post tells the device of the entries up to producer.
func (w *work) post(producer uint32) error {
	w.posted = producer
	return w.bell.Ring(cmdProducer | producer&0xffff)
}

// drop forgets the entries that the device had. It touches no memory of the device's, which may be
// given back by now.
func (w *work) drop() {
	w.clean, w.posted, w.ahead, w.fault = 0, 0, 0, nil
	clear(w.done)
}

// reset empties both rings, which the device does not have.
func (w *work) reset() {
	w.drop()
	clear(w.completions.entries)
	w.completions.consumer, w.completions.told = 0, 0
}
