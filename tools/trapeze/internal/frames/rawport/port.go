// Package rawport makes an ethernet.Port of the endpoint for raw frames of a Trapeze NIC,
// so that programs for plain frames run on every wire. Unlike the ports of Ethernet
// drivers it copies: frames lie in the NIC's registered memory, which is not the pool's.
package rawport

import (
	"context"
	"errors"
	"fmt"

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
}

// New makes a port of a NIC. The NIC is the port's from then on: if New fails it is closed.
// An endpoint takes frames for the NIC's own address and all groups, or all frames if
// Options.Promiscuous is set; the first endpoint of a NIC takes those that no program of the
// NIC gives to another, so there is one queue. An MTU of zero is 1500, or what the wire can
// carry if that is less. The port is closed when none of its other methods runs. Errors are *ethernet.Error: they wrap ErrConfig, ErrNotSupported,
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

func (p *port) Info() ethernet.Info { return p.info }

func (p *port) Queue(int) ethernet.Queue { return p.queue }

func (p *port) Link() (ethernet.Link, error) {
	ctx, cancel := context.WithTimeout(context.Background(), p.info.Options.Timeout)
	defer cancel()
	h, err := p.driver.Health(ctx)
	return ethernet.Link{Up: h.LinkUp, FullDuplex: true}, p.fail("look at the link of", err)
}

func (p *port) MAC() ethernet.MAC { return p.info.MAC }

// SetMulticast has nothing to do: frames to all groups come anyway.
func (p *port) SetMulticast([]ethernet.MAC) error { return nil }

// What a port is, it is from when it is opened: no command changes it.
func (p *port) SetMAC(ethernet.MAC) error {
	return p.fail("set the address of", ethernet.ErrNotSupported)
}
func (p *port) SetPromiscuous(bool) error { return p.fail("set the mode of", ethernet.ErrNotSupported) }
func (p *port) SetVLANs([]uint16) error {
	return p.fail("filter the VLANs of", ethernet.ErrNotSupported)
}
func (p *port) Restart(context.Context) error { return p.fail("restart", ethernet.ErrNotSupported) }

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

func (p *port) Close() error {
	p.queue.cache.Close()
	defer p.info.Options.Pool.Release()
	return p.fail("close", p.nic.Close())
}
