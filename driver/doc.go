// Package driver runs one Trapeze NIC from user space: it opens a vfio.Device,
// checks what it is, resets it, brings up the admin queue, and gives out VIs,
// completion queues and registered memory, which are also those of package via. What stands behind the device, a
// PCI function, another process or an emulator, is not visible here.
//
// Control operations go through the admin queue and may take a system call.
// The data path (PostSend, PostRecv, SendDone, RecvDone, CQ.Done) touches
// memory and doorbells only: it allocates nothing, makes no system call on a
// device whose doorbells are mapped, and takes no lock that another endpoint
// takes.
//
// How the bytes of a frame cross the NIC while it is still arriving is up to a
// delivery policy, see SetPolicy: one that the device has built in, or one of
// package pipeline that runs here. Then a call that polls or waits on the NIC takes
// part in moving frames, or a goroutine does between such calls; a step of that
// allocates nothing and makes no system call if register accesses make none.
//
// Everything that the device writes is treated as untrusted.
package driver
