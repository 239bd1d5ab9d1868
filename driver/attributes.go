package driver

import "github.com/trapeze-nic/trapeze/internal/datasheet"

// NICAttributes describe a NIC and state its limits.
type NICAttributes struct {
	// Name is the address by which the device was opened.
	Name string
	// Backend that gives access to the device, such as "emulator".
	Backend string
	// HardwareVersion and ProviderVersion, of this package, are
	// major<<16 | minor<<8 | patch.
	HardwareVersion, ProviderVersion uint32
	// Address of the NIC on its wire.
	Address datasheet.MAC
	// MTU is the largest frame of the wire in bytes. Messages may be longer:
	// the NIC cuts them and puts them together again.
	MTU int
	// MaxTransfer is the largest message in bytes.
	MaxTransfer uint32
	// MaxSegments is the most data segments a descriptor may have.
	MaxSegments int
	// MaxInline is the most bytes that a send may carry in its descriptor, see
	// Descriptor.SetInline; zero if the NIC takes none.
	MaxInline int
	// MaxDiscriminator is the longest discriminator in bytes.
	MaxDiscriminator int
	// MaxVIs, MaxCQs, MaxRegions and MaxPtags count what can exist at a time.
	MaxVIs, MaxCQs, MaxRegions, MaxPtags int
	// MaxRegistered is the most bytes that can be registered at a time, each page counted
	// once, and MaxRegion how many in one registration, as far as the bus addresses of
	// the NIC go. The limits of the process, such as on locked memory, may be lower.
	MaxRegistered, MaxRegion uint64
	// MaxDescriptors is the most descriptors on one work queue.
	MaxDescriptors int
	// MaxCQEntries is the size of the largest completion queue.
	MaxCQEntries int
	// Reliability is the mask of levels that the NIC supports.
	Reliability datasheet.Reliability
	// RDMAWrite and RDMARead are the masks of levels at which the NIC does
	// remote operations; zero if it does none.
	RDMAWrite, RDMARead datasheet.Reliability
	// ThreadSafe says that all methods may be called from several goroutines.
	ThreadSafe bool
}

// providerVersion is 0.1.0.
const providerVersion = 1 << 8

// Query returns the attributes and limits of the NIC.
func (n *NIC) Query() NICAttributes {
	id := &n.identity
	const reliable = datasheet.ReliableDelivery | datasheet.ReliableReception
	a := NICAttributes{
		Name:             n.Address(),
		Backend:          n.Backend(),
		HardwareVersion:  id.DeviceVersion,
		Address:          id.MAC,
		MTU:              id.MTU,
		MaxTransfer:      id.MaxTransfer,
		MaxSegments:      id.MaxSegments,
		MaxDiscriminator: datasheet.MaxDiscriminator,
		MaxVIs:           int(id.MaxEndpoints) - 1, // endpoint 0 is reserved
		MaxCQs:           int(id.MaxCQs),
		MaxRegions:       int(id.MaxRegions),
		MaxPtags:         int(id.MaxPtags),
		MaxDescriptors:   id.MaxQueueDepth,
		MaxCQEntries:     id.MaxCQEntries,
		MaxInline:        id.MaxSegments * datasheet.DataSegmentSize,
		Reliability:      datasheet.Unreliable | reliable,
		RDMAWrite:        datasheet.Unreliable | reliable,
		RDMARead:         reliable, // VIA has no RDMA read on unreliable VIs
		ThreadSafe:       true,
		ProviderVersion:  providerVersion,
	}
	a.MaxRegistered, a.MaxRegion = n.space.Total, n.space.Largest
	return a
}
