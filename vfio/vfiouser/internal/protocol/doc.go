// Package protocol holds the messages of the vfio-user protocol, version 0, and
// a connection that carries them.
//
// The protocol puts a PCI device behind a UNIX stream socket: what a VFIO ioctl
// asks of the kernel, a message asks of another process. Its specification is
// QEMU's docs/interop/vfio-user.rst; structures and constants that a message
// shares with an ioctl are those of linux/vfio.h. Numbers are in the byte order
// of the machine, as both ends run on the same one.
//
// A decoder checks all that can be checked without knowing the device: sizes,
// flags, sums that wrap. Its error is an *Error. A decoded message shares memory
// with the payload that it was decoded from.
package protocol
