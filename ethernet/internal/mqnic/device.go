package mqnic

import (
	"context"
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/function"
	"github.com/trapeze-nic/trapeze/ethernet/internal/port"
	"github.com/trapeze-nic/trapeze/internal/mac"
	"github.com/trapeze-nic/trapeze/vfio"
)

// device is an interface of a NIC. It implements port.NIC.
type device struct {
	port    *port.Port
	options *ethernet.Options
	pci     vfio.Device
	f       *function.Function // nil until it is open
	regs    registers
	card    *card
	layout  *layout
	number  uint32 // of the interface
	queues  []*queue
}

func open(ctx context.Context, dev vfio.Device, m ethernet.Model, c ethernet.Options) (ethernet.Port, error) {
	d := &device{pci: dev, number: uint32(vfio.Interface(dev))}
	return port.Open(ctx, d, ethernet.Info{Device: dev.Info().Address, Driver: "mqnic", Model: m.Name, Tested: m.Tested, Options: c})
}

func (d *device) Setup(ctx context.Context, p *port.Port, info *ethernet.Info) (err error) {
	d.port, d.options = p, p.Options()
	if d.f, err = function.Open(d.pci, d.options.Timeout); err != nil {
		return err
	}
	d.regs.f = d.f
	if d.regs.Registers, err = d.f.OpenRegisters(vfio.RegionBAR0, leastBytes); err != nil {
		return err
	}
	if d.card, err = d.regs.readCard(d.regs.BAR().Size()); err != nil {
		return err
	}
	if d.number >= d.card.interfaces {
		return &ethernet.ConfigError{Field: "interface", Value: d.number, Want: fmt.Sprintf("0 to %d: so many interfaces it has", d.card.interfaces-1)}
	}
	if d.layout, err = d.regs.readInterface(d.card, d.number); err != nil {
		return err
	}
	if err := d.checkConfig(); err != nil {
		return err
	}
	info.Model = boardName(d.card.board)
	// Boards have their addresses in places that differ, and the NIC compares none.
	info.MAC = mac.Random()
	return p.SetupRings(d.f, info, func() error { return d.makeQueues(ctx) }, func() error { return d.start(ctx) })
}

// leastBytes is the least size of BAR0: the smallest design has more (mqnic_core.v,
// AXIL_CTRL_ADDR_WIDTH).
const leastBytes = 0x10000

// checkConfig checks what depends on the design.
func (d *device) checkConfig() error {
	c, l := d.options, d.layout
	most := min(int64(l.tx.count), int64(l.rx.count), int64(l.cq.count/2), int64(l.eq.count), int64(l.entries))
	for _, s := range l.schedulers {
		most = min(most, int64(s.channels.count))
	}
	frame := min(l.maxTX, l.maxRX)
	defaults, _ := ethernet.Options{Pool: c.Pool}.Check()
	switch {
	case int64(c.Queues) > most:
		return &ethernet.ConfigError{Field: "Options.Queues", Value: c.Queues, Want: fmt.Sprintf("at most %d: so many this interface has", most)}
	case uint64(c.MaxFrame()) > uint64(frame):
		return &ethernet.ConfigError{Field: "Options.MTU", Value: c.MTU,
			Want: fmt.Sprintf("at most %d: this interface takes frames of %d bytes", int64(frame)-ethernet.HeaderSize-ethernet.TagSize, frame)}
	case c.HashKey != defaults.HashKey:
		return fmt.Errorf("%w: Options.HashKey, as the key is in the gates (rx_hash.v)", ethernet.ErrNotSupported)
	case c.Offloads&^d.offloads() != 0:
		return fmt.Errorf("%w: this interface has not: %v", ethernet.ErrNotSupported, c.Offloads&^d.offloads())
	}
	return nil
}

// offloads are those that the design has. The hash is wanted with several queues, too.
func (d *device) offloads() (o ethernet.Offloads) {
	for bit, offload := range map[uint32]ethernet.Offloads{featureSendSum: ethernet.OffloadSendSum,
		featureSum: ethernet.OffloadReceiveSum, featureHash: ethernet.OffloadHash} {
		if d.layout.features&bit != 0 {
			o |= offload
		}
	}
	return o
}

// hashes says whether received frames have a hash.
func (d *device) hashes() bool {
	return d.layout.features&featureHash != 0 && (d.options.Queues > 1 || d.options.Offloads&ethernet.OffloadHash != 0)
}

// vector is the MSI-X vector of a queue.
func (d *device) vector(queue int) uint32 {
	return uint32(vfio.FirstVector(d.pci) + queue)
}

func (d *device) Hint(err error) string {
	switch {
	case errors.Is(err, ethernet.ErrDeviceGone):
		return "the device is in reset or has been removed: close the port"
	case errors.Is(err, ethernet.ErrNeedsReset):
		return "reset the board: write 1 to reset in its folder of /sys/bus/pci/devices, load its bit stream again, or power it off and on"
	case errors.Is(err, ethernet.ErrNotReady):
		return "Restart sets the interface up again; over a simulation, Options.Timeout may have to be longer"
	case errors.Is(err, ethernet.ErrUnsupportedDevice):
		return "the driver is for the last version of corundum/corundum, of December 2023"
	case errors.Is(err, ethernet.ErrNotSupported), errors.Is(err, ethernet.ErrConfig):
		return ""
	case errors.Is(err, ethernet.ErrProtocol):
		return "the bit stream or its simulation is broken"
	}
	return ""
}

// Link implements port.NIC. The NIC does not tell the speed.
func (d *device) Link(context.Context) (ethernet.Link, error) {
	at := d.layout.ports[0]
	d.regs.alive()
	up := d.regs.Read(at+portTX)&d.regs.Read(at+portRX)&portStatus != 0
	if err := d.regs.Take(); err != nil || !up {
		return ethernet.Link{}, err
	}
	return ethernet.Link{Up: true, FullDuplex: true}, nil
}

func (d *device) Look(ctx context.Context) (up bool, err error) {
	link, err := d.Link(ctx)
	return link.Up, err
}

// Filter implements port.NIC. The device receives all frames; the queues drop those of others.
func (d *device) Filter(_ context.Context, to, _ port.Filter) error {
	d.regs.alive()
	if err := d.regs.Take(); err != nil {
		return err
	}
	for _, q := range d.queues {
		q.Lock.Lock()
		q.accept = newFilter(to)
		q.Lock.Unlock()
	}
	return nil
}

// Count implements port.NIC. The NIC counts no frames.
func (d *device) Count() (*ethernet.DeviceStats, error) {
	d.regs.alive()
	return nil, d.regs.Take()
}
