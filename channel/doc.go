// Package channel is the application's side of MINI's channels: two double pages of memory, one
// to send from and one to receive into, and a doorbell.
//
// [Dial] and [Listen] open a pair of channels, which is slow and a matter of the NIC's owner.
// After that nobody is called. [Channel.Send] is one store, of the offsets of what is to be
// sent, at high or at low priority; urgent cells go between any two others of a bulk message.
// What comes lands where [Channel.Allow] has made room, and [Channel.Poll] finds it by looking:
// there are no interrupts. Each message has the CRC of AAL5 and the time of its arrival, in
// units of 100 ns, behind it.
//
// Offsets count words of 8 bytes, 0 to one less than [Channel.Words], which is 1024, 2048 or 4096
// with pages of 4, 8 or 16 KiB. They run over the end of the double page to its start, so that a
// header, a page of data that is aligned, and a trailer can be one message: see
// [Channel.SendPlaced]. A message has one word at least and one less than the double page at most.
// On messages stand [Multicast], [Barrier], [Channel.Bounce] and [Rate].
//
// Nothing is copied that a program does not have copied: what it sends it may write to
// [Channel.SendPages] itself, and what comes lies in [Channel.RecvPages], where [Channel.View] and
// [Channel.Placed] find it. [Pages.Put] and [Channel.Read] copy, and [Pages.Copied] counts that.
//
// Channels are best effort. Cells that find no room are dropped and counted, and a message
// that has lost one says so.
//
// The design is that of MINI (R. Minnich, D. Burns, F. Hady: "The memory-integrated network
// interface", IEEE Micro 15(1), 1995). SPEC.md 16 and 17 in package descriptors have the
// device's side.
package channel
