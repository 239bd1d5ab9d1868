package function

import (
	"errors"

	"github.com/trapeze-nic/trapeze/ethernet"
	"github.com/trapeze-nic/trapeze/vfio"
)

// Vectors connects n MSI-X vectors, from 0 on, to eventfds, which stay until Close. With
// fewer, or without MSI-X, it returns nil: then there is polling.
func (f *Function) Vectors(n int) ([]*vfio.Eventfd, error) {
	info, err := f.dev.IRQ(vfio.IRQMSIX)
	if err != nil || info.Count < n || info.Flags&vfio.IRQEventfd == 0 {
		return nil, nil
	}
	fds := make([]int, n)
	for i := range fds {
		e, err := vfio.NewEventfd()
		if err != nil {
			return nil, err
		}
		f.vectors = append(f.vectors, e)
		fds[i] = e.FD()
	}
	return f.vectors, f.dev.SetIRQs(vfio.IRQMSIX, 0, fds)
}

func (f *Function) closeVectors() error {
	if len(f.vectors) == 0 {
		return nil
	}
	err := f.dev.DisableIRQs(vfio.IRQMSIX)
	if errors.Is(err, ethernet.ErrDeviceGone) {
		err = nil
	}
	for _, e := range f.vectors {
		err = errors.Join(err, e.Close())
	}
	return err
}
