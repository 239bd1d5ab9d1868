// Package share makes parts of a NIC with Trapeze's data sheet, each a PCI function of its own for one client
// behind vfio-user. It is VIA's kernel agent.
//
// A part carries out a client's admin commands once they name nothing but what is the client's. The device
// reads and writes the client's memory by itself. A client stores its doorbells to memory of its own part, from
// where a goroutine passes them to the device: a file of the device would give a client the doorbells of all.
package share

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/trapeze-nic/trapeze/descriptors"
	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// MaxParts bounds the clients that share a NIC: each may then wait for the network with as many commands of a
// kind as maxWaits says.
const MaxParts = 32

// ErrFull: a NIC has MaxParts parts.
var ErrFull = errors.New("the NIC has as many clients as it can have")

// NIC is one that clients share.
type NIC struct {
	nic *driver.NIC
	id  driver.Identity
	log *slog.Logger

	parts  atomic.Pointer[[]*Part] // replaced with mu held
	relay  relay
	up     atomic.Bool   // the wire has a peer, as far as is known
	failed chan struct{} // closed when the device can be used no more
	once   sync.Once

	mu    sync.Mutex
	names map[datasheet.Discriminator]*Part // who waits, or has waited, with it
}

// ErrNoIOMMU: no IOMMU guards a NIC, and a client could have it access all memory.
var ErrNoIOMMU = fmt.Errorf("%w: no IOMMU keeps the memory of its clients apart; turn the IOMMU on, or open the NIC without the agent", descriptors.ErrNotSupported)

const opOpen = "open"

// Open opens the NIC at an address such as pci:0000:03:00.0 or vfio-user:PATH. Errors are a *driver.Error. Of a
// NIC without an IOMMU it wraps ErrNoIOMMU, and the NIC is not touched.
func Open(ctx context.Context, address string, log *slog.Logger) (*NIC, error) {
	dev, err := vfio.Open(ctx, address)
	if err != nil {
		return nil, driver.NewError(opOpen, address, err)
	}
	if p, ok := dev.(vfio.Physical); ok && p.Unguarded() {
		return nil, errors.Join(driver.NewError(opOpen, address, ErrNoIOMMU), dev.Close())
	}
	d, err := driver.New(ctx, dev, driver.Options{Logger: log})
	if err != nil {
		return nil, err
	}
	n := &NIC{nic: d, id: d.Identity(), log: log, failed: make(chan struct{}), names: map[datasheet.Discriminator]*Part{}}
	n.parts.Store(&[]*Part{})
	d.OnEvent(n.event)
	h, err := d.Health(ctx)
	if err != nil {
		return nil, errors.Join(err, d.Close())
	}
	n.up.Store(h.LinkUp)
	n.relay.start(n)
	return n, nil
}

// MAC is the NIC's station, which is that of all its parts.
func (n *NIC) MAC() datasheet.MAC { return n.id.MAC }

// MTU is that of the NIC in bytes, with the wire header.
func (n *NIC) MTU() int { return n.id.MTU }

// LinkUp reports whether the wire has a peer at its other end, as far as the device has told.
func (n *NIC) LinkUp() bool { return n.up.Load() }

// Turns counts how often the doorbells of the parts were looked at.
func (n *NIC) Turns() uint64 { return n.relay.turns.Load() }

// Failed returns a channel that is closed when the device has failed, was reset by another or is gone. Its parts
// answer nothing any more then.
func (n *NIC) Failed() <-chan struct{} { return n.failed }

// broken gives the device up.
func (n *NIC) broken(why error) {
	n.once.Do(func() {
		n.log.Error("a shared NIC can be used no more", "error", why)
		close(n.failed)
	})
}

func (n *NIC) isBroken() bool {
	select {
	case <-n.failed:
		return true
	default:
		return false
	}
}

// Close closes the NIC, whose parts are closed.
func (n *NIC) Close() error {
	n.relay.end()
	return n.nic.Close()
}

// event passes an event on to those that it concerns.
func (n *NIC) event(e datasheet.Event) {
	if e.Code == datasheet.EventCatastrophic {
		n.broken(fmt.Errorf("the device says: %v, detail %#x", e.Code, e.Detail))
		return
	}
	if e.Code == datasheet.EventLink {
		n.up.Store(e.Detail != 0)
	}
	for _, p := range *n.parts.Load() {
		p.event(e)
	}
}

// add makes a part known, and remove forgets it.
func (n *NIC) add(p *Part) error {
	n.mu.Lock()
	defer n.mu.Unlock()
	old := *n.parts.Load()
	if len(old) >= MaxParts {
		return ErrFull
	}
	now := append(slices.Clone(old), p)
	n.parts.Store(&now)
	n.relay.rouse()
	return nil
}

func (n *NIC) remove(p *Part) {
	n.mu.Lock()
	defer n.mu.Unlock()
	now := slices.DeleteFunc(slices.Clone(*n.parts.Load()), func(q *Part) bool { return q == p })
	n.parts.Store(&now)
	n.unname(p)
}

// name gives a part the discriminator that it waits with, unless that is another part's. A part keeps it, so that no
// other takes clients that come between two waits.
func (n *NIC) name(d datasheet.Discriminator, p *Part) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	owner, known := n.names[d]
	if !known && p.names >= maxNames {
		return false
	}
	if !known {
		n.names[d] = p
		p.names++
	}
	return !known || owner == p
}

// unname takes a part's discriminators from it. mu is held.
func (n *NIC) unname(p *Part) {
	for d, owner := range n.names {
		if owner == p {
			delete(n.names, d)
		}
	}
	p.names = 0
}

// forgetNames is unname for a part that begins anew.
func (n *NIC) forgetNames(p *Part) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.unname(p)
}

// window is memory of a client.
type window struct {
	iova, size uint64 // as the client knows it
	device     uint64 // bus address of the device
	flags      vfio.DMAFlags
	mem        *vfio.Memory
	fd         int
	users      int // objects of the device that are there
}
