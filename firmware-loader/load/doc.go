// Package load puts control programs into a NIC, by the protocol of
// descriptors/SPEC.md section 14: the image goes into the slot that is not in use
// while the old one goes on running, is read back and compared, and only then takes
// its place. Whatever fails, at whatever step, what ran before runs again, or the
// NIC's built-in behaviour if nothing ran or nothing else is left.
//
// Programs call it through NIC.LoadProgram of package via, which has an example: [Flat]
// makes the argument of a linked image. [Load] itself works on whatever implements [NIC].
//
// The NIC is not trusted: what it says about slots is checked, each wait has a
// deadline, and an image counts as loaded only when the NIC reports its name,
// version and digest.
package load
