// Package ring is the application's side of Trapeze rings: control messages of 128 bytes in
// the NIC's own memory, each with a payload attached if it likes, and calls on top of them
// whose replies land where the caller wants them.
//
// A [Ring] has a send ring and a receive ring of entries. [Ring.GetSend] gives an [Entry] to
// fill, [Ring.ReleaseSend] sends it; [Ring.GetRecv] gives the next message that has come, and
// [Ring.ReleaseRecv] makes its entry free for another. None of them waits. A [Frame], a piece
// of registered memory, is attached to an entry and travels as the payload, without a copy; at
// the other end it lands in the frame that is attached to the receiving entry, or in the one
// that the receiver has named for the message's tag. A payload without a place is discarded
// whole, and the entry says so.
//
// Rings are best effort unless [Options].Reliability says otherwise: a receiver that does not
// keep up loses messages, which the NIC counts, and holds up nobody.
//
// [Caller] and [Serve] make calls of messages: many at a time from any goroutine, each with a
// deadline. The reply's payload goes into the frame that the call named; replies that come too
// late are discarded.
//
// The design, and the names of what it has, are those of the Trapeze papers (Duke University,
// 1997: "Cut-Through Delivery in Trapeze", and CS-1997-20). SPEC.md 15 in package descriptors
// has the device's side.
package ring
