package driver

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// Commands differ in whom they wait for, so each class has slots of its own:
// servers that wait for clients must not keep others from accepting, nor must
// clients of hosts that are dead, and nothing may keep an ABORT from being sent.
type class int

const (
	classShort   class = iota // answered at once
	classRequest              // answered by a server
	classAccept               // answered by the NIC of a client
	classWait                 // answered when a client comes
)

// classSlots is the number of commands of a class that may be outstanding. A caller with one
// more waits until another has ended, or its context.
var classSlots = [...]int{classShort: 128, classRequest: 512, classAccept: 512, classWait: 512}

// Ring sizes. The submission queue holds as many commands as there are slots, so
// it cannot be full. The completion queue has room for some hundred events besides
// the replies to all of them.
const (
	slotLog2     = 11
	slotCount    = 1 << slotLog2
	adminSQLog2  = slotLog2
	adminACQLog2 = slotLog2
)

// slot is one command that the device may have.
type slot struct {
	class class
	id    uint16 // slot number and, above it, how often it was used
	state slotState
	reply datasheet.AdminEntry
	ready chan struct{} // has a token when state became slotDone
}

type slotState int

const (
	slotFree slotState = iota
	slotSent
	slotDone
	slotLost // no call waits for the reply any more
)

// slots are all slots that have been needed so far.
type slots struct {
	all  []*slot // by number
	made [len(classSlots)]int
	free [len(classSlots)][]*slot // longest unused first
}

// acquire returns a slot that is free, or nil. As long as there may be new ones
// none is used again, so that IDs do not return soon.
func (t *slots) acquire(c class) *slot {
	if t.made[c] < classSlots[c] {
		t.made[c]++
		s := &slot{class: c, id: uint16(len(t.all)), ready: make(chan struct{}, 1)}
		t.all = append(t.all, s)
		return s
	}
	if len(t.free[c]) == 0 {
		return nil
	}
	s := t.free[c][0]
	t.free[c] = t.free[c][1:]
	return s
}

// release takes a slot back.
func (t *slots) release(s *slot) {
	select {
	case <-s.ready:
	default:
	}
	s.state = slotFree
	t.free[s.class] = append(t.free[s.class], s)
}

// find returns the slot of an outstanding command, or nil.
func (t *slots) find(id uint16) *slot {
	i := int(id % slotCount)
	if i >= len(t.all) || t.all[i].id != id || t.all[i].state != slotSent && t.all[i].state != slotLost {
		return nil
	}
	return t.all[i]
}
