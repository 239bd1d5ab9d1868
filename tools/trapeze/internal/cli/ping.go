package cli

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/option"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/peer"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/ping"
	"github.com/trapeze-nic/trapeze/tools/trapeze/internal/units"
	"github.com/trapeze-nic/trapeze/via"
)

// pingReport is the JSON output of ping.
type pingReport struct {
	Peer        string `json:"peer" help:"MAC"`
	Reliability string `json:"reliability"`
	Bytes       int    `json:"bytes"`
	*ping.Stats

	Eager *via.EagerStats `json:"eager,omitempty" help:"with --eager, of this end's NIC, tokens included"`

	Log *logReport `json:"dma_log,omitempty" help:"with --dma-log"`
}

// serveReport is the JSON output of ping --serve when it ends.
type serveReport struct {
	Clients uint64 `json:"clients"`
	Echoed  uint64 `json:"echoed"`

	Log *logReport `json:"dma_log,omitempty" help:"with --dma-log"`
}

type pingFlags struct {
	Device     string `flag:"device" help:"address of the NIC to use (default two in this process)"`
	To         string `flag:"to" help:"MAC address of the NIC to ping (default the NIC that serves on the wire)"`
	Serve      bool   `flag:"serve" help:"answer others instead"`
	Unreliable bool   `flag:"unreliable" help:"use unreliable delivery, where messages may get lost"`
	Quiet      bool   `flag:"quiet,q" help:"print the statistics only"`
	ping.Options
	Timeout time.Duration `flag:"timeout" default:"10s" range:"1ns.." help:"how long to try to reach the other end"`
	Policy  policyFlags
	Eager   eagerFlag
	Log     logFlag
}

func (f *pingFlags) check() error {
	switch {
	case f.Bytes > datasheet.MaxTransfer:
		return option.Errorf("--size %d: 0 to %d", f.Bytes, datasheet.MaxTransfer)
	case f.Unreliable && f.Bytes > datasheet.MaxTransfer-ping.Prefix:
		return option.Errorf("--size %d: 0 to %d with --unreliable", f.Bytes, datasheet.MaxTransfer-ping.Prefix)
	case f.Serve && f.Device == "":
		return option.Errorf("--serve needs a --device that others can reach, as in --device 'emu:?wire=udp://127.0.0.1:9000'")
	}
	return nil
}

func (f *pingFlags) level() via.Reliability {
	if f.Unreliable {
		return via.Unreliable
	}
	return via.ReliableDelivery
}

func (p *program) ping(ctx context.Context, f *pingFlags, _ []string) (err error) {
	if err := f.check(); err != nil {
		return err
	}
	mac, err := peer.Target(f.To)
	if err != nil {
		return err
	}
	opts, err := f.Policy.options()
	if err != nil {
		return err
	}
	opts = f.Eager.options(opts)
	log, err := f.Log.open()
	if err != nil {
		return err
	}
	defer log.discard(&err)
	if f.Device == "" {
		return p.pingHere(ctx, f, opts, log)
	}
	nic, err := peer.Open(ctx, f.Device, opts)
	if err != nil {
		return err
	}
	defer closing(nic, &err)
	if err := log.watchAt(f.Device, f.Serve, nic); err != nil {
		return err
	}
	if f.Serve {
		return p.pingServe(ctx, nic, f.Device, log)
	}
	return p.pingPeer(ctx, nic, mac, f, log)
}

// pingHere pings from one emulated NIC to another in this process.
func (p *program) pingHere(ctx context.Context, f *pingFlags, opts via.Options, log *recorder) (err error) {
	a, b, err := openPair(ctx, opts)
	if err != nil {
		return err
	}
	defer closing(a, &err)
	defer closing(b, &err)
	if err := log.watch(false, a, b); err != nil {
		return err
	}
	serving, stop := context.WithCancel(ctx)
	served, refused := make(chan error, 1), make(chan error, 1)
	server := ping.Server{NIC: b, Ended: func(c ping.Client) {
		select {
		case refused <- c.Err:
		default:
		}
	}}
	go func() { served <- server.Serve(serving) }()
	err = p.pingPeer(ctx, a, b.Query().Address, f, log)
	if errors.Is(err, via.ErrReject) { // the other side is here, so it can say why
		select {
		case why := <-refused:
			err = errors.Join(err, why)
		case <-time.After(time.Second):
		}
	}
	stop()
	return errors.Join(err, <-served)
}

func (p *program) pingServe(ctx context.Context, nic *via.NIC, device string, log *recorder) error {
	if to := peer.Hint(device); to != "" {
		p.Note("answering; to ask:\n  trapeze ping --device '%s'", to)
	}
	var clients, echoed atomic.Uint64
	err := ping.Server{NIC: nic, Ended: func(c ping.Client) {
		clients.Add(1)
		echoed.Add(c.Echoed)
		if c.Err != nil {
			p.Note("%v: %v", c.Remote.MAC, c.Err)
			return
		}
		p.Note("%v: %d messages", c.Remote.MAC, c.Echoed)
	}}.Serve(ctx)
	logged := log.finish(&err)
	if err == nil {
		err = p.Report(serveReport{Clients: clients.Load(), Echoed: echoed.Load(), Log: logged})
	}
	return err
}

// pingPeer pings a server.
func (p *program) pingPeer(ctx context.Context, nic *via.NIC, mac via.MAC, f *pingFlags, log *recorder) error {
	o := ping.ConnOptions(f.level(), f.Bytes)
	e, err := dial(ctx, nic, via.Address{MAC: mac, Discriminator: ping.Discriminator}, o, f.Timeout)
	if err != nil {
		return fmt.Errorf("ping: %w", explainDial(err, f.Timeout, "trapeze ping --serve"))
	}
	remote := e.Remote()
	var reply ping.Reply
	if !p.JSON && !f.Quiet {
		reply = func(seq uint64, d time.Duration, answered bool) {
			if answered {
				fmt.Fprintf(p.Stdout, "%d bytes from %v: seq=%d time=%.1f us\n", f.Bytes, remote.MAC, seq, units.Microseconds(d))
			} else {
				fmt.Fprintf(p.Stdout, "no answer from %v: seq=%d\n", remote.MAC, seq)
			}
		}
	}
	s, err := ping.Run(ctx, e, f.Options, reply)
	eager, eerr := f.Eager.report(nic)
	if cerr := e.Close(); err == nil {
		err = errors.Join(cerr, eerr)
	}
	// What was measured is worth seeing whatever happened then.
	r := pingReport{Peer: remote.MAC.String(), Reliability: f.level().String(), Bytes: f.Bytes, Stats: s, Eager: eager, Log: log.finish(&err)}
	err = errors.Join(p.Report(r), explainLost(err, "is 'trapeze ping --serve' still running there?"))
	switch {
	case err != nil:
		return fmt.Errorf("ping: %w", err)
	case ctx.Err() != nil && f.Count != 0:
		return context.Cause(ctx)
	case s.Sent > 0 && s.Received == 0:
		return fmt.Errorf("ping: no answer to %d messages: %w", s.Sent, via.ErrTimeout)
	case s.Corrupt > 0:
		return fmt.Errorf("ping: %d answers held other bytes than were sent", s.Corrupt)
	}
	return nil
}
