// Package vhostuser is the front end of vhost-user: it shares the queues of a virtio network
// device, and the memory of its buffers, with another process, such as DPDK's or VPP's.
//
// The protocol is that of QEMU's docs/interop/vhost-user.rst: requests over a UNIX stream
// socket, with file descriptors. Addresses that are told to the back end are numbers of
// their own: they say nothing about where memory is in this process.
//
// A back end that breaks the protocol, or does not answer, loses the connection. It has
// the memory that was shared with it and no other; what it writes there, and when, is up
// to it for as long as it lives.
package vhostuser
