package driver

import (
	"context"
	"encoding/binary"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/mmio"
)

// doorbell is one 32-bit register that is written on the data path: a doorbell
// in BAR2, or a pulse register in BAR0. Its owner's lock is held while it is
// written.
type doorbell struct {
	reg    *uint32           // nil if trapped
	call   func(v uint32)    // nil if it is no call into a device of this process
	fail   func(error) error // of the NIC
	bar    *region
	offset uint64
	buf    [4]byte // of a trapped write; here because it would escape to the heap
	// mark and group say that the page was stored to, on a device that would have
	// to look at all pages to find out; else nil.
	mark, group *uint8
}

// store writes the register. Only a trapped one can fail: then the device has
// failed, unless it is ctx that has ended.
func (b *doorbell) store(ctx context.Context, v uint32) error {
	if b.reg != nil {
		mmio.Write32(b.reg, v)
		if b.mark != nil {
			mmio.ToDevice()
			mmio.Write8(b.mark, 1)
			mmio.ToDevice()
			mmio.Write8(b.group, 1)
		}
		return nil
	}
	return b.trap(ctx, v)
}

// trap writes a register that is not mapped.
func (b *doorbell) trap(ctx context.Context, v uint32) error {
	binary.LittleEndian.PutUint32(b.buf[:], v)
	err := b.bar.trap(ctx, b.offset, b.buf[:])
	if err == nil || ended(ctx, err) {
		return err
	}
	return b.fail(err)
}

// tell writes a doorbell, whose device then sees what was written to memory before. A
// device that is called sees it as every callee does.
func (b *doorbell) tell(ctx context.Context, v uint32) error {
	if b.call != nil {
		b.call(v)
		return nil
	}
	mmio.ToDevice()
	return b.store(ctx, v)
}

// ring tells the device that the work queue holds tokens up to producer
// (DoorbellSend, DoorbellRecv).
func (b *doorbell) ring(producer uint32) error {
	return b.tell(context.Background(), producer)
}

// ringSlots tells the device that the ring in device memory holds entries up to producer
// (DoorbellRing+DoorbellSend, DoorbellRing+DoorbellRecv). The memory may be write-combining.
func (b *doorbell) ringSlots(producer uint32) error {
	mmio.FlushWriteCombining()
	return b.ring(producer)
}

// channelBell is a doorbell of a channel: words that are stored to in turn. Its owner's lock
// is held while it is rung.
type channelBell struct {
	doorbell
	words []*uint32 // nil if trapped
	base  uint64
	count uint32
	next  uint32
}

// ring tells the device what a channel is to send, or where what it receives may go
// (DoorbellHigh, DoorbellLow, DoorbellReceive).
func (b *channelBell) ring(word uint32) error {
	slot := b.next
	if b.words != nil {
		b.reg = b.words[slot]
	}
	b.offset = b.base + 4*uint64(slot)
	err := b.tell(context.Background(), word)
	if err == nil {
		if b.next++; b.next == b.count {
			b.next = 0
		}
	}
	return err
}

// arm asks for an interrupt as soon as more than taken completions are there
// (DoorbellSendArm, DoorbellRecvArm, those of a ring, DoorbellCQArm).
func (b *doorbell) arm(ctx context.Context, taken uint32) error {
	return b.tell(ctx, datasheet.ArmWord(taken))
}

// pulse lets the outgoing engine of one direction move n bytes more of a frame
// (RegPulseTx, RegPulseRx). Nothing in memory goes with it. A device that does not
// take it has failed, which the next look at it says.
func (b *doorbell) pulse(frame, n uint32) {
	_ = b.store(context.Background(), datasheet.PulseWord(frame, n))
}

// ringAdmin tells the device that the submission queue holds commands up to
// producer (RegSQProducer).
func (r *registers) ringAdmin(ctx context.Context, producer uint32) error {
	mmio.ToDevice()
	return r.writeContext(ctx, datasheet.BlockAdmin, datasheet.RegSQProducer, producer)
}

// ackAdmin tells the device that the host has taken admin entries up to
// consumer (RegACQConsumer). The entries have been copied before.
func (r *registers) ackAdmin(consumer uint32) error {
	mmio.FromDevice()
	return r.write(datasheet.BlockAdmin, datasheet.RegACQConsumer, consumer)
}
