// Package flat encodes and decodes flat images of control programs: what is
// written into a slot of the NIC's SRAM and run from there. The layout is that of
// descriptors/SPEC.md section 14.2; datasheet.ImageHeader, ImageHook and ImageMap
// are its structs.
//
// A flat image is untrusted. Decode checks everything that a reader relies on:
// sizes, bounds, overlaps, alignment, text, the limits of package abi, reserved
// bytes and the digest. What the programs do is for the checker.
package flat
