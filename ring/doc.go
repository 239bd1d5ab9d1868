// Package ring is the application's side of Trapeze rings. Messages of 128 bytes are built and
// read in the NIC's own memory, each with or without a payload. Calls stand on top of them;
// the payload of a reply lands in the caller's memory without a copy.
//
// A [Ring] has a send ring and a receive ring of entries. [Ring.GetSend] gives an [Entry] to
// fill, and [Ring.ReleaseSend] sends it. [Ring.GetRecv] gives the next message, and
// [Ring.ReleaseRecv] makes its entry free for another. None of these calls waits;
// [Ring.Wait] is GetRecv that does.
//
// A [Frame] is a part of registered memory. Attached to an entry to send, it travels as the
// payload, without a copy. It lands in the place of the message's tag ([Ring.SetPlace]), or in
// the frame of the receiving entry. A payload without room is discarded whole.
//
// Rings are best effort unless [Options].Reliability says otherwise: a slow receiver loses
// messages, which the NIC counts, and does not slow the sender.
//
// [Caller] and [Serve] make calls of messages: many at a time from any goroutine, each with a
// deadline. Late replies are discarded.
//
// The design and its names are those of the Trapeze papers (Duke University,
// 1997: "Cut-Through Delivery in Trapeze", and CS-1997-20). SPEC.md 15 in package descriptors
// has the device's side.
package ring
