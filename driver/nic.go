package driver

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver/internal/dma"
	"github.com/trapeze-nic/trapeze/driver/internal/events"
	"github.com/trapeze-nic/trapeze/driver/internal/pump"
	"github.com/trapeze-nic/trapeze/firmware-loader/load"
	"github.com/trapeze-nic/trapeze/internal/capture"
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
	// NoTelemetry hides the NIC from programs beside this one, see docs/telemetry.md.
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
	space            *dma.Space
	vectors          []*vector
	nextVector       atomic.Uint32
	admin            *admin
	events           events.Queue
	goroutines       sync.WaitGroup
	unshow           func() // nil while it is being opened
	capture          capture.Capture

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
	pump     atomic.Pointer[pump.Pump]
	dma      dmaBlock
	programs struct {
		mu sync.Mutex // lets one operation use the processor block and the mailbox at a time, and guards loaded
		// loaded are the last two images, without their bytes: the one that runs, and the one that a
		// roll-back starts.
		loaded [2]load.Image
	}

	ptag  *Ptag // see SetDefaults
	eager bool

	keys   atomic.Uint32 // of VIs, given out so far
	giving atomic.Bool   // a command is being given to the device, see adminInterrupt

	listeners sync.Map // those that are open, by name

	// endpoints finds an endpoint by its number, without a lock.
	endpoints []atomic.Pointer[endpoint]
	// living are those that there are, in a slice that is replaced, with mu held, and not
	// changed.
	living atomic.Pointer[[]*endpoint]

	mu      sync.Mutex
	cqs     map[uint32]*CQ
	regions regionTable
}

// errNoContext: a call that may block has a nil context.
var errNoContext = fmt.Errorf("%w: the context is nil", descriptors.ErrInvalidParameter)

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
		return p.Look(1) || did
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
		p.Kick()
	}
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
		end := datasheet.Event{Code: datasheet.EventCatastrophic, CQ: datasheet.NoCQ}
		if fault, ok := errors.AsType[*FaultError](err); ok {
			end.Detail = fault.Code
		}
		n.events.End(end)
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

// Fail makes the error of an operation on this NIC of a cause, which is not nil.
func (n *NIC) Fail(op string, cause error) error { return NewError(op, n.Address(), cause) }

// Refuse makes an Error of what a caller has found itself: code says what kind it is, format, which may be empty, what exactly,
// and hint what can be done about it.
func (n *NIC) Refuse(op string, code descriptors.Code, hint, format string, args ...any) error {
	return n.error(op, refusal(code, hint, format, args...))
}

// inBlock calls f, which reads registers of a block, as an operation. It fails with
// ErrNotSupported if the device does not have the block. A device that has gone meanwhile has left
// nonsense in all that was read: then it has failed.
func (n *NIC) inBlock(op string, block uint32, f func() error) error {
	return n.do(n.background, op, func() error {
		if !n.regs.has(block) {
			return descriptors.ErrNotSupported
		}
		err := f()
		if err == nil || errors.Is(err, ErrBadRegisters) {
			if _, gone := n.regs.status(n.background); gone != nil {
				err = n.fail(gone)
			}
		}
		return err
	})
}

// alone carries out f, an operation on an optional block, with mu held. If the device lacks the block, it fails with
// ErrNotSupported, the reason lacks and the hint.
func (n *NIC) alone(ctx context.Context, op string, block uint32, mu *sync.Mutex, lacks, hint string, f func() error) error {
	return n.do(ctx, op, func() error {
		if !n.regs.has(block) {
			return hinted(fmt.Errorf("%w: %s", descriptors.ErrNotSupported, lacks), hint)
		}
		mu.Lock()
		defer mu.Unlock()
		return f()
	})
}

// Waiting says how waits go on while nothing happens: they spin, then they let other
// goroutines run between two looks, then they arm an interrupt and sleep.
type Waiting struct {
	// Spin and Yield are for how long. Zero stands for 100 looks and for 50, a negative
	// time for not at all.
	Spin, Yield time.Duration
	// Sleep is the longest time between two looks of a wait that sleeps; interrupts end
	// a sleep as ever. Zero stands for 5 ms at first, and up to 50 ms of a wait that has
	// been in vain for long. With a negative time waits never sleep.
	Sleep time.Duration
}

// SetWaiting has waits that begin from now on go on as w says.
func (n *NIC) SetWaiting(w Waiting) { n.waiting.Store(&w) }
