// Package ring has the rings of memif, the shared-memory packet interface of
// DPDK and VPP, version 2.0: how they lie in memory, a Sender that puts frames
// into one and a Receiver that takes them out.
//
// A ring is a header of 128 bytes and 2^n descriptors of 16 bytes (memif.h):
//
//	0    cookie, 32 bits
//	4    flags, 16 bits: bit 0 asks the sender for no interrupts
//	6    head, 16 bits: free-running, written by the client
//	64   tail, 16 bits: free-running, written by the server
//	128  descriptors: flags, region (16 bits each), length, offset, metadata (32)
//
// The client lays out all memory. In a ring from client to server it fills
// descriptors up to head and the server gives them back up to tail; in the
// other direction the client hands out empty buffers up to head and the server
// fills them up to tail. Bit 0 of a descriptor's flags says that the frame goes
// on in the next one.
//
// Nothing that the peer can write is trusted: indexes, lengths and places are
// copied and then checked, and the client knows the places of its buffers
// without looking. Frames stay in shared memory, so their bytes may change
// while they are read.
//
// Ours and the peer's index are on cache lines of their own; the peer's is
// looked at only when what was seen of it last has been used up, and ours is
// published once for each batch.
package ring
