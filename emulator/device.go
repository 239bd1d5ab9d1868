package emulator

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/emulator/internal/pciconfig"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/firmware-loader/processor"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire"
)

// Device is an emulated NIC. It implements vfio.Device and vfio.InProcess.
// Methods may be called from several goroutines.
type Device struct {
	name   string
	wire   wire.Port
	engine *engine.Engine
	clock  func() time.Duration
	// mapped says that BAR2 is memory that the engine looks at.
	mapped bool
	thread bool

	iommu     iommu // engine's lock
	linkUp    bool  // as the host was told last; engine's lock
	msix      *msix
	admin     *adminQueue
	bars      [barCount]bar
	doorbells *sharedMemory // nil if trapped
	sram      *sharedMemory
	processor *processor.Unit // mu
	// errorEvent and requestEvent are the interrupts of VFIO that tell that the device
	// has failed (VFIO_PCI_ERR_IRQ_INDEX) and that it goes away (VFIO_PCI_REQ_IRQ_INDEX).
	errorEvent, requestEvent event

	// pollable says that Poll steps the engine.
	pollable atomic.Bool
	// decoding says that memory decoding is on.
	decoding atomic.Bool
	closed   atomic.Bool
	// special says that transfers take their time, and foreign that the device has, or had, memory of the program's own.
	special, foreign atomic.Bool
	removed          atomic.Bool
	// peer is the other end of the same wire, if Poll has to step it too.
	peer atomic.Pointer[Device]

	idle idle
	gate gate

	// atClose, if any, is called once, by Close.
	atClose func()

	stop    context.CancelFunc // of the thread
	stopped chan struct{}

	// mu is taken for writes to configuration space, accesses to BAR0, reset and close,
	// before maps, the engine's lock, which guards what DMA reaches, and that of the
	// interrupts. Doorbells, Poll and reads of configuration space do not take it.
	mu     sync.Mutex
	latch  latches
	dma    dmaRegisters
	resets uint32
	// readyAt is when the current reset ends.
	readyAt time.Time

	config *pciconfig.Space // has a lock of its own
	// maps is taken to change DMA mappings, which may wait for the peer on a wire that
	// shares memory.
	maps    sync.Mutex
	sharing sharing
}

// latches hold the high halves of 64-bit registers since their low halves were
// read.
type latches struct {
	clock    uint32
	counters [datasheet.CounterCount]uint32
}

var (
	_ vfio.Device    = (*Device)(nil)
	_ vfio.InProcess = (*Device)(nil)
	_ engine.Host    = host{}
)

// New makes a NIC that is as after power-on: memory decoding and bus mastering
// are off. It owns o.Wire, and closes it if it fails. Errors are *vfio.Error
// and wrap ErrOptions, engine.ErrConfig or an operating system error.
func New(o Options) (_ *Device, err error) {
	d := &Device{}
	defer func() {
		if err != nil {
			d.doorbells.close()
			d.sram.close()
			if o.Wire != nil {
				_ = o.Wire.Close()
			}
		}
	}()
	if err := o.complete(); err != nil {
		return nil, err
	}
	d.name, d.wire, d.clock = o.Name, o.Wire, o.Clock
	d.thread, d.mapped = o.Thread, o.Doorbells == DoorbellsMapped
	d.iommu.limit = o.Memory
	const op = "create emulated device"
	if c, ok := o.Wire.(wire.Claimer); ok {
		if err := c.Claim(o.MAC); err != nil {
			return nil, d.fail(op, err)
		}
	}
	d.engine, err = engine.New(engine.Config{Port: o.Wire, Memory: &d.iommu, Host: host{d},
		MAC: o.MAC, Limits: o.Limits, Timing: o.Timing, Pipeline: o.Pipeline, Clock: o.Clock})
	if err != nil {
		return nil, d.fail(op, err)
	}
	limits := d.engine.Limits
	d.msix = newMSIX(int(limits.Vectors), func() { d.engine.AddCounter(datasheet.CounterInterrupts, 1) })
	d.admin = newAdminQueue(sharer{d.engine, d}, &d.iommu, d.msix.raise, d.errorEvent.signal)
	d.bars = layBARs(limits, o.SRAM)
	if d.config, err = pciconfig.New(d.function()); err != nil {
		return nil, d.fail(op, err)
	}
	if d.sram, d.doorbells, err = d.newMemory(); err != nil {
		return nil, d.fail(op, err)
	}
	d.processor = d.newProcessor()
	if err := d.engine.MapSRAM(d.sram.bytes, d.processor.Used()); err != nil {
		return nil, d.fail(op, err)
	}
	d.dma = d.configuredDMA()
	d.tellMinimum()
	if d.mapped {
		d.engine.MapDoorbells(d.doorbells.bytes)
	}
	d.sharing = newSharing(o.Wire)
	d.special.Store(d.engine.Timed)
	// The order matters, since a wire that connects by itself may do so at any time.
	d.wire.OnLink(d.linkChanged)
	d.engine.Exclusive(func() { d.linkUp = d.wire.LinkUp() })
	if err := d.start(o); err != nil {
		return nil, d.fail(op, err)
	}
	return d, nil
}

// start begins to step the engine on a thread, or allows Poll to do so.
func (d *Device) start(o Options) error {
	if !d.thread {
		d.pollable.Store(true)
		d.regate()
		return nil
	}
	d.wire.SetWake(d.engine.Wake)
	ctx, cancel := context.WithCancel(context.Background())
	d.stop, d.stopped = cancel, make(chan struct{})
	started := make(chan error, 1)
	go func() {
		defer close(d.stopped)
		if o.Pinned {
			if err := pinThread(o.Core); err != nil {
				started <- err
				return
			}
		}
		started <- nil
		for ctx.Err() == nil {
			d.guard(func() { d.engine.Run(ctx) })
		}
	}()
	err := <-started
	if err != nil {
		d.wire.SetWake(nil)
		cancel()
	}
	return err
}

func (d *Device) Info() vfio.Info {
	return vfio.Info{Address: d.name, Backend: "emulator", Resettable: true, Regions: regionIndexes, IRQs: irqIndexes}
}

// MAC returns the address of the station.
func (d *Device) MAC() datasheet.MAC { return d.engine.MAC }

func (d *Device) Polled() bool { return !d.thread }

// Poll steps the engine once, and the engine at the other end of the wire if it
// was made together with this one, so that one goroutine can drive both. It
// does nothing for a device that runs on a thread of its own.
func (d *Device) Poll() bool {
	busy := d.step()
	if p := d.peer.Load(); p != nil && p.step() {
		busy = true
	}
	return busy
}

func (d *Device) step() bool {
	switch {
	case !d.pollable.Load():
		return false
	case !d.special.Load():
		worked, _ := d.stepFor(0, false)
		return worked
	}
	worked := false
	d.guard(func() { worked = d.engine.Step() })
	return worked || d.engine.Moving() // who sleeps is late
}

// stepFor is the engine's StepFor. The program may have unmapped its memory.
func (d *Device) stepFor(endpoint uint32, receive bool) (worked, completed bool) {
	if !d.foreign.Load() {
		return d.engine.StepFor(endpoint, receive)
	}
	d.guard(func() { worked, completed = d.engine.StepFor(endpoint, receive) })
	return worked, completed
}

// Wake is described at vfio.InProcess. It also wakes those who wait for the device at the
// other end of the wire, if one Poll steps both.
func (d *Device) Wake() {
	if d.idle.waiting.Load() {
		d.endIdle(true)
	}
	if p := d.peer.Load(); p != nil && p.idle.waiting.Load() {
		p.endIdle(true)
	}
}

// host has the methods of the device that the engine calls. Its methods run with the engine's lock
// held.
type host struct{ d *Device }

func (h host) Interrupt(vector uint16) { h.d.msix.raise(vector) }

func (h host) AdminEntry(e *datasheet.AdminEntry) { h.d.admin.entry(e) }

// WireBroke returns the last error of the device's port of a switch, see wire.Broke.
func (d *Device) WireBroke() *wire.PathError { return wire.Broke(d.wire) }

// Watch has show see each frame that crosses the wire, until it is called with nil, see
// engine.Engine.Watch.
func (d *Device) Watch(show func(sent bool, frame []byte)) bool { return d.engine.Watch(show) }

// WireStats returns the counters of the device's wire, see wire.Stats.
func (d *Device) WireStats() any { return wire.Stats(d.wire) }
