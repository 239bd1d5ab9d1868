package engine

import (
	"math/bits"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// counters are what the device has counted.
type counters struct {
	own    [datasheet.CounterCount]uint64
	others [datasheet.CounterCount]atomic.Uint64 // outside the engine, by anybody
	// progress grows with each frame that has left and each descriptor that is complete.
	progress uint64
}

func (c *counters) count(which datasheet.Counter, n uint64) { c.own[which] += n }

func (c *counters) clear() {
	c.own = [datasheet.CounterCount]uint64{}
	for i := range c.others {
		c.others[i].Store(0)
	}
}

// reports is what the host is told other than through its queues: replies to
// commands, events, interrupts.
type reports struct {
	host    Host
	entry   datasheet.AdminEntry
	vectors uint64 // interrupts to raise at the end of the step
	todo    *events
}

// refusal is why a command is not carried out. The zero value is success.
type refusal struct {
	result datasheet.Result
	field  uint16 // offset of the field that was refused, zero for none
}

// answer replies to a command, without a body.
func (r *reports) answer(id uint16, why refusal) {
	r.entry = datasheet.AdminEntry{Kind: datasheet.EntryReply, ID: id, Result: why.result, Field: why.field}
	r.host.AdminEntry(&r.entry)
}

// answerWith replies to a command that has succeeded.
func answerWith[T datasheet.ReplyBody](r *reports, id uint16, body T) {
	r.entry = datasheet.AdminEntry{Kind: datasheet.EntryReply, ID: id, Result: datasheet.ResultSuccess}
	*datasheet.Reply[T](&r.entry) = body
	r.host.AdminEntry(&r.entry)
}

// event reports something that no command asked for.
func (r *reports) event(ev datasheet.Event) {
	r.entry = datasheet.AdminEntry{Kind: datasheet.EntryEvent}
	*datasheet.Reply[datasheet.Event](&r.entry) = ev
	r.host.AdminEntry(&r.entry)
}

// raise has an interrupt raised at the end of the step, once for all its reasons.
func (r *reports) raise(vector uint16) {
	if vector != datasheet.NoVector {
		r.vectors |= 1 << vector
		*r.todo |= interrupts
	}
}

// interrupt raises the interrupts of a step.
func (r *reports) interrupt() {
	for r.vectors != 0 {
		v := bits.TrailingZeros64(r.vectors)
		r.vectors &^= 1 << v
		r.host.Interrupt(uint16(v))
	}
	*r.todo &^= interrupts
}
