// Package afxdp drives NICs through the kernel's driver, as ports of package ethernet: any
// network interface whose frames are Ethernet's, by sockets of the family AF_XDP.
//
// Importing it has ethernet.Open know the addresses
//
//	afxdp:eth0
//	afxdp:eth0?queue=4&mode=native&copy=zero
//
// mode is auto, native or generic: where the XDP program runs that takes the frames, in
// the driver (native) or behind it (generic); auto prefers native. copy is auto, zero or
// copy: whether the NIC reads and writes the pool itself, or the kernel copies; auto takes
// zero copy where there is such. queue is the interface's queue that is the port's first,
// 0 unless given.
//
// Each queue of the port is a queue of the interface, and all frames that arrive there are
// the port's. Other queues stay with the kernel's network; ethtool -L says how many there
// are, ethtool -X and -N which flows go where. NICs put frames that are not IP, ARP and
// those of VIA among them, into queue 0. The kernel's driver may take VLAN tags away before
// the program sees a frame: ethtool -K eth0 rxvlan off has them stay.
//
// The interface must be up, and is left as it is: its MTU must be Options.MTU at least, and
// SetMAC, SetMulticast and SetPromiscuous add to what it receives, until the port is closed.
// The kernel's own settings, that is moderation and the key of the hash, and offloads are
// refused with ErrNotSupported. Program and sockets go with the process, however it ends.
//
// The buffers of the pool are the UMEM. A frame is received 256 bytes behind the beginning
// of its buffer at least. Zero copy needs buffers that are 2048 bytes or a page apart,
// such as those of ethernet.PoolOptions{Size: 4032}; with others, which have to be 2048 bytes
// at least, the kernel copies.
//
// Frames of up to ethernet.MaxMTUOverAFXDP bytes and their header pass where a buffer holds one: for
// 9000 bytes the pools of ethernet.PoolOptions{Size: 9216} and, for zero copy, of whole pages, {Size: 12224}. The
// kernel takes no more than a page at a time, so that longer frames come and go in parts
// (XDP_USE_SG, Linux 6.6). What came in parts is copied behind the first one. On older kernels
// such a port is refused; shorter frames pass on an interface with a large MTU from Linux
// 5.18 on, and before that with mode=generic.
//
// docs/nics.md says on which NICs this was run, and what each driver has. Open logs what the
// kernel does not say:
//   - A queue receives nothing: the peer of a veth does not send by it, or it is the
//     last one in generic mode.
//   - A promiscuous port does not have all of the interface's queues, and Linux keeps the others.
//   - Frames lack their checksums. A Linux host leaves those of TCP and UDP to the NIC, and
//     between veths there is none; XDP does not tell which frames they are. So a promiscuous
//     port asks for ethtool -K PEER tx off, where PEER is the interface that sends. Without that
//     Linux drops the TCP and UDP that is passed on.
//   - The pool had too few buffers for a receive ring. It gets more once they are free.
//
// Sending costs a system call for each burst when the kernel copies (it takes 32 frames in a
// call, so that longer bursts take several), and none with zero copy as long as the driver
// does not ask for one (XDP_USE_NEED_WAKEUP). Receiving costs none, but with zero copy when
// the driver asks. Nothing is allocated.
//
// With zero copy, Close and Restart wait until the driver has let go of the pool, which takes
// CAP_NET_RAW too. The process needs CAP_NET_RAW, CAP_NET_ADMIN and CAP_BPF, or root, and Linux 5.9.
package afxdp
