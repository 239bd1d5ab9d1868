package emulator

import (
	"context"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/pause"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire"
)

// resetTime is the time that a reset lasts: long enough that a driver which does not wait
// for its end fails in tests.
const resetTime = 100 * time.Microsecond

// reset puts the device back into the state after power-on. Configuration space and the
// number of resets stay, and the control program starts again. DMA mappings belong to
// the IOMMU and stay. mu is held.
func (d *Device) reset() {
	// The queue is reset first, so that no entry for an old command follows.
	d.admin.reset()
	d.engine.Reset()
	d.resetDMA()
	d.disconnectMSIX()
	d.latch = latches{}
	d.engine.Exclusive(func() {
		if d.doorbells != nil {
			d.doorbells.zero(0)
		}
		d.sram.zero(int64(d.processor.Kept()))
	})
	d.processor.Reset()
	d.resets++
	d.readyAt = time.Now().Add(resetTime)
}

// functionReset is reset, and clears configuration space. As a kernel does, it
// puts the BARs' addresses back. mu is held.
func (d *Device) functionReset() {
	d.reset()
	d.config.Reset()
	d.followConfig()
}

// Reset is described at vfio.Device. It is a function-level reset: memory
// decoding and bus mastering are off when it returns. It fails with
// ErrDeviceGone on a device that was removed.
func (d *Device) Reset(ctx context.Context) error {
	const op = "reset"
	if err := ctx.Err(); err != nil {
		return d.fail(op, err)
	}
	if err := d.locked(op, func() error {
		if d.removed.Load() {
			return vfio.ErrDeviceGone
		}
		d.functionReset()
		return nil
	}); err != nil {
		return err
	}
	if pause.For(ctx, resetTime) != nil {
		return d.fail(op, ctx.Err())
	}
	return nil
}

// writeConfig writes configuration space. mu is held.
func (d *Device) writeConfig(offset uint64, p []byte) {
	if d.config.Write(offset, p) {
		d.functionReset()
		return
	}
	d.followConfig()
}

// followConfig applies the enable bits of configuration space. mu is held.
func (d *Device) followConfig() {
	d.decoding.Store(d.config.MemoryEnabled())
	master := d.config.BusMaster() && !d.removed.Load()
	d.engine.Exclusive(func() { d.iommu.setMaster(master) })
	if !master {
		d.revoke() // what the peer reads of lent memory is DMA of this device, too
	}
	// A message is a write, which only a bus master can do.
	enabled, masked := d.config.MSIX()
	d.msix.control(enabled && master, masked)
}

// SetLink takes the link of this device down, or lets it come up again, as pulling out
// and plugging in its cable does.
func (d *Device) SetLink(up bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() || d.removed.Load() {
		return
	}
	d.wire.SetLink(up)
}

// linkChanged tells the host that the link went up or down. SetLink at either end of
// the wire calls it.
func (d *Device) linkChanged() {
	if d.closed.Load() || d.removed.Load() {
		return
	}
	d.engine.Exclusive(func() {
		up := d.wire.LinkUp()
		if up == d.linkUp {
			return
		}
		d.linkUp = up
		e := datasheet.AdminEntry{Kind: datasheet.EntryEvent}
		*datasheet.Reply[datasheet.Event](&e) = datasheet.Event{Code: datasheet.EventLink, CQ: datasheet.NoCQ}
		if up {
			datasheet.Reply[datasheet.Event](&e).Detail = 1
		}
		d.admin.entry(&e)
	})
}

// Remove takes the device out of its slot without warning: it does no more DMA
// and raises no more interrupts when Remove returns, all reads are all ones,
// writes are lost, and its peers see the link go down. As VFIO does, it signals
// the request interrupt. Its user can only close it.
//
// Doorbells and SRAM that are mapped stay memory; SRAM is filled with ones.
func (d *Device) Remove() {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Load() || d.removed.Swap(true) {
		return
	}
	d.wire.SetLink(false)
	d.halt()
	d.disconnectMSIX()
	setOnes(d.sram.bytes)
	d.requestEvent.signal()
}

// halt stops the engine for good. When it returns nothing touches host memory.
// mu is held.
func (d *Device) halt() {
	d.pollable.Store(false)
	p := d.peer.Swap(nil)
	if d.regate(); p != nil {
		p.peer.CompareAndSwap(d, nil)
		p.regate()
	}
	if d.stop != nil {
		d.stop()
		<-d.stopped
	}
	d.engine.Exclusive(func() { d.iommu.setMaster(false) })
	d.admin.reset()
	// Without endpoints, a round that another goroutine is about to begin finds
	// nothing to do.
	d.engine.Reset()
}

// lingerLooks is the number of times that Close asks whether the peer has taken what was sent,
// disconnect frames among it. lingerStep is the time between two such questions: 20
// ms in all, and longer on a busy machine, where the peer is slower, too. A peer that
// polls takes what was sent in a part of that time.
const (
	lingerLooks = 200
	lingerStep  = 100 * time.Microsecond
)

// linger waits until the peer has taken what was sent, on a wire that loses it else.
func (d *Device) linger() {
	w, ok := d.wire.(wire.Drainer)
	for i := 0; ok && i < lingerLooks; i++ {
		var drained bool
		d.engine.Exclusive(func() { drained = w.Drained() })
		if drained {
			return
		}
		time.Sleep(lingerStep)
	}
}

// Close is described at vfio.Device. The other end of the wire sees the link go
// down.
func (d *Device) Close() error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.closed.Swap(true) {
		return nil
	}
	d.linger()
	err := d.wire.Close()
	d.halt()
	d.maps.Lock()
	defer d.maps.Unlock()
	d.engine.Exclusive(func() {
		d.iommu.clear()
		// The wire has no user any more, and the next calls have one in shared memory
		// unmap it.
		d.wire.Reserve(0)
		d.wire.Receive()
	})
	d.endIdle(false)
	d.disconnectMSIX()
	d.errorEvent.set(trigger{})
	d.requestEvent.set(trigger{})
	d.doorbells.close()
	d.sram.close()
	if d.atClose != nil {
		d.atClose()
	}
	if err != nil {
		return d.fail("close", err)
	}
	return nil
}
