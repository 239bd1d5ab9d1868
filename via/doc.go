// Package via is the application's interface to a Trapeze NIC: the Virtual
// Interface Architecture in Go idiom.
//
// Dial, Listen and Conn are for programs that want to send and receive messages, or a
// stream of bytes: they handle all that follows.
//
// A NIC is opened by address. Memory that the NIC may touch comes from
// NIC.Alloc. A VI is a send queue and a receive queue; two VIs are connected by
// ConnectRequest on one side and ConnectWait and Accept on the other. A message
// is described by a Descriptor in registered memory, which names the memory to
// send from or to receive into. Posting it rings a doorbell; SendDone and
// RecvDone take it back when the NIC has finished. Many work queues may complete
// to one completion queue, CQ.
//
// The data path (the posts, SendDone, RecvDone and CQ.Done) allocates nothing,
// makes no system call on a NIC with mapped doorbells, and takes no lock that
// another VI takes. The waits poll, then yield, then sleep. Every call that may
// block takes a context.
//
// How frames cross the NIC is not VIA's business: SetPolicy chooses a delivery
// policy, and whether the NIC or this process carries it out; EnableDMALog has
// the NIC keep a log of its transfers.
//
// All methods may be called from several goroutines. Errors are *Error; the
// codes are VIA's. SEMANTICS.md in this folder says what this package does where
// VIA leaves a choice.
//
// The NIC owns a descriptor, and the memory that it names, from the post until
// Done or Wait returns it. Memory and descriptors do not lie in the Go heap: do
// not touch them after they are deregistered or the NIC is closed.
package via
