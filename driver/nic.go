package driver

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// Options are choices of Open and New. The zero value is good.
type Options struct {
	// Logger takes asynchronous events that no handler takes, and what goes
	// wrong in the background; nil for slog.Default.
	Logger *slog.Logger
	// CommandTimeout is the time that the device may take to answer an admin command,
	// to come out of reset, and how long Close may take; 0 for 2 s. Time in which this
	// program is not run does not count.
	CommandTimeout time.Duration
	// NoTelemetry has the process not show the NIC to programs beside it, see docs/telemetry.md.
	NoTelemetry bool
	// SampleLatency k has one send in 2^k of each VI timed from post to completion, for programs
	// that look at the NIC. A completion counts from the program's next send, look or wait at
	// either queue. It is 1 to 20, and 0 for none, or for what the variable TRAPEZE_LATENCY of
	// the environment says.
	SampleLatency int
	// IDs are PCI vendor and device numbers to accept besides the project's own.
	IDs []PCIID
}

// NIC is an open device. Methods may be called from several goroutines.
type NIC struct {
	dev        vfio.Device
	local      vfio.InProcess // nil for a device of another process, or the kernel's
	poller     vfio.Poller    // nil if the device makes progress by itself
	waker      vfio.InProcess // nil if the poller cannot tell of what comes from outside
	remote     vfio.Remote    // nil if the device is in this process, or the kernel's
	info       vfio.Info
	options    Options
	waiting    atomic.Pointer[Waiting]
	log        *slog.Logger
	opened     time.Time
	background context.Context

	bar0, bar2, bar4 *region
	marks            bool // doorbells are marked
	regs             registers
	identity         Identity
	iovas            *vfio.IOVAAllocator
	physical         vfio.Physical // nil behind an IOMMU
	vectors          []*vector
	nextVector       atomic.Uint32
	admin            *admin
	events           eventQueue
	goroutines       sync.WaitGroup
	unshow           func() // nil while it is being opened
	captured         captured

	// ops is held for reading by each operation that uses the admin queue or
	// BAR0, for writing by Close while it takes everything down.
	ops       sync.RWMutex
	closing   atomic.Bool
	done      chan struct{} // closed when Close begins
	closeOnce sync.Once
	closeErr  error
	mastering bool   // the device may do DMA: Close must stop it first
	resets    uint32 // of the device, with the last one of ours

	fault     atomic.Pointer[error]
	lastCheck atomic.Int64 // ns since opened
	checking  atomic.Int64 // since when a remote device is being looked at, as lastCheck; or 0

	// pump runs the delivery policy, nil while the device does so itself.
	pump     atomic.Pointer[pump]
	dma      dmaBlock
	programs programs

	ptag  *Ptag // see SetDefaults
	eager bool

	keys   atomic.Uint32 // of VIs, given out so far
	giving atomic.Bool   // a command is being given to the device, see adminInterrupt

	// endpoints finds an endpoint by its number, without a lock.
	endpoints []atomic.Pointer[endpoint]
	// living are those that there are, in a slice that is replaced, with mu held, and not
	// changed.
	living atomic.Pointer[[]*endpoint]

	mu      sync.Mutex
	buffers map[*dmaBuffer]struct{}
	cqs     map[uint32]*CQ
	regions regionTable
	foreign foreign
}

const opOpen = "open"

// errNoContext: a call that may block has a nil context.
var errNoContext = fmt.Errorf("%w: the context is nil", descriptors.ErrInvalidParameter)

// Open opens the NIC at an address, see vfio.ParseAddress.
func Open(ctx context.Context, address string, o Options) (*NIC, error) {
	if ctx == nil {
		return nil, NewError(opOpen, address, errNoContext)
	}
	dev, err := vfio.Open(ctx, address)
	if err != nil {
		return nil, NewError(opOpen, address, err)
	}
	return New(ctx, dev, o)
}

// inUse has the devices of all NICs that are open.
var inUse sync.Map

// claimDevice notes that a NIC has the device, and reports whether none had it. A device that cannot be compared is not known again.
func claimDevice(dev vfio.Device) bool {
	if !reflect.TypeOf(dev).Comparable() {
		return true
	}
	_, taken := inUse.LoadOrStore(dev, true)
	return !taken
}

// closeDevice closes a device that was claimed.
func closeDevice(dev vfio.Device) error {
	err := dev.Close()
	if reflect.TypeOf(dev).Comparable() {
		inUse.Delete(dev)
	}
	return err
}

// New takes a device, resets it and makes it ready. The device belongs to the
// NIC from then on: if New fails, it is closed. A device that another NIC has is refused with
// ErrInvalidState, and stays that NIC's.
//
// A device that is not a Trapeze NIC is refused with ErrUnsupportedDevice, one
// whose registers this driver does not understand with ErrBadRegisters or a
// *VersionError; neither is written to except for enabling memory decoding.
func New(ctx context.Context, dev vfio.Device, o Options) (*NIC, error) {
	if dev == nil {
		return nil, NewError(opOpen, "", fmt.Errorf("%w: the device is nil", descriptors.ErrInvalidParameter))
	}
	if !claimDevice(dev) {
		return nil, hinted(NewError(opOpen, dev.Info().Address, fmt.Errorf("%w: another NIC has the device", descriptors.ErrInvalidState)),
			"use that NIC, or close it and open the device anew")
	}
	err := o.sampleLatency()
	if ctx == nil {
		err = errNoContext
	}
	if err != nil {
		return nil, errors.Join(NewError(opOpen, dev.Info().Address, err), closeDevice(dev))
	}
	if o.CommandTimeout <= 0 {
		o.CommandTimeout = 2 * time.Second
	}
	o.Logger = cmp.Or(o.Logger, slog.Default())
	n := &NIC{
		dev: dev, info: dev.Info(), options: o, opened: time.Now(), background: context.Background(),
		done: make(chan struct{}), buffers: map[*dmaBuffer]struct{}{}, cqs: map[uint32]*CQ{},
	}
	n.SetWaiting(Waiting{})
	n.log = o.Logger.With("device", n.info.Address)
	n.poller, _ = dev.(vfio.Poller)
	if n.local, _ = dev.(vfio.InProcess); n.local != nil {
		if n.waker = n.local; !n.local.Polled() {
			n.poller, n.waker = nil, nil
		}
	}
	n.remote, _ = dev.(vfio.Remote)
	n.regions.m, n.regions.failed = map[uint32]*Memory{}, n.failed
	if err := n.bound(ctx, 0, func() error { return n.setup(ctx) }); err != nil {
		n.closeOnce.Do(n.shutdown)
		return nil, n.error(opOpen, err)
	}
	n.unshow = n.show()
	return n, nil
}

// Address returns the address by which the device was opened.
func (n *NIC) Address() string { return n.info.Address }

// Backend returns what gives access to the device, see vfio.Info.
func (n *NIC) Backend() string { return n.info.Backend }

// Identity returns what the device says about itself.
func (n *NIC) Identity() Identity {
	id := n.identity
	id.Blocks = slices.Clone(id.Blocks)
	return id
}

// Poll steps a device that makes no progress by itself, and takes
// what it has written to the admin queue. It reports whether anything was done.
func (n *NIC) Poll() bool {
	if n.closing.Load() {
		return false
	}
	return n.step()
}

// step is Poll also while the NIC closes.
func (n *NIC) step() bool {
	did := n.progress()
	return n.admin.tryDrain() || did
}

// progress steps what makes no progress by itself: a device
// without a thread, and the host's part in moving frames. It reports whether
// anything was done.
func (n *NIC) progress() bool {
	did := n.poller != nil && n.poller.Poll()
	if p := n.pump.Load(); p != nil {
		return p.look(1) || did
	}
	return did
}

// posted is called when there is work for the device: those who sleep instead of
// stepping it, or of running its policy, wake.
func (n *NIC) posted() {
	if n.waker != nil {
		n.waker.Wake()
	}
	if p := n.pump.Load(); p != nil {
		p.kick()
	}
}

// ReadSRAM copies the device's memory from offset on.
func (n *NIC) ReadSRAM(offset uint64, p []byte) error {
	return n.do(n.background, "read SRAM", func() error { return n.inSRAM(offset, p, n.bar4.read) })
}

// WriteSRAM copies p into the device's memory.
func (n *NIC) WriteSRAM(offset uint64, p []byte) error {
	return n.do(n.background, "write SRAM", func() error { return n.inSRAM(offset, p, n.bar4.write) })
}

// FreeSRAM returns the bytes of the memory that the device gives out which are not in use, and how
// many it has to give out in all; zeros for a device that gives out none.
func (n *NIC) FreeSRAM() (free, all uint32, err error) {
	err = n.inBlock("ask for free SRAM", datasheet.BlockIdentity, func() error {
		var base, left uint32
		if n.regs.blocks[datasheet.BlockIdentity].Size < datasheet.RegSRAMFree+4 {
			return nil
		}
		err := n.regs.readAll(n.background, datasheet.BlockIdentity, reading{datasheet.RegSRAMBase, &base}, reading{datasheet.RegSRAMFree, &left})
		if err != nil || base == allOnes { // it does not have the register
			return err
		}
		if base > n.identity.SRAM || left > n.identity.SRAM-base {
			return fmt.Errorf("%w: %#x bytes of SRAM are free behind %#x, of %#x", ErrProtocol, left, base, n.identity.SRAM)
		}
		free, all = left, n.identity.SRAM-base
		return nil
	})
	return free, all, err
}

// checkSRAM checks that size bytes from offset on are device memory.
func (n *NIC) checkSRAM(offset uint64, size int) error {
	if all := min(n.bar4.size, uint64(n.identity.SRAM)); offset > all || uint64(size) > all-offset {
		return fmt.Errorf("%w: %d bytes at %#x, SRAM has %#x", vfio.ErrOutOfRange, size, offset, all)
	}
	return nil
}

// inSRAM is an access to device memory, if p fits there.
func (n *NIC) inSRAM(offset uint64, p []byte, access func(uint64, []byte) error) error {
	if err := n.checkSRAM(offset, len(p)); err != nil || len(p) == 0 {
		return err
	}
	return access(offset, p)
}

// CheckCall fails if ctx is missing or the NIC is closed.
func (n *NIC) CheckCall(ctx context.Context, op string) error {
	if ctx == nil {
		return n.noContext(op)
	}
	if n.closing.Load() {
		return n.error(op, descriptors.ErrClosed)
	}
	return nil
}

// doAny carries out f, which is the operation op, on a device in any state.
func (n *NIC) doAny(ctx context.Context, op string, f func() error) error {
	if err := n.CheckCall(ctx, op); err != nil {
		return err
	}
	n.ops.RLock()
	defer n.ops.RUnlock()
	if n.closing.Load() {
		return n.error(op, descriptors.ErrClosed)
	}
	return n.error(op, f())
}

// do is doAny on a device that works.
func (n *NIC) do(ctx context.Context, op string, f func() error) error {
	return n.doAny(ctx, op, func() error {
		if err := n.failed(); err != nil {
			return err
		}
		return f()
	})
}

// get is do, of a NIC or of something on it, for an operation with a result.
func get[T any](ctx context.Context, do func(context.Context, string, func() error) error, op string, f func() (T, error)) (result T, err error) {
	err = do(ctx, op, func() (err error) {
		result, err = f()
		return err
	})
	return result, err
}

// doClosing is do for the closing of an object, which is done if the NIC is closed.
func (n *NIC) doClosing(ctx context.Context, op string, f func() error) error {
	begun := false
	err := n.do(ctx, op, func() error {
		if begun = true; ctx.Err() != nil {
			return ctx.Err()
		}
		return f()
	})
	if !begun && errors.Is(err, descriptors.ErrClosed) {
		return nil
	}
	return err
}

// noContext is the error of a call with a nil context.
func (n *NIC) noContext(op string) error {
	return n.refuse(op, errNoContext, "pass context.Background() to wait without limit")
}

// fail remembers that the device cannot be used any more, which ends waits and
// posts, and tells the handler of events. The first reason stays; it is returned.
// It may be called with locks of the data path held.
func (n *NIC) fail(err error) error {
	if n.fault.CompareAndSwap(nil, &err) {
		n.regions.forget()
		n.log.Error("device failed", "err", err)
		n.catastrophe(err)
	}
	return *n.fault.Load()
}

func (n *NIC) failed() error {
	if err := n.fault.Load(); err != nil {
		return *err
	}
	return nil
}

// error wraps err, if it is not nil, with what was attempted and a hint.
func (n *NIC) error(op string, err error) error {
	if err == nil {
		return nil
	}
	if u, ok := err.(*unknownOutcome); ok {
		err = u.err
	}
	return NewError(op, n.info.Address, err)
}

// refuse is error with a hint of its own.
func (n *NIC) refuse(op string, err error, hint string) error {
	return n.error(op, hinted(err, hint))
}

// hinted is err with a hint, for an operation that is going to fail with it.
func hinted(err error, hint string) error {
	e := NewError("", "", err)
	e.Hint = hint
	return e
}
