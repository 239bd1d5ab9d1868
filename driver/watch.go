package driver

import (
	"errors"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// watchInterval is the time between two looks at a device that no call waits for: what
// a program that is idle hears of its end it hears that late. A look is two register
// accesses, so it is rarer where these are messages: that the other end of the
// connection is gone is known without one.
const (
	watchInterval    = 250 * time.Millisecond
	farWatchInterval = 5 * time.Second
)

// startWatch looks after the device until it fails or the NIC is closed, so that
// every wait ends and the owner is told, whatever he does.
func (n *NIC) startWatch() {
	var alerts <-chan error
	if a, ok := n.dev.(vfio.Alerter); ok {
		alerts = a.Alerts()
	}
	var lost <-chan struct{}
	interval := watchInterval
	if n.remote != nil {
		lost, interval = n.remote.Lost(), farWatchInterval
	}
	resets := n.resets
	n.goroutines.Go(func() {
		tick := time.NewTicker(interval)
		defer tick.Stop()
		for n.failed() == nil {
			select {
			case err, ok := <-alerts:
				switch {
				case !ok:
					alerts = nil // the back end has nothing more to say
				case errors.Is(err, vfio.ErrDeviceGone):
					_ = n.fail(err)
				default:
					_ = n.fail(errors.Join(ErrDeviceFault, err))
				}
			case <-lost:
				_ = n.fail(ErrDeviceGone)
			case <-tick.C:
				n.look(resets)
			case <-n.done:
				return
			}
		}
	})
}

// look is check, and finds resets by others that are over: there were as many when
// the NIC was set up.
func (n *NIC) look(resets uint32) {
	if n.check() != nil {
		return
	}
	now, err := n.regs.read(n.background, datasheet.BlockHealth, datasheet.RegResetCount)
	// What a device that has just gone reads is no count.
	if err == nil && now != resets && n.check() == nil {
		_ = n.failUnlessClosing(errReset)
	}
}
