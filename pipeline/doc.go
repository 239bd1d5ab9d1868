// Package pipeline decides how bytes cross a NIC.
//
// Begin with [Policy], whose example shows what three policies do with the same frame;
// [ByName] has those that the command names. A program chooses one with NIC.SetPolicy of
// package via, and may give it a [Plan] of its own.
//
// A message goes through four transfers: hostTx (host memory to NIC memory over
// the sender's bus), netTx (NIC memory to link), netRcv (link to NIC memory) and
// hostRcv (NIC memory to host memory over the receiver's bus). Each NIC is a
// data movement device with an incoming and an outgoing controller and some
// buffers between them (US patent 6,308,228, figures 2 to 5). Incoming transfers
// are always issued for a whole frame; how the outgoing ones are cut, and when
// they start, is the delivery policy.
//
// A device can have more paths than one, as the output of a switch has ([NewPaths]).
//
// [Device] is that device, and [Policy] the one question it asks. Neither knows
// of time or of memory: a mover carries the transfers out and reports progress.
// Package engine/internal/memory moves real bytes, package lab/internal/virtual moves
// virtual ones under a virtual clock. Both use the same Device and the same
// policies, so the code that reproduces the published figures also moves the data.
package pipeline
