// Package ethernet drives NICs from user space as ports of plain Ethernet frames.
//
// A [Port] is an open NIC with one or more queues. A [Queue] takes and gives bursts of
// [Frame] values, which say where in a [Pool] the frames are: receiving and sending
// copies no byte. The buffers of a pool are mapped into every device that was opened
// with it, so that a frame that came in by one port goes out of another as it is:
//
//	n, err := in.Receive(frames)      // the buffers of n frames are the caller's now
//	sent, err := out.Send(frames[:n]) // the first sent ones are out's until they are sent
//	out.Cache().Free(frames[sent:n])  // the rest is given back: the send ring is full
//
// A burst costs one register access, no system call and no allocation; memory and
// devices are Linux's VFIO (package vfio), and nothing of the kernel's network is used. The
// exception are ports at afxdp:, which go through the kernel's driver of a NIC.
//
// A program imports package ethernet/drivers, so that [Open] knows the drivers. Others can
// [Register] drivers of their own. What the device writes is not trusted: a length, an index or a status that
// cannot be is a counted drop, a restart of the queue, or an error that wraps
// [ErrProtocol], and never an access outside the pool.
//
// docs/nics.md says which NICs were run, and what owners of others type.
package ethernet
