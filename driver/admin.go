package driver

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// admin is the admin queue: two rings in DMA memory.
type admin struct {
	regs    *registers
	sq, acq []byte
	event   func(datasheet.Event)
	fail    func(error) error
	giving  *atomic.Bool // a command is being given to the device

	submitMu sync.Mutex
	producer uint32

	mu       sync.Mutex // completion ring, and commands
	consumer uint32
	closed   bool
	used     [len(classSlots)]int       // slots, by class
	sent     map[uint16]*pendingCommand // by ID
	next     uint16                     // ID to try next: they do not return soon
}

// acquire takes a slot for a command. It returns false if as many of its class are
// outstanding as may be.
func (a *admin) acquire(c class) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.used[c] == classSlots[c] {
		return false
	}
	a.used[c]++
	return true
}

// submit gives a command, which has a slot, to the device, unless left says, when its turn has come, that it is about something
// that is being closed: errLeft. The slot is free once the reply is there, whether a call still waits for it or not.
func (a *admin) submit(ctx context.Context, c class, cmd *datasheet.Command, left func() bool) (*pendingCommand, error) {
	a.submitMu.Lock()
	defer a.submitMu.Unlock()
	gone := left()
	a.mu.Lock()
	if gone || a.closed {
		a.used[c]--
		a.mu.Unlock()
		if gone {
			return nil, errLeft
		}
		return nil, descriptors.ErrClosed
	}
	for a.sent[a.next] != nil {
		a.next++
	}
	p := &pendingCommand{class: c, done: make(chan struct{})}
	cmd.ID, a.sent[a.next] = a.next, p
	a.next++
	a.mu.Unlock()

	at := a.producer & (1<<adminSQLog2 - 1) * datasheet.AdminEntrySize
	*datasheet.CommandAt(a.sq[at:]) = *cmd
	a.producer++
	a.giving.Store(true)
	defer a.giving.Store(false)
	return p, a.regs.ringAdmin(ctx, a.producer)
}

// drain takes what the device has written and hands it to whom it concerns.
func (a *admin) drain() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.drainLocked()
}

// tryDrain is drain for those who need not be the one that does it. It reports whether there was
// anything.
func (a *admin) tryDrain() bool {
	if !a.mu.TryLock() {
		return false
	}
	defer a.mu.Unlock()
	return a.drainLocked()
}

func (a *admin) drainLocked() bool {
	if a.closed {
		return false
	}
	first := a.consumer
	// A device that writes as fast as this reads does not keep it for ever.
	for a.consumer-first < 1<<adminACQLog2 {
		at := a.consumer & (1<<adminACQLog2 - 1) * datasheet.AdminEntrySize
		shared := datasheet.AdminEntryAt(a.acq[at:])
		flags := shared.LoadFlags()
		if flags&datasheet.CompletionPhase != datasheet.PhaseOf(a.consumer, adminACQLog2) {
			break
		}
		entry := *shared // once: the device may change it under our eyes
		a.consumer++
		if err := a.handle(&entry, flags); err != nil {
			a.closed = true
			_ = a.fail(err)
			return true
		}
	}
	if a.consumer == first {
		return false
	}
	if err := a.regs.ackAdmin(a.consumer); err != nil {
		_ = a.fail(err)
	}
	return true
}

// handle judges one entry. An error means that the device cannot be trusted
// with anything any more.
func (a *admin) handle(e *datasheet.AdminEntry, flags uint32) error {
	if flags&^datasheet.CompletionPhase != 0 {
		return fmt.Errorf("%w: admin entry with reserved flags %#x", ErrProtocol, flags)
	}
	switch e.Kind {
	case datasheet.EntryEvent:
		a.event(*datasheet.Reply[datasheet.Event](e))
		return nil
	case datasheet.EntryReply:
		p := a.sent[e.ID]
		if p == nil {
			return fmt.Errorf("%w: reply to command %#x, which was not given", ErrProtocol, e.ID)
		}
		delete(a.sent, e.ID)
		a.used[p.class]--
		p.reply = *e
		close(p.done)
		return nil
	}
	return fmt.Errorf("%w: admin entry of unknown kind %d", ErrProtocol, e.Kind)
}

func (a *admin) close() {
	a.submitMu.Lock()
	defer a.submitMu.Unlock()
	a.mu.Lock()
	defer a.mu.Unlock()
	a.closed = true
}

// errLeft is the error of a command that has waited for its turn until the closing of its object had begun.
var errLeft = fmt.Errorf("%w: it was closed before the command had its turn", descriptors.ErrClosed)

// Commands differ in whom they wait for, and each class has a limit of its own:
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

// Ring sizes. The submission queue holds more commands than there are slots, so
// it cannot be full. The completion queue has room for some hundred events besides
// the replies to all of them.
const (
	adminSQLog2  = 11
	adminACQLog2 = 11
)

// pendingCommand is one command that the device has.
type pendingCommand struct {
	class class
	done  chan struct{} // closed when reply is there
	reply datasheet.AdminEntry
}
