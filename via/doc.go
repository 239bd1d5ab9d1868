// Package via is the application's interface to a Trapeze NIC: the Virtual
// Interface Architecture in Go idiom. Dial, Listen and Conn are for programs that
// send and receive messages; DialStream and Listener.Streams are for those that read and write
// bytes, as over TCP. They are built from the parts below.
//
// A connection point has an address too, which is told to other processes as text: see
// Address, ParseAddress and NIC.Resolve.
//
// A NIC is opened by address. Memory that the NIC may touch comes from NIC.Alloc, or is
// the program's own and made known by NIC.Register. A
// VI is a send queue and a receive queue; two VIs are connected by ConnectRequest on
// one side and ConnectWait and Accept on the other. A message is described by a
// Descriptor in registered memory. The NIC owns the descriptor, and the memory that
// it names, from the post until SendDone, RecvDone or a wait returns it. Neither lies
// in the Go heap: do not touch them after they are deregistered or the NIC is closed.
//
// All methods may be called from several goroutines. Posts, SendDone, RecvDone and
// CQ.Done allocate nothing, make no system call on a NIC with mapped doorbells, and
// take no lock that another VI takes. Every call that may block takes a context.
// Errors are *Error with VIA's codes. SEMANTICS.md says what this package does where
// VIA leaves a choice.
package via
