package nic

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/hotlock"
	"github.com/trapeze-nic/trapeze/vfio"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
)

// Port is a wire.Port over one queue of a NIC.
type Port struct {
	ends.Base
	options Options
	mac     datasheet.MAC
	pool    *ethernet.Pool
	nic     ethernet.Port
	queue   ethernet.Queue
	cache   *ethernet.Cache

	// state has a bit for each reason why no frames pass.
	state atomic.Uint32
	// failure is why the NIC has failed, nil if it works.
	failure atomic.Pointer[error]

	// lock guards the queue but for Wait, and its cache: the goroutine that steps the engine uses
	// them, and the keeper.
	lock hotlock.Mutex
	tx   transmitter
	rx   receiver

	// parked: the receiver may be about to sleep, so that the keeper is to wait for
	// frames. stuck: frames have been committed for which the NIC has no room yet.
	parked, stuck atomic.Bool
	poke          chan struct{}
	stop          context.CancelFunc
	stopped       chan struct{}

	counters counters

	closing  sync.Once
	closeErr error
}

// Reasons why no frames pass.
const (
	pulled uint32 = 1 << iota // SetLink
	noLink                    // the NIC says so
	failed
	closed
)

var (
	_ ends.Port    = (*Port)(nil)
	_ ends.Drainer = (*Port)(nil)
)

// New opens a NIC and makes a port of it. Errors wrap ends.ErrOptions, or are those of
// ethernet.Open.
func New(ctx context.Context, o Options) (*Port, error) {
	if o.MTU != 0 {
		return open(ctx, o)
	}
	o.MTU = interfaceMTU(o.Address)
	p, err := open(ctx, o)
	if o.MTU > DefaultMTU && errors.Is(err, ethernet.ErrNotSupported) {
		// Older kernels, and some of their drivers, have AF_XDP for frames of a page only.
		o.MTU = DefaultMTU
		return open(ctx, o)
	}
	return p, err
}

func open(ctx context.Context, o Options) (*Port, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	pool, err := ethernet.NewPool(o.pool())
	if err != nil {
		return nil, err
	}
	nic, err := ethernet.Open(ctx, o.Address, ethernet.Options{MTU: o.MTU - ethernet.HeaderSize, MAC: ethernet.MAC(o.MAC),
		Promiscuous: o.Promiscuous, ReceiveDescriptors: ringSize, SendDescriptors: ringSize, Interrupts: true, Logger: o.Logger, Pool: pool})
	if errors.Is(err, vfio.ErrUnknownScheme) {
		err = &ethernet.Error{Op: "open", Device: o.Address, Err: err,
			Hint: "a program imports what its NICs need: ethernet/drivers, and vfio/kernel for pci:"}
	}
	if err != nil {
		return nil, errors.Join(err, pool.Close())
	}
	p, err := newPort(o, nic, pool)
	if err != nil {
		return nil, errors.Join(&ethernet.Error{Op: "open", Device: o.Address, Err: err}, nic.Close(), pool.Close())
	}
	return p, nil
}

// newPort makes a port of a NIC and its pool. If it fails they are the caller's.
func newPort(o Options, nic ethernet.Port, pool *ethernet.Pool) (*Port, error) {
	// The check sequence of Ethernet covers one hop: switches make it anew, and where the NIC is a virtual one there may
	// be none at all (SPEC.md 8.14).
	p := &Port{Base: ends.Base{Longest: o.MTU, Damages: true}, options: o, mac: datasheet.MAC(nic.MAC()), pool: pool, nic: nic, queue: nic.Queue(0),
		poke: make(chan struct{}, 1), stopped: make(chan struct{})}
	if !nic.MAC().IsStation() {
		return nil, fmt.Errorf("%w: its address is %v, which no station can have", ethernet.ErrProtocol, nic.MAC())
	}
	if p.queue == nil || p.queue.Cache() == nil || p.queue.Cache().Pool() != pool {
		return nil, fmt.Errorf("%w: it has no queue for the buffers", ethernet.ErrProtocol)
	}
	p.cache = p.queue.Cache()
	p.tx.reserved = -1
	link, err := nic.Link()
	if err != nil {
		return nil, err
	}
	p.set(noLink, !link.Up)
	ctx, cancel := context.WithCancel(context.Background())
	p.stop = cancel
	go p.keep(ctx)
	return p, nil
}

// MAC returns the address of the station.
func (p *Port) MAC() datasheet.MAC { return p.mac }

// LinkUp reports whether the NIC works and has a link, and the plug is in.
func (p *Port) LinkUp() bool { return p.state.Load() == 0 }

// SetWake has the function called when frames arrive after
// nothing has come for a while.
func (p *Port) SetWake(f func()) {
	p.Wake.Set(f)
	if f != nil {
		p.parked.Store(true)
		p.nudge()
	}
}

// SetLink leaves the NIC's own link as it is: what arrives while
// the plug is out is dropped.
func (p *Port) SetLink(up bool) {
	p.set(pulled, !up)
	p.Link.Call()
}

// set sets or clears a reason why no frames pass, and reports whether that was news.
func (p *Port) set(reason uint32, on bool) bool {
	if on {
		return p.state.Or(reason)&reason == 0
	}
	return p.state.And(^reason)&reason != 0
}

// nudge makes the keeper look at what there is to do.
func (p *Port) nudge() {
	select {
	case p.poke <- struct{}{}:
	default:
	}
}

// fail notes that the NIC cannot be used. It is called by the goroutine that finds out; the keeper
// sees to the rest.
func (p *Port) fail(err error) {
	if p.failure.CompareAndSwap(nil, &err) {
		p.set(failed, true)
		p.nudge()
	}
}

// Close stops the NIC and closes it; nothing touches memory then. A frame that is reserved
// or held stays readable and writable until the next call of those who send and receive,
// which give the memory back.
func (p *Port) Close() error {
	p.closing.Do(func() {
		p.Wake.Set(nil)
		p.Link.Set(nil)
		p.set(closed, true)
		p.stop()
		<-p.stopped
		p.closeErr = errors.Join(p.nic.Close(), p.leave())
	})
	return p.closeErr
}

// leave closes the pool of a port that is closed once no frame is held.
func (p *Port) leave() error {
	p.lock.Lock()
	defer p.lock.Unlock()
	if p.tx.attached || p.rx.attached {
		return nil
	}
	err := p.pool.Close()
	if errors.Is(err, ethernet.ErrInUse) {
		return nil // the NIC could not be stopped, which Close says: the memory stays its own
	}
	return err
}
