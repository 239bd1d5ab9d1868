// Package datasheet has everything that crosses the PCI boundary between a
// Trapeze NIC and its driver, and the frames that cross the wire between two
// NICs: register blocks, doorbells, work-queue tokens, segments of descriptors,
// completion entries, admin commands and the wire header.
//
// descriptors/SPEC.md is the data sheet. The two are compared by a test, so
// a change to one without the other does not pass.
//
// Every layout is little-endian, as PCI is, and is declared as a Go struct with
// fixed-width fields. Trapeze runs on little-endian processors only (amd64 and
// arm64), which lets a layout be laid over shared memory without conversion.
//
// Memory shared with the other side may change at any time. Fields that
// publish (descriptor status, completion flags) are read with acquire and
// written with release through methods; a party that does not trust the other
// copies an entry first and checks the copy.
package datasheet
