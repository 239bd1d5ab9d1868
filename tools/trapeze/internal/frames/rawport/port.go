// Package rawport makes an ethernet.Port of the endpoint for raw frames of a Trapeze NIC,
// so that programs for plain frames run on every wire. Unlike the ports of Ethernet
// drivers it copies: frames lie in the NIC's registered memory, which is not the pool's.
package rawport

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/trapeze-nic/trapeze/driver"
	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/via"
)

// port is an ethernet.Port with one queue.
type port struct {
	nic    *via.NIC
	driver *driver.NIC // the same one
	info   ethernet.Info
	queue  *queue

	closing  sync.Once
	closeErr error
}

// New makes a port of a NIC. The NIC is the port's from then on: if New fails it is closed.
// An endpoint takes frames for the NIC's own address and all groups, or all frames if
// Options.Promiscuous is set; the first endpoint of a NIC takes those that no program of the
// NIC gives to another, so there is one queue. An MTU of zero is 1500, or what the wire can
// carry if that is less. Errors are *ethernet.Error: they wrap ErrConfig, ErrNotSupported,
// and the errors of package via.
func New(ctx context.Context, d *driver.NIC, c ethernet.Options) (ethernet.Port, error) {
	address := d.Address()
	fail := func(err error, hint string) (ethernet.Port, error) {
		return nil, &ethernet.Error{Op: "open", Device: address, Err: err, Hint: hint}
	}
	// The longest frame of the wire, without room for a tag: a frame with one is a payload
	// that is shorter.
	room := d.Identity().MTU - ethernet.HeaderSize
	if c.MTU == 0 {
		c.MTU = min(1500, room)
	}
	c, err := c.Check()
	switch {
	case err != nil:
		return fail(errors.Join(err, d.Close()), "")
	case c.MTU > room:
		return fail(errors.Join(fmt.Errorf("%w: an MTU of %d; frames of this wire have %d bytes of payload", ethernet.ErrNotSupported, c.MTU, room), d.Close()),
			"the option mtu of emu: addresses is the longest frame")
	case c.Queues > 1:
		return fail(errors.Join(fmt.Errorf("%w: %d queues", ethernet.ErrNotSupported, c.Queues), d.Close()), "such a port has one queue")
	case c.Offloads != 0:
		return fail(errors.Join(fmt.Errorf("%w: offloads: %v", ethernet.ErrNotSupported, c.Offloads), d.Close()), "")
	case c.MAC != ethernet.MAC{} && c.MAC != d.Identity().MAC:
		return fail(errors.Join(fmt.Errorf("%w: another address than the NIC's, %v", ethernet.ErrNotSupported, d.Identity().MAC), d.Close()),
			"the option mac of emu: addresses sets it")
	}
	nic, err := via.New(ctx, d, via.Options{OnError: func(via.AsyncError) {}, Logger: c.Logger})
	if err != nil { // which has closed d
		return fail(err, "")
	}
	p := &port{nic: nic, driver: d, info: ethernet.Info{Device: address, Driver: "trapeze", Model: nic.Query().Backend, Tested: true,
		MAC: nic.Query().Address, Options: c}}
	if c.Interrupts {
		p.info.Vectors = d.Identity().Vectors
	}
	if err := c.Pool.Hold(); err != nil {
		return fail(errors.Join(err, nic.Close()), "")
	}
	if p.queue, err = newQueue(ctx, p); err != nil {
		c.Pool.Release()
		return fail(errors.Join(err, nic.Close()), "")
	}
	return p, nil
}

func (p *port) fail(op string, err error) error {
	if err == nil {
		return nil
	}
	return &ethernet.Error{Op: op, Device: p.info.Device, Err: err}
}

func (p *port) unsupported(op, hint string) error {
	return &ethernet.Error{Op: op, Device: p.info.Device, Err: ethernet.ErrNotSupported, Hint: hint}
}

func (p *port) Info() ethernet.Info { return p.info }

func (p *port) Queue(i int) ethernet.Queue {
	if i != 0 {
		return nil
	}
	return p.queue
}

func (p *port) Link() (ethernet.Link, error) {
	ctx, cancel := context.WithTimeout(context.Background(), p.info.Options.Timeout)
	defer cancel()
	h, err := p.driver.Health(ctx)
	return ethernet.Link{Up: h.LinkUp, FullDuplex: true}, p.fail("look at the link of", err)
}

func (p *port) MAC() ethernet.MAC { return p.info.MAC }

func (p *port) SetMAC(m ethernet.MAC) error {
	if m == p.info.MAC {
		return nil
	}
	return p.unsupported("change the address of", "the NIC's address is fixed")
}

func (p *port) SetPromiscuous(on bool) error {
	if on == p.info.Options.Promiscuous {
		return nil
	}
	return p.unsupported("change which frames go to", "set Options.Promiscuous when it is opened")
}

// SetMulticast has nothing to do: frames to all groups come anyway.
func (p *port) SetMulticast(groups []ethernet.MAC) error { return nil }

func (p *port) SetVLANs(ids []uint16) error {
	if ids == nil {
		return nil
	}
	return p.unsupported("filter the VLANs of", "all are received")
}

// Counters has the device's own with those of Device that there are.
func (p *port) Stats() ethernet.Stats {
	c := ethernet.Stats{Queues: []ethernet.QueueStats{p.queue.counters.load()}}
	if device, err := p.driver.Counters(); err == nil {
		c.Device = &ethernet.DeviceStats{
			ReceivedFrames: device["frames_received"], ReceivedBytes: device["bytes_received"],
			SentFrames: device["frames_sent"], SentBytes: device["bytes_sent"],
			Missed: device["receive_queue_empty"], ReceiveErrors: device["frames_dropped"],
		}
	}
	return c
}

func (p *port) Restart(context.Context) error {
	return p.unsupported("restart", "close it and open it again")
}

// Close closes the NIC, which ends waits.
func (p *port) Close() error {
	p.closing.Do(func() {
		p.queue.close()
		p.closeErr = p.fail("close", p.nic.Close())
		p.info.Options.Pool.Release()
	})
	return p.closeErr
}
