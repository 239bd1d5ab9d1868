// Package virtio drives virtio network devices, version 1 and newer, as ports of package
// ethernet. It reaches them in two ways, both with ethernet.Open. Addresses such as
//
//	vhost-user:/run/vhost0.sock
//	vhost-user:/run/vhost0.sock?ring=split
//
// are those of back ends of vhost-user, such as DPDK's net_vhost or VPP's: another process,
// to which memory is shared by a UNIX socket. It needs neither root nor a virtual machine.
// The others are PCI functions. docs/nics.md says what was run.
//
// Queues are packed if the device has such, else split; ring=split wants split ones, and
// ring=packed fails with ErrNotSupported if the device has none. Before each frame virtio puts 12
// bytes: pools need a headroom of so many, and a frame that is sent loses what is there.
// There are no offloads, and no filters of VLANs. A back end of vhost-user has no filters at
// all: it sends what it likes.
//
// A back end that stands still, as a process that is stopped, is waited for: its queue keeps
// its frames, and the log names the queue after Options.Timeout. So is a queue that the back
// end does not serve although it says so. The link of a back end is the state that it said when it
// was connected.
//
// What the device writes is not trusted. A used buffer that was not lent, or that is longer
// than it is, restarts the queue; a frame that makes no sense is dropped and counted; and a
// device that goes on so fails the port with an error that wraps ethernet.ErrProtocol.
package virtio
