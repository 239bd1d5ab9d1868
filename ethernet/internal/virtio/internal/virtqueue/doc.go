// Package virtqueue is the driver's side of virtio's two kinds of queues, split and
// packed, as one memory that both sides see (Virtual I/O Device 1.2, "Split Virtqueues"
// and "Packed Virtqueues").
//
// A split queue of n descriptors, a power of two, has three areas, all little-endian:
//
//	descriptor  n of: address u64, length u32, flags u16, next u16
//	driver      flags u16, index u16, n descriptor numbers u16, used_event u16
//	device      flags u16, index u16, n of (number u32, length u32), avail_event u16
//
// The driver puts the numbers of descriptors into the driver area and publishes its
// free-running index; the device gives them back in any order through its own.
//
// A packed queue has one ring of n descriptors, which the device overwrites when it has
// used a buffer, and two words that say who wants to be notified:
//
//	descriptor  n of: address u64, length u32, buffer u16, flags u16
//	driver      offset u15, wrap u1, flags u16
//	device      the same
//
// Two bits of flags are compared with a counter that changes with each round of the ring.
//
// What the device writes is not trusted: it is loaded once and then checked against what
// the driver remembers in memory of its own. Where buffers are, how long they are and
// which of them are lent is never read back. What does not fit is a [Violation], after
// which the queue returns nothing more.
package virtqueue
