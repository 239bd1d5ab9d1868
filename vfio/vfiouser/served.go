package vfiouser

import (
	"context"

	"github.com/trapeze-nic/trapeze/vfio"
)

// ServedDevice is a PCI device in this process that can be put behind a socket.
// It differs from vfio.Device in how it gets DMA memory and gives away regions.
// The server calls one method at a time, except Info, and except that it reads regions
// and asks what there is while MapWindow or UnmapWindows is under way.
//
// The device makes progress by itself, without polls. The memory of its
// windows is a client's, who may take it away at any time: code that touches it
// runs inside buserror.Catch, and afterwards the device still answers.
type ServedDevice interface {
	// These are described at vfio.Device. The descriptors given to SetIRQs stay
	// open until the vectors are given others or are disconnected.
	Info() vfio.Info
	Region(index int) (vfio.RegionInfo, error)
	IRQ(index int) (vfio.IRQInfo, error)
	ReadRegion(index int, offset uint64, p []byte) error
	WriteRegion(index int, offset uint64, p []byte) error
	SetIRQs(index, start int, eventfds []int) error
	DisableIRQs(index int) error

	// RegionFile returns the file behind a region with vfio.RegionMmap, and the
	// offset at which the region starts in it. The descriptor stays the
	// device's. The file is sealed against shrinking and against more seals, and
	// made of normal pages: a client gets it, and could do the device harm
	// otherwise. The server does not give away any other.
	RegionFile(index int) (fd int, offset uint64, err error)

	// MapWindow lets the device access window at bus address iova. Any address
	// is allowed that is a multiple of 4096, zero included: the client is the
	// one to decide. It does not overlap an earlier one. A client may make tens
	// of thousands of windows of 4 KiB; neighbours on the bus are often, and if
	// so usefully, neighbours in memory.
	MapWindow(iova uint64, window []byte, flags vfio.DMAFlags) error
	// UnmapWindows ends all windows from bus address first to last, both
	// included, of which none is cut in two. When it returns the device no
	// longer touches them, whatever it was doing.
	UnmapWindows(first, last uint64) error

	Reset(ctx context.Context) error
	// Renew makes the device as it was when it was new, for the next client.
	// Interrupts are disconnected. The files of regions are new ones: a client
	// that has gone may have kept the old ones.
	Renew(ctx context.Context) error
}
