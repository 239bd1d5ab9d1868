package core

import (
	"math/bits"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

type counters struct {
	Own    [datasheet.CounterCount]uint64
	Others [datasheet.CounterCount]atomic.Uint64 // outside the engine
	// Progress grows with each frame that has left and each descriptor that is complete.
	Progress uint64
}

func (c *counters) Count(which datasheet.Counter, n uint64) { c.Own[which] += n }

func (c *counters) clear() {
	c.Own = [datasheet.CounterCount]uint64{}
	for i := range c.Others {
		c.Others[i].Store(0)
	}
}

// Reports are those to the host other than through its queues: replies to
// commands, events, interrupts.
type Reports struct {
	host    Host
	entry   datasheet.AdminEntry
	vectors uint64 // interrupts to raise at the end of the step
	todo    *events
}

// Refusal is why a command is not carried out. The zero value is success.
type Refusal struct {
	Result datasheet.Result
	Field  uint16 // offset of the field that was refused, zero for none
}

// Check is a condition under which a command is refused, and why then.
type Check = struct {
	Bad    bool
	Result datasheet.Result
	Field  uint16
}

// FirstOf is the refusal of the first condition that holds, if any does.
func FirstOf(checks []Check) Refusal {
	for _, c := range checks {
		if c.Bad {
			return Refusal{c.Result, c.Field}
		}
	}
	return Refusal{}
}

func (r *Reports) Answer(id uint16, why Refusal) {
	r.entry = datasheet.AdminEntry{Kind: datasheet.EntryReply, ID: id, Result: why.Result, Field: why.Field}
	r.host.AdminEntry(&r.entry)
}

// AnswerWith replies to a command that has succeeded.
func AnswerWith[T datasheet.ReplyBody](r *Reports, id uint16, body T) {
	r.entry = datasheet.AdminEntry{Kind: datasheet.EntryReply, ID: id, Result: datasheet.ResultSuccess}
	*datasheet.Reply[T](&r.entry) = body
	r.host.AdminEntry(&r.entry)
}

// Event reports something that no command asked for.
func (r *Reports) Event(ev datasheet.Event) {
	r.entry = datasheet.AdminEntry{Kind: datasheet.EntryEvent}
	*datasheet.Reply[datasheet.Event](&r.entry) = ev
	r.host.AdminEntry(&r.entry)
}

// raise has an interrupt raised at the end of the step, once for all its reasons.
func (r *Reports) raise(vector uint16) {
	if vector != datasheet.NoVector {
		r.vectors |= 1 << vector
		*r.todo |= Interrupts
	}
}

func (r *Reports) Interrupt() {
	for r.vectors != 0 {
		v := bits.TrailingZeros64(r.vectors)
		r.vectors &^= 1 << v
		r.host.Interrupt(uint16(v))
	}
	*r.todo &^= Interrupts
}
