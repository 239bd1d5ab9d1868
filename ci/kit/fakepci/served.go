package fakepci

import (
	"context"

	"github.com/trapeze-nic/trapeze/vfio"
)

// Served is a function that a vfio-user server can serve: a vfiouser.ServedDevice.
type Served struct{ *Function }

// RegionFile says that no region has a file: every access is a call.
func (s Served) RegionFile(int) (fd int, offset uint64, err error) {
	return -1, 0, vfio.ErrNotMappable
}

// MapWindow lets the function access memory of the client.
func (s Served) MapWindow(iova uint64, window []byte, _ vfio.DMAFlags) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.dma[iova] = window
	return nil
}

// UnmapWindows ends the windows from one bus address to another.
func (s Served) UnmapWindows(first, last uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	for at := range s.dma {
		if at >= first && at <= last {
			s.unmap(at)
		}
	}
	return nil
}

// Renew makes the function as it was when it was new.
func (s Served) Renew(context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	clear(s.irqs)
	s.config[vfio.ConfigCommand] = 0
	s.model.PowerOn()
	return nil
}
