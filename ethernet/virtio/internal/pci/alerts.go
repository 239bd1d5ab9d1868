package pci

import (
	"sync"

	"github.com/trapeze-nic/trapeze/vfio"
)

// alerts keep what the back end of a device says unasked.
type alerts struct {
	done chan struct{} // nil if it says nothing
	wait sync.WaitGroup

	mu   sync.Mutex
	err  error         // guarded by mu
	gone chan struct{} // closed with err; guarded by mu
}

// watch keeps what the back end says until end.
func (a *alerts) watch(dev vfio.Device) {
	alerter, ok := dev.(vfio.Alerter)
	if !ok {
		return
	}
	a.done, a.gone = make(chan struct{}), make(chan struct{})
	a.wait.Go(func() {
		for {
			select {
			case err, ok := <-alerter.Alerts():
				if !ok {
					return
				}
				a.keep(err)
			case <-a.done:
				return
			}
		}
	})
}

func (a *alerts) keep(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err == nil {
		a.err = err
		close(a.gone)
	}
}

func (a *alerts) last() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.err
}

func (a *alerts) channel() <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.gone
}

// forget is for a device that was reset.
func (a *alerts) forget() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.err != nil {
		a.err, a.gone = nil, make(chan struct{})
	}
}

// end ends watch.
func (a *alerts) end() {
	if a.done != nil {
		close(a.done)
		a.wait.Wait()
	}
}
