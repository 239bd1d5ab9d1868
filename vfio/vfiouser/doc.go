// Package vfiouser puts PCI devices behind UNIX sockets and reaches them there,
// by the vfio-user protocol.
//
// Begin with the example of [Serve], which puts an emulated NIC behind a socket and opens
// it there. Programs that only open such addresses import this package for its effect.
//
// Serve is the server: any device in this process that implements ServedDevice
// becomes one that QEMU's vfio-user-pci, or another client, can use. Open is the
// client: a vfio.Device whose other half is a server, registered for addresses
// such as "vfio-user:/run/trapeze/nic0.sock".
//
// Messages set a device up. After that it works through shared memory: the
// server maps the client's DMA memory, the client maps the regions that the
// device lets it map, and interrupts are eventfds.
//
// The server behaves as libvfio-user's does, which others are tested against,
// except where QEMU's client counts on what the kernel does: unmapping addresses at
// which nothing is mapped succeeds, and unmaps nothing.
//
// Neither end trusts the other. See Serve for what a hostile client can and
// cannot do.
package vfiouser
