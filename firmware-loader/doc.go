// Package firmware reads, checks, signs and shows images of control programs. It
// touches no device: package load puts an image into one.
//
// An image is an ELF file for the BPF machine: one section a hook, maps and global
// variables, and a note with name, version and signature. Parse reads one, whoever
// made it, into a Spec; Link makes of it the flat image that goes into the NIC's
// SRAM. The digest of the flat image is what an image is known by: the note has it,
// a signature covers it, and a NIC reports that of the image that runs.
//
// Images of vendors whose processors we do not know are described by a manifest:
// see package opaque.
package firmware
