package driver

import (
	"errors"

	"github.com/trapeze-nic/trapeze/vfio"
)

// watchAlerts listens to what the back end says of the device unasked, if it
// says anything: the NIC fails then, and with it every wait, so that its owner
// closes it in time.
func (n *NIC) watchAlerts() {
	a, ok := n.dev.(vfio.Alerter)
	if !ok {
		return
	}
	n.goroutines.Go(func() {
		for {
			select {
			case err, ok := <-a.Alerts():
				if !ok {
					return
				}
				n.failFor(err)
			case <-n.done:
				return
			}
		}
	})
}

func (n *NIC) failFor(err error) {
	if errors.Is(err, vfio.ErrDeviceGone) {
		_ = n.fail(err)
		return
	}
	_ = n.fail(errors.Join(ErrDeviceFault, err))
}
