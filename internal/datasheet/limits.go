package datasheet

// Architectural limits. A device states its own, smaller or equal, limits in
// the identity block; these are the limits of the formats (SPEC.md 1.2).
const (
	// DescriptorAlign is the alignment of a VI descriptor in bytes (VIA 1.0;
	// 64 in vipl.h).
	DescriptorAlign = 64
	// MaxSegments is the number of data segments a descriptor may carry. VIA
	// asks for at least 252.
	MaxSegments = 252
	// MaxTransfer is the largest message in bytes. VIA asks for at least 32 KiB.
	MaxTransfer = 1 << 30
	// MinQueueLog2 and MaxQueueLog2 bound a work queue: 2 to 32768 tokens.
	MinQueueLog2 = 1
	MaxQueueLog2 = 15
	// MinCQLog2 and MaxCQLog2 bound a completion queue: 2 to 4194304 entries.
	MinCQLog2 = 1
	MaxCQLog2 = 22
	// MinAdminLog2 and MaxAdminLog2 bound the two admin rings: 2 to 4096 entries.
	MinAdminLog2 = 1
	MaxAdminLog2 = 12
	// MaxReads is the number of RDMA reads of a VI that are under way (SPEC.md 8.13).
	MaxReads = 16
	// PayloadEntries is the number of entries of an endpoint's payload table.
	PayloadEntries = 256
	// MaxDiscriminator is the longest connection discriminator in bytes.
	MaxDiscriminator = 32
	// PageSize is the granule of doorbell pages and of DMA mappings, in bytes.
	PageSize = 4096
)

// NoCQ and NoVector stand for "none" where a completion queue or an interrupt
// vector number is expected.
const (
	NoCQ     uint32 = 0xffffffff
	NoVector uint16 = 0xffff
)
