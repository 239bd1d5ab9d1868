// Package descriptors has the two things of the data sheet that programs handle themselves:
// [Descriptor], which names the memory of a message and tells how it ended, and VIA's return
// codes, [Code], which all rooms share. Package via gives both the names that its users know.
//
// SPEC.md in this folder is the data sheet: what crosses the PCI boundary between a Trapeze
// NIC and its driver, and the frames on the wire between two NICs. Its layouts and numbers in
// Go are package internal/datasheet.
package descriptors
