package cli

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/channel"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/peer"
	"github.com/trapeze-nic/trapeze/via"
)

// channelTarget is whom a command reaches over channels, and how.
type channelTarget struct {
	Device   string        `flag:"device" help:"address of the NIC to use (default two in this process)"`
	To       string        `flag:"to" help:"MAC address of the NIC to reach (default the NIC that listens on the wire)"`
	Priority string        `flag:"priority" default:"high" help:"high or low"`
	Timeout  time.Duration `flag:"timeout" default:"10s" help:"how long to try to reach the other end, and how long that may say nothing"`
	Capture  captureFlag
}

// check looks at all flags but --capture.
func (f *channelTarget) check() (channel.Priority, error) {
	if f.Timeout <= 0 {
		return 0, option.Errorf("--timeout %v: it must be more than nothing", f.Timeout)
	}
	if f.Device != "" {
		if err := peer.CheckDevice(f.Device); err != nil {
			return 0, err
		}
	}
	if _, err := peer.Target(f.To); err != nil {
		return 0, err
	}
	return parsePriority(f.Priority)
}

func parsePriority(s string) (channel.Priority, error) {
	switch s {
	case "high":
		return channel.High, nil
	case "low":
		return channel.Low, nil
	}
	return 0, option.Errorf("--priority %q: high or low", s)
}

// channelPeer is a NIC, and who is to be reached from it.
type channelPeer struct {
	nic     *via.NIC
	to      via.MAC
	timeout time.Duration
	capture *cellCapture
}

// dial opens a pair of channels with the listener at a name there.
func (at channelPeer) dial(ctx context.Context, name string, o channel.Options) (*channel.Channel, error) {
	dialling, cancel := context.WithTimeout(ctx, at.timeout)
	defer cancel()
	c, err := channel.Dial(dialling, at.nic, via.Address{MAC: at.to, Discriminator: name}.String(), o)
	if err != nil {
		return nil, explainDial(err, at.timeout, "trapeze channel listen")
	}
	return c, nil
}

// with opens the NIC, and without --device a second one in this process where serve answers,
// and closes all of that when use is done. Errors begin with command.
func (f *channelTarget) with(ctx context.Context, command string, serve func(context.Context, *via.NIC) error, use func(channelPeer) error) (err error) {
	taken, err := f.Capture.open(f.Device)
	if err != nil {
		return err
	}
	// What was captured is worth seeing whatever has happened.
	defer func() { taken.finish(&err) }()
	at := channelPeer{timeout: f.Timeout, capture: taken}
	if at.to, err = peer.Target(f.To); err != nil {
		return err
	}
	wrap := func(err error) error {
		if err != nil {
			return fmt.Errorf("%s: %w", command, err)
		}
		return nil
	}
	if f.Device != "" {
		if at.nic, err = taken.openNIC(ctx, f.Device); err != nil {
			return err
		}
		defer closing(at.nic, &err)
		return wrap(use(at))
	}
	nic, other, err := taken.openPair(ctx)
	if err != nil {
		return err
	}
	defer closing(nic, &err)
	defer closing(other, &err)
	at.nic, at.to = nic, other.Query().Address
	serving, stop := context.WithCancel(context.WithoutCancel(ctx)) // until use is done
	defer stop()
	served := make(chan error, 1)
	go func() { served <- serve(serving, other) }()
	err = use(at)
	stop()
	return wrap(errors.Join(err, <-served))
}
