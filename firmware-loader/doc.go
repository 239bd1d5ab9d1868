// Package firmware reads, checks, signs and shows images of control programs. It
// touches no device: package load puts an image into one.
//
// Begin with [Open], which reads an image from a file. [Spec.Check] proves that its programs
// are safe, and [Spec.Sign] and [Spec.Verify] are about who has made it; both have an
// example. Package images has images to begin with.
//
// An image is an ELF file for the BPF machine: one section a hook, maps and global
// variables, and a note with name, version and signature. Parse reads one of any
// compiler into a Spec; Link makes of it the flat image that goes into the NIC's
// SRAM. The digest of the flat image identifies an image: the note has it,
// a signature covers it, and a NIC reports that of the image that runs.
package firmware
