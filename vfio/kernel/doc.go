// Package kernel opens PCI functions that Linux hands out through VFIO. Import
// it for its effect: it makes the addresses "pci:DDDD:BB:DD.F" known to
// vfio.Open.
//
//	pci:0000:03:00.0
//	pci:0000:03:00.0?backend=group&vf_token=b6a5f7a6-08a5-4f5c-9d2c-4b1c3f0c2f1e
//
// Options:
//
//	backend   auto (default), cdev, group or noiommu
//	vf_token  the UUID that the holder of a virtual function's parent has set
//
// There are three ways to the device, and Info().Backend says which one it is:
//
//   - cdev: the function's own node below /dev/vfio/devices, and an address
//     space of /dev/iommu (Linux 6.6 and later).
//   - group: the node of its IOMMU group, /dev/vfio/N, in a container with a
//     type 1 (version 2) IOMMU.
//   - noiommu: no IOMMU stands between the device and memory. The device can
//     read and write all of it, so this is never chosen unless backend=noiommu,
//     or TRAPEZE_NOIOMMU=allow in the environment, asks for it. Memory must
//     come from huge pages, and its bus address is its physical address: see
//     Device.PhysicalAddress.
//
// auto takes cdev if there is such a node, else the group.
//
// Functions of one IOMMU group share an address space. A process may open
// several of them; each is then given its own part of the bus addresses (see
// Device.IOVARanges), so that they do not meet.
//
// # What happens unasked
//
// A device opened here listens to two interrupts of its own: the error
// interrupt, by which PCI Express reports an uncorrectable error, and the
// request interrupt, by which the kernel asks for the device back because
// an administrator unbinds or removes it. Both appear on Device.Alerts. After a request
// the holder has two seconds to close the device. Then it is taken from under
// it, in order: interrupts off, bus mastering off, memory unmapped from the
// IOMMU, mapped regions replaced by memory that reads as all ones. Every later
// call fails with vfio.ErrDeviceGone.
package kernel
