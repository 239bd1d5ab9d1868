// Package channel is the application's side of MINI's channels: two double pages of memory, one
// to send from and one to receive into, and a doorbell.
//
// [Dial] and [Listen] open a pair of channels, which is slow and needs the NIC's owner. After that
// no other program takes part. [Channel.Send] is one store, with the offsets of the message and a
// priority; urgent cells go between any two others. Messages land where [Channel.Allow] has made
// room. [Channel.Poll] finds them, as there are no interrupts. Behind each message stand its CRC of
// AAL5 and the time of its arrival in units of 100 ns.
//
// Offsets count words of 8 bytes, 0 to one less than [Channel.Words]. That is 1024, 2048 or 4096 with
// pages of 4, 8 or 16 KiB. Offsets wrap at the end of the double page, so a header, an aligned page
// of data and a trailer can be one message: see [Channel.SendPlaced]. A message has at least one
// word, and at most one less than the double page. [Multicast], [Barrier], [Bundle] and [Rate] stand on
// messages.
//
// A program may write its messages into [Channel.SendPages] and read others in [Channel.RecvPages],
// with [Channel.View] and [Channel.Placed], without a copy. [Pages.Put] and [Channel.Read] copy,
// and [Pages.Stats] counts that.
//
// Channels are best effort. Cells without room are dropped and counted, and a message that has
// lost one has an error.
//
// The design is that of MINI (R. Minnich, D. Burns, F. Hady: "The memory-integrated network
// interface", IEEE Micro 15(1), 1995). SPEC.md 16 and 17 in package descriptors have the
// device's side.
package channel
