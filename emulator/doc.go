// Package emulator makes Trapeze NICs without hardware, for tests and for machines that
// have no such board. An emulated NIC is a PCI function in the process of its user, with
// configuration space, BARs, MSI-X and an IOMMU of its own around an engine. It
// implements vfio.Device, so that the driver sees what it would see of a board.
//
// Begin with [Pair], which makes two NICs on one wire; its example sends a message from
// one to the other. A program that only imports this package can open addresses that
// start with "emu:" with via.Open; the README lists their options. [New] makes one NIC
// on a wire of package wire, and [Fleet] makes NICs that package vfio/vfiouser serves to
// other processes.
package emulator
