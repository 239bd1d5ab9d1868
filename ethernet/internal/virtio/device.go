package virtio

import (
	"context"
	"errors"
	"fmt"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/ethernet/internal/port"
	"github.com/trapeze-nic/trapeze/ethernet/internal/virtio/internal/transport"
)

// What agree refuses, for the hints.
var (
	errNoPacked = fmt.Errorf("%w: packed queues (VIRTIO_F_RING_PACKED)", ethernet.ErrNotSupported)
	errQueues   = fmt.Errorf("%w: number of queues", ethernet.ErrNotSupported)
)

// device is a virtio network device. It implements port.NIC.
type device struct {
	port    *port.Port
	options *ethernet.Options
	info    *ethernet.Info
	ring    string // ringPacked, ringSplit, or empty for any
	// connect takes the device. It has alert called, by any goroutine, when the device ends.
	connect   func(alert func()) (transport.Transport, error)
	transport transport.Transport // nil until connected
	features  uint64
	state     transport.Config
	control   *control
	memory    []byte // of commands and all rings
	memoryBus uint64
	poolBus   uint64
	queues    []*queue
}

func (d *device) Setup(ctx context.Context, p *port.Port, info *ethernet.Info) (err error) {
	d.port, d.options, d.info = p, p.Options(), info
	if d.transport, err = d.connect(p.Poke); err != nil {
		return err
	}
	if headroom := d.options.Pool.Options().Headroom; headroom < headerSize {
		return &ethernet.ConfigError{Field: "PoolOptions.Headroom", Value: headroom,
			Want: fmt.Sprintf("at least %d, for what virtio puts before a frame", headerSize)}
	}
	return d.setUp(ctx)
}

// vhost reports whether the device is behind a back end of vhost-user.
func (d *device) vhost() bool { return d.info.Model == vhostModel }

func (d *device) Hint(err error) string {
	switch {
	case errors.Is(err, ethernet.ErrDeviceGone) && d.vhost():
		return "does the back end still run? Restart connects again"
	case errors.Is(err, ethernet.ErrNeedsReset):
		return "Restart resets it"
	case errors.Is(err, errNoPacked):
		return "give ring=split or no ring, or have the back end offer packed queues"
	case errors.Is(err, errQueues) && d.vhost():
		return fmt.Sprintf("ask for fewer, or give the back end as many: net_vhost of DPDK takes queues=%d", d.info.Options.Queues)
	}
	return ""
}

// Link implements port.NIC. Devices that do not say have a link.
func (d *device) Link(ctx context.Context) (ethernet.Link, error) {
	c, err := d.transport.Config(ctx)
	if err == nil {
		err = d.transport.Health()
	}
	if err != nil {
		return ethernet.Link{}, err
	}
	l := ethernet.Link{Up: c.LinkUp || d.features&transport.FeatureStatus == 0}
	if d.features&transport.FeatureSpeed != 0 {
		l.Speed, l.FullDuplex = c.Speed, c.FullDuplex
	}
	return l, nil
}

// Look implements port.NIC. A device takes frames without a link too.
func (d *device) Look(context.Context) (up bool, err error) { return true, d.transport.Health() }

// Count implements port.NIC: the device counts nothing itself.
func (d *device) Count() (*ethernet.DeviceStats, error) { return nil, nil }

func (d *device) Restart(ctx context.Context) error {
	d.pause()
	err := d.transport.Stop(ctx)
	switch {
	case err == nil:
		d.reclaim()
		return d.start(ctx)
	case !errors.Is(err, ethernet.ErrDeviceGone) || errors.Is(err, ethernet.ErrNotReady):
		// It may still use buffers and rings, so they are left as they are.
		return fmt.Errorf("%w: %w", ethernet.ErrNotStopped, err)
	}
	return err
}

// Release implements port.NIC. What the device may still touch is not given back.
func (d *device) Release() error {
	if d.transport == nil {
		return nil
	}
	d.pause()
	ctx, cancel := d.port.Limited()
	defer cancel()
	if err := d.transport.Stop(ctx); err == nil || errors.Is(err, ethernet.ErrDeviceGone) {
		d.reclaim() // if it fails Close tells, which tries harder
	}
	err := d.transport.Close()
	for _, q := range d.queues {
		err = errors.Join(err, q.close())
	}
	return err
}
