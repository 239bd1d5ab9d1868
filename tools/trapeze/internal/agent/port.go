package agent

import (
	"context"
	"fmt"
	"time"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/pause"
	"github.com/trapeze-nic/trapeze/wire"
)

const (
	// openTime bounds the opening of a NIC during a take-over: clients wait meanwhile, and take
	// their peers for dead after 3 seconds.
	openTime = 2 * time.Second
	// drainTime bounds the wait for frames that a NIC has still to send.
	drainTime, drainLook = 5 * time.Millisecond, 20 * time.Microsecond
	// firstMend and lastMend bound the pause between attempts to open a NIC that is lost. It doubles.
	firstMend, lastMend = 10 * time.Millisecond, time.Second
)

// open opens the port of a NIC. If it was open before it has to carry the same frames. Errors are a
// *vfio.Error, or wrap wire.ErrGone.
func (n *nic) open(ctx context.Context, reopen bool) error {
	port, err := emulator.OpenWire(ctx, n.Address)
	if err != nil {
		return err
	}
	if port == nil {
		n.local = true
		return nil
	}
	if reopen && (port.MTU() < n.mtu || port.Checksum() != n.checksum) {
		_ = port.Close()
		return fmt.Errorf("%w: NIC %s is another one now: frames have %d bytes, and had %d", wire.ErrGone, n.Name, port.MTU(), n.mtu)
	}
	if !reopen {
		n.mtu, n.checksum = port.MTU(), port.Checksum()
		if p, ok := port.(interface{ MAC() datasheet.MAC }); ok {
			n.mac = p.MAC()
		}
	}
	port.SetWake(n.rouse)
	n.port.Store(&uplink{port})
	n.rouse()
	return nil
}

// shut closes the port of a NIC whose goroutine does not run. What is to be sent leaves, as far as it
// does soon.
func (n *nic) shut() error {
	port := n.port.Swap(nil)
	if port == nil {
		return nil
	}
	if d, ok := port.Port.(wire.Drainer); ok {
		for end := time.Now().Add(drainTime); !d.Drained() && time.Now().Before(end); {
			time.Sleep(drainLook)
		}
	}
	return port.Close()
}

// mend opens the port of a NIC that is lost, as soon as it can be.
func (a *Agent) mend(ctx context.Context, n *nic) {
	said := false
	for wait := firstMend; ; wait = min(2*wait, lastMend) {
		opening, cancel := context.WithTimeout(ctx, openTime)
		err := n.open(opening, true)
		cancel()
		switch {
		case err == nil && said:
			a.log.Warn("the NIC is open again", "nic", n.Name)
			return
		case err == nil || ctx.Err() != nil:
			return
		case wait == lastMend && !said:
			said = true
			a.log.Error("the NIC cannot be opened again; this is tried every second", "nic", n.Name, "error", err)
		}
		if pause.For(ctx, wait) != nil {
			return
		}
	}
}
