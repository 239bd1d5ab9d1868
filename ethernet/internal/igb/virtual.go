package igb

import (
	"context"
	"fmt"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/port"
	"github.com/trapeze-nic/trapeze/internal/mac"
)

// virtualFunction is a virtual function: its queues are its own, all else it asks the
// driver of its physical function for, through a mailbox of 16 words.
type virtualFunction struct {
	seen uint32 // bits of the mailbox's register that reading has cleared
	own  ethernet.MAC
	last [4]uint32 // counters when they were last read
}

// Registers of a virtual function besides those that it has as the physical one does.
const (
	regMailbox     = 0x0c40
	regMailMemory  = 0x0800
	regVFGPRC      = 0x0f10
	regVFGPTC      = 0x0f14
	regVFGORC      = 0x0f18
	regVFGOTC      = 0x0f34
	mailboxWords   = 16
	mailRequest    = 1 << 0
	mailAck        = 1 << 1
	mailOurs       = 1 << 2 // we have the memory
	mailArrived    = 1 << 4 // there is a message
	mailAcked      = 1 << 5
	mailResetting  = 1 << 6
	mailResetDone  = 1 << 7
	mailReadClears = mailArrived | mailAcked | mailResetDone
)

// Messages: the kind in the lowest byte, a parameter from bit 16 on, the verdict in the
// highest bits.
const (
	messageReset       = 1
	messageAddress     = 2
	messageGroups      = 3
	messageVLAN        = 4
	messageLongest     = 5
	messagePromiscuous = 6

	messageToAll     = 0x100 // to all virtual functions: E1000_PF_CONTROL_MSG of Linux' igb
	messageParameter = 16
	messageGood      = 1 << 31
	messageBad       = 1 << 30

	mostAsked = 4 // times for one answer

	mostGroups = 30 // of 16 bits each, behind the first word
)

// look reads the mailbox's register without losing what reading clears.
func (v *virtualFunction) look(r *registers) uint32 {
	bits := r.Read(regMailbox)
	if r.Err() == nil && bits == allOnes {
		r.status()
	}
	v.seen |= bits & mailReadClears
	return bits | v.seen
}

// await waits until bits of the mailbox's register are set.
func (v *virtualFunction) await(ctx context.Context, d *device, what string, bits uint32) error {
	return d.f.Wait(ctx, what, func() (bool, error) {
		set := v.look(&d.regs)&bits != 0
		return set, d.regs.Take()
	})
}

// lock takes the mailbox's memory.
func (v *virtualFunction) lock(ctx context.Context, d *device) error {
	r := &d.regs
	return d.f.Wait(ctx, "the mailbox to be free", func() (bool, error) {
		r.Write(regMailbox, mailOurs)
		free := v.look(r)&mailOurs != 0
		return free, r.Take()
	})
}

// ask sends a message and returns the answer. When its link changes, the physical function says so to all virtual ones, in the place of an
// answer that was there or is to come: then the message is sent again, which changes nothing.
func (v *virtualFunction) ask(ctx context.Context, d *device, message ...uint32) (answer [3]uint32, err error) {
	for range mostAsked {
		if answer, err = v.askOnce(ctx, d, message...); err != nil || answer[0]&0xffff != messageToAll {
			break
		}
	}
	return answer, err
}

func (v *virtualFunction) askOnce(ctx context.Context, d *device, message ...uint32) (answer [3]uint32, err error) {
	r := &d.regs
	if err := v.lock(ctx, d); err != nil {
		return answer, err
	}
	v.seen &^= mailArrived | mailAcked
	for i, w := range message {
		r.Write(regMailMemory+4*uint64(i), w)
	}
	r.Write(regMailbox, mailRequest)
	if err := r.Take(); err != nil {
		return answer, err
	}
	if err := v.await(ctx, d, "the physical function to take a message", mailAcked); err != nil {
		return answer, err
	}
	if err := v.await(ctx, d, "the physical function's answer", mailArrived); err != nil {
		return answer, err
	}
	if err := v.lock(ctx, d); err != nil {
		return answer, err
	}
	for i := range answer {
		answer[i] = r.Read(regMailMemory + 4*uint64(i))
	}
	r.Write(regMailbox, mailAck)
	return answer, r.Take()
}

// request is ask for something that is refused or not.
func (v *virtualFunction) request(ctx context.Context, d *device, what string, message ...uint32) error {
	answer, err := v.ask(ctx, d, message...)
	switch {
	case err != nil:
		return err
	case answer[0]&0xff != message[0]&0xff:
		return fmt.Errorf("%w: the physical function answers message %#x with %#x", ethernet.ErrProtocol, message[0], answer[0])
	case answer[0]&messageBad != 0 || answer[0]&messageGood == 0:
		return fmt.Errorf("%w: the physical function's driver refuses %s", ethernet.ErrNotSupported, what)
	}
	return nil
}

func (v *virtualFunction) reset(ctx context.Context, d *device) error {
	r := &d.regs
	r.status()
	r.Write(regEIMC, allOnes)
	for _, base := range []uint64{d.family.receiveBase(0), d.family.sendBase(0)} {
		r.Update(base+ringControl, 0, ringEnable)
	}
	r.Update(regCTRL, ctrlReset, 0)
	if err := r.Take(); err != nil {
		return err
	}
	err := d.f.Wait(ctx, "the physical function's own reset", func() (bool, error) {
		busy := v.look(r)&(mailResetting|mailResetDone) != 0
		v.seen &^= mailResetDone
		return !busy, r.Take()
	})
	if err != nil {
		return err
	}
	answer, err := v.ask(ctx, d, messageReset)
	if err != nil {
		return err
	}
	switch answer[0] {
	case messageReset | messageGood:
		v.own = macOf(answer[1], answer[2])
	case messageReset | messageBad: // it has no address for us
		v.own = ethernet.MAC{}
	default:
		return fmt.Errorf("%w: the physical function answers a reset with %#x", ethernet.ErrProtocol, answer[0])
	}
	return nil
}

// address is the one that the physical function's driver has for this one; without one it is
// random.
func (v *virtualFunction) address(context.Context, *device) (ethernet.MAC, error) {
	if (v.own == ethernet.MAC{}) {
		v.own = mac.Random()
	}
	return v.own, nil
}

func (v *virtualFunction) configure(ctx context.Context, d *device) error {
	if d.options.Interrupts {
		d.regs.Write(regEIAC, 1)
		d.regs.Write(regEIAM, 1)
	}
	if err := v.request(ctx, d, "frames of that length", messageLongest, uint32(d.options.MaxFrame()+ethernet.CRCSize)); err != nil {
		return err
	}
	return v.filter(ctx, d, d.port.Filter())
}

func (*virtualFunction) enable(*device) {}

// filter asks for what differs from the state after a reset. VLANs that were asked for
// before, and are not now, stay until Restart.
func (v *virtualFunction) filter(ctx context.Context, d *device, f port.Filter) error {
	low, high := wordsOf(f.MAC)
	if err := v.request(ctx, d, "this address", messageAddress, low, high); err != nil {
		return err
	}
	groups := make([]uint32, mailboxWords)
	n := min(len(f.Groups), mostGroups)
	groups[0] = messageGroups | uint32(n)<<messageParameter
	for i, g := range f.Groups[:n] {
		groups[1+i/2] |= groupHash(g) << (16 * (i % 2))
	}
	if err := v.request(ctx, d, "these groups", groups...); err != nil {
		return err
	}
	for _, id := range f.VLANs {
		if err := v.request(ctx, d, fmt.Sprintf("VLAN %d", id), messageVLAN|1<<messageParameter, uint32(id)); err != nil {
			return err
		}
	}
	switch {
	case len(f.Groups) > mostGroups && !f.Promiscuous:
		return v.request(ctx, d, "all groups, in place of more than 30", messagePromiscuous|2<<messageParameter)
	case f.Promiscuous:
		return v.request(ctx, d, "promiscuous mode", messagePromiscuous|3<<messageParameter)
	}
	return nil
}

func (*virtualFunction) route(d *device, queue, vector int) { physical{}.route(d, queue, vector) }

func (v *virtualFunction) count(d *device) {
	c := &d.counted
	for i, counter := range []struct {
		register uint64
		to       *uint64
	}{
		{regVFGPRC, &c.ReceivedFrames}, {regVFGPTC, &c.SentFrames}, {regVFGORC, &c.ReceivedBytes}, {regVFGOTC, &c.SentBytes},
	} {
		now := d.regs.Read(counter.register)
		*counter.to += uint64(now - v.last[i]) // they wrap
		v.last[i] = now
	}
}
