package vfio

// ClassNetwork is the PCI base class of network controllers.
const ClassNetwork = 0x02

// Function is a PCI function that the kernel knows.
type Function struct {
	// Address is domain, bus, device and function: "0000:03:00.0".
	Address        string
	Vendor, Device uint16
	// Class is 24 bits, see Config.
	Class uint32
	// Driver that is bound to the function, empty for none.
	Driver string
	// IOMMUGroup is -1 if the function is in none: there is no IOMMU then, or
	// it is off.
	IOMMUGroup int
	// NUMANode is -1 if the machine has only one or does not say.
	NUMANode int
}
