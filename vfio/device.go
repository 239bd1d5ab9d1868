// Package vfio gives access to PCI devices from user space behind one
// interface, Device, whatever stands behind it: the kernel's VFIO, a vfio-user
// server, or an emulated device in the same process.
//
// Begin with [Open], which has an example: an address such as "pci:0000:03:00.0" says which
// device. The back ends make their addresses known when they are imported: vfio/kernel,
// vfio/vfiouser and emulator. Programs that send messages use package via instead, which
// opens the device itself. A back end implements [Device] and calls
// [Register].
package vfio

import (
	"context"
	"os"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/round"
)

// PCI region and interrupt indexes, as Linux numbers them (linux/vfio.h).
const (
	RegionBAR0   = 0
	RegionBAR2   = 2
	RegionBAR4   = 4
	RegionROM    = 6
	RegionConfig = 7

	IRQINTx = 0
	IRQMSI  = 1
	IRQMSIX = 2
	IRQErr  = 3
	IRQReq  = 4
)

// RegionFlags say what can be done with a region (linux/vfio.h values).
type RegionFlags uint32

const (
	RegionRead  RegionFlags = 1
	RegionWrite RegionFlags = 2
	RegionMmap  RegionFlags = 4
)

// Area is a part of a region: Size bytes from Offset.
type Area struct{ Offset, Size uint64 }

// RegionInfo describes a region.
type RegionInfo struct {
	Index int
	// Size in bytes; zero for a region that the device does not have.
	Size  uint64
	Flags RegionFlags
	// Sparse lists the parts that can be mapped, if not all of it can.
	Sparse []Area
	// MSIXMappable says that the MSI-X table may be mapped too.
	MSIXMappable bool
}

// CheckMap is for back ends: it says why a part of the region cannot be mapped. Of a region whose size is no multiple
// of the page size the last page can be mapped too.
func (i *RegionInfo) CheckMap(offset, size uint64) error {
	page := uint64(os.Getpagesize())
	end := round.Up(i.Size, page)
	switch {
	case size == 0:
		return ErrBadSize
	case offset%page != 0 || size%page != 0:
		return ErrMisaligned
	case offset > end || size > end-offset:
		return ErrOutOfRange
	case i.Flags&RegionMmap == 0:
		return ErrNotMappable
	case len(i.Sparse) == 0:
		return nil
	}
	// Areas may touch each other.
	for _, a := range i.Sparse {
		if offset >= a.Offset && offset-a.Offset < a.Size {
			got := min(size, a.Size-(offset-a.Offset))
			offset, size = offset+got, size-got
		}
	}
	if size > 0 {
		return ErrNotMappable
	}
	return nil
}

// Protection is for back ends: it returns the protection of a mapping, as mmap(2) takes it.
func (i *RegionInfo) Protection() int {
	p := 0
	if i.Flags&RegionRead != 0 {
		p |= unix.PROT_READ
	}
	if i.Flags&RegionWrite != 0 {
		p |= unix.PROT_WRITE
	}
	return p
}

// IRQFlags say what can be done with an interrupt index (linux/vfio.h values).
type IRQFlags uint32

const (
	IRQEventfd    IRQFlags = 1
	IRQMaskable   IRQFlags = 2
	IRQAutomasked IRQFlags = 4
	IRQNoResize   IRQFlags = 8
)

// IRQInfo describes an interrupt index.
type IRQInfo struct {
	Index int
	Count int
	Flags IRQFlags
}

// IOVARange is a range of bus addresses that can be mapped, both ends included.
type IOVARange struct{ First, Last uint64 }

// DMAFlags say what the device may do with mapped memory.
type DMAFlags uint32

const (
	DMARead  DMAFlags = 1 // the device may read
	DMAWrite DMAFlags = 2 // the device may write
)

// Info describes a device.
type Info struct {
	// Address by which the device was opened, see ParseAddress.
	Address string
	// Backend that gives access: "emulator", "vfio-user", "group", "cdev",
	// "noiommu", "qtest".
	Backend string
	// Resettable says that Reset works.
	Resettable bool
	// Regions and IRQs are the numbers of indexes.
	Regions, IRQs int
}

// Device is one PCI function that a process has taken for itself. Methods may
// be called from several goroutines. Errors are *Error and wrap one of the
// sentinels of this package or an errno. After Close each method that can fail
// fails with ErrClosed; Info still works, and Close does nothing.
//
// Memory given to MapDMA and mappings returned by MapRegion stay valid until
// they are unmapped or the device is closed.
type Device interface {
	Info() Info
	// Region describes a region. It fails with ErrNoSuchRegion from
	// Info.Regions on.
	Region(index int) (RegionInfo, error)
	// IRQ describes an interrupt index. It fails with ErrNoSuchIRQ from
	// Info.IRQs on.
	IRQ(index int) (IRQInfo, error)

	// ReadRegion reads len(p) bytes at offset of a region, in accesses of 1, 2,
	// 4 or 8 bytes. It fails with ErrNoSuchRegion, and with ErrOutOfRange
	// outside the region.
	ReadRegion(index int, offset uint64, p []byte) error
	// WriteRegion is the opposite.
	WriteRegion(index int, offset uint64, p []byte) error
	// MapRegion maps size bytes at offset of a region, both multiples of the
	// page size. Only what Region says can be mapped can be: else it fails with
	// ErrNotMappable, ErrMisaligned or ErrOutOfRange.
	MapRegion(index int, offset, size uint64) (*Mapping, error)

	// SetIRQs has vectors start, start+1, … of an interrupt index signal the
	// given eventfds; a negative one disconnects its vector. The caller keeps
	// ownership of the descriptors. It fails with ErrNoSuchIRQ and then has
	// changed nothing.
	SetIRQs(index, start int, eventfds []int) error
	// DisableIRQs disconnects every vector of an interrupt index.
	DisableIRQs(index int) error

	// MapDMA lets the device access mem at bus address iova. Address and size
	// are multiples of the page size. It fails with ErrMisaligned,
	// ErrIOVARange or ErrIOVAInUse.
	MapDMA(mem *Memory, iova uint64, flags DMAFlags) error
	// UnmapDMA ends what exactly one MapDMA began. When it returns the device
	// no longer touches the memory. It fails with ErrNotMapped for anything else.
	UnmapDMA(iova, size uint64) error
	// IOVARanges lists the bus addresses that can be mapped, in order.
	IOVARanges() ([]IOVARange, error)

	// Reset resets the function. Mappings of regions stay valid, interrupts are
	// disconnected.
	Reset(ctx context.Context) error
	Close() error
}

// Physical is implemented by devices that may have no IOMMU to guard them. If
// Unguarded says so, bus addresses are physical addresses: memory cannot be
// mapped but where PhysicalAddress says, and has to be of huge pages.
type Physical interface {
	Unguarded() bool
	PhysicalAddress(mem *Memory) (uint64, error)
}

// Alerter is implemented by devices whose back end tells when the device has
// failed or is taken away. Alerts gives the reason, once or more often.
type Alerter interface {
	Alerts() <-chan error
}

// Remote is implemented by devices in another process. That process may stop
// answering: then requests wait, and after the first that has waited for too long
// the device is lost.
type Remote interface {
	// Lost returns a channel that is closed when the other process is lost. After
	// Reset there is a new one.
	Lost() <-chan struct{}
	// GiveUp loses the other process because of why: requests that are under way,
	// and later ones, fail with ErrDeviceGone and why. Memory and mapped regions
	// stay.
	GiveUp(why error)
	// ReadRegionContext and WriteRegionContext are ReadRegion and WriteRegion that
	// end with a context too, with its error. The access may still be carried out.
	ReadRegionContext(ctx context.Context, index int, offset uint64, p []byte) error
	WriteRegionContext(ctx context.Context, index int, offset uint64, p []byte) error
}

// InProcess is implemented by devices in the same process, which can be called where others are told by a store, a
// system call or an interrupt.
type InProcess interface {
	Poller
	// Polled reports whether the device makes progress only when Poll is called. Else it has a thread of its own, and
	// Ringer, Path, CQPath and ReadDirect give nothing.
	Polled() bool
	// Idle returns a channel that is closed when Poll may find something to do, something from outside, such as a frame,
	// or something that was posted, and when the device is closed.
	// What came before Idle returned closes nothing, so the caller polls once more
	// before it sleeps. Idle returns nil, which is never closed, if the device cannot
	// tell.
	Idle() <-chan struct{}
	// Wake is called after doorbells have been rung, so that those who sleep poll,
	// even if the caller does not. It makes no system call if there is no sleeper. A goroutine
	// who begins to sleep at that moment, or has just been woken by another post, may
	// miss it; therefore a sleep has a limit.
	Wake()
	// Notify is SetIRQs with functions in place of eventfds; nil disconnects a
	// vector. Who runs the device calls them, with locks of the device held: they
	// return at once and do not call the device. One may be called once more while
	// its vector is being disconnected.
	Notify(index, start int, calls []func()) error
	// Ringer returns a function that does what WriteRegion of 32 bits to the doorbell
	// at offset of region index does, or nil if that is to be stored as ever. What the
	// caller has written to memory before is seen by the device; no barrier is needed.
	// The function returns at once, never waits for the goroutine that steps the device, and may
	// be called by several goroutines, and after Close.
	Ringer(index int, offset uint64) func(value uint32)
	// Path returns an endpoint's way into the device, nil for a device that Poll does not step, and for
	// endpoints that have none.
	Path(endpoint uint32) Path
	// CQPath returns the way to a completion queue, nil where there is no Path.
	CQPath(cq uint32) CQPath
	// ReadDirect carries out an RDMA read of an endpoint without a descriptor: n bytes at address of
	// the peer's memory handle come to at of the memory into. It returns false if the read has to
	// be posted, as the wire does not let this end copy, or other work was posted before. Bytes
	// may have come then, too.
	ReadDirect(endpoint, handle uint32, address uint64, into uint32, at uint64, n uint32) bool
}

// Path is a VI's way into a device of the same process: calls in place of doorbells and steps. What the caller
// has written to memory before is seen by the device. It may be used by several goroutines, and after Close.
type Path interface {
	// Post says that the send queue holds tokens up to producer.
	Post(producer uint32)
	// PostReceives says that of the receive queue.
	PostReceives(producer uint32)
	// PostGuarded is PostReceives or Post for memory of the program's own: if that is gone, the device fails.
	PostGuarded(receive bool, producer uint32)
	// Poll does what Poller.Poll does, up to so many completions of receives, or of sends.
	Poll(receive bool, most int) bool
}

// CQPath is the way to a completion queue, as Path is to a VI.
type CQPath interface {
	// Poll does what Poller.Poll does, up to so many entries of the queue.
	Poll(most int) bool
}

// Poller is implemented by devices in the same process that make progress only
// when Poll is called. It reports whether anything was done. Poll may be
// called from several goroutines; one that finds another inside returns false.
type Poller interface {
	Poll() bool
}
