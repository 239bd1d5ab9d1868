package driver

import (
	"context"
	"fmt"
	"sync"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// admin is the admin queue: two rings in DMA memory.
type admin struct {
	n   *NIC
	sq  []byte
	acq []byte

	submitMu sync.Mutex
	producer uint32

	mu       sync.Mutex // slots and completion ring
	consumer uint32
	closed   bool
	slots    slots
}

// newAdmin gives the rings to the device and enables the queue. The queue is
// not yet enabled when it returns: see RegAdminStatus.
func (n *NIC) newAdmin() (*admin, error) {
	const sqSize = datasheet.AdminEntrySize << adminSQLog2
	const acqSize = datasheet.AdminEntrySize << adminACQLog2
	buf, err := n.newDMA(n.background, sqSize+acqSize, vfio.DMARead|vfio.DMAWrite, vfio.MemoryOptions{Huge: vfio.HugeNever})
	if err != nil {
		return nil, err
	}
	a := &admin{n: n, sq: buf.mem.Bytes()[:sqSize], acq: buf.mem.Bytes()[sqSize : sqSize+acqSize]}
	vector := uint32(datasheet.NoVector)
	if len(n.vectors) > 0 {
		vector = uint32(n.vectors[0].number)
	}
	const blk = datasheet.BlockAdmin
	for _, w := range []struct{ reg, v uint64 }{
		{datasheet.RegSQBaseLow, buf.iova & 0xffffffff},
		{datasheet.RegSQBaseHigh, buf.iova >> 32},
		{datasheet.RegACQBaseLow, (buf.iova + sqSize) & 0xffffffff},
		{datasheet.RegACQBaseHigh, (buf.iova + sqSize) >> 32},
		{datasheet.RegSQLog2, adminSQLog2},
		{datasheet.RegACQLog2, adminACQLog2},
		{datasheet.RegAdminVector, uint64(vector)},
		{datasheet.RegAdminControl, uint64(datasheet.AdminEnable)},
	} {
		if err := n.regs.write(blk, w.reg, uint32(w.v)); err != nil {
			return nil, err
		}
	}
	return a, nil
}

// acquire returns a slot for a command, nil if as many of its class are
// outstanding as may be.
func (a *admin) acquire(c class) *slot {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.slots.acquire(c)
}

// submit gives a command to the device. The slot is the caller's until take
// returns its reply or abandon gives it up.
func (a *admin) submit(ctx context.Context, s *slot, cmd *datasheet.Command, of *leaving) error {
	a.submitMu.Lock()
	defer a.submitMu.Unlock()
	left := of != nil && of.begun(a.n)
	a.mu.Lock()
	if left {
		a.slots.release(s)
		a.mu.Unlock()
		return errLeft
	}
	if a.closed {
		a.mu.Unlock()
		return descriptors.ErrClosed
	}
	// A late reply to an earlier use of the slot does not match the new ID.
	s.id += slotCount
	s.state = slotSent
	cmd.ID = s.id
	a.mu.Unlock()

	at := a.producer & (1<<adminSQLog2 - 1) * datasheet.AdminEntrySize
	*datasheet.CommandAt(a.sq[at:]) = *cmd
	a.producer++
	a.n.giving.Store(true)
	defer a.n.giving.Store(false)
	return a.n.regs.ringAdmin(ctx, a.producer)
}

// take returns the reply if it is there, and gives the slot back.
func (a *admin) take(s *slot) (datasheet.AdminEntry, bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.state != slotDone {
		return datasheet.AdminEntry{}, false
	}
	reply := s.reply
	a.slots.release(s)
	return reply, true
}

// abandon is called instead of take by a call that waits no longer. The slot is
// not used again until the reply has come after all.
func (a *admin) abandon(s *slot) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if s.state == slotDone {
		a.slots.release(s)
		return
	}
	s.state = slotLost
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
			_ = a.n.fail(err)
			return true
		}
	}
	if a.consumer == first {
		return false
	}
	if err := a.n.regs.ackAdmin(a.consumer); err != nil {
		_ = a.n.fail(err)
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
		a.n.event(*datasheet.Reply[datasheet.Event](e))
		return nil
	case datasheet.EntryReply:
		s := a.slots.find(e.ID)
		if s == nil {
			return fmt.Errorf("%w: reply to command %#x, which was not given", ErrProtocol, e.ID)
		}
		if s.state == slotLost {
			a.slots.release(s)
			return nil
		}
		s.reply, s.state = *e, slotDone
		s.ready <- struct{}{}
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
