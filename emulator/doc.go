// Package emulator is a Trapeze NIC without hardware: a PCI function
// (configuration space, BARs, MSI-X, an IOMMU of its own) around an engine, in
// the process of its user. It implements vfio.Device, so that a driver sees
// what it would see of a board.
//
//	a, b, err := emulator.Pair()            // two NICs on one wire
//	d, err := emulator.New(emulator.Options{Wire: w})
//	import _ ".../emulator"                 // makes vfio.Open know "emu:"
//
// Locks, in the order in which they are taken: Device.mu (accesses to
// configuration space and BAR0, reset, close), the engine's (all that DMA can
// reach), and the interrupts' own. Doorbells and Poll take none of the first.
package emulator
