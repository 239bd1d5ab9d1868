// Package wire holds the wires of emulated NICs: memory (two ends in one
// process), loopback, a switch, UDP, and any of them with faults. Those between
// processes of one host, which share memory, are packages of their own: shm and
// memif.
//
// [NewMemory] makes the two ends of a wire, and [NewFault] an end that loses frames; both
// have an example. An end is a [Port], which emulator.New takes. Programs that open "emu:"
// addresses name a wire there and need not import this package.
//
// A wire carries whole frames, as an Ethernet does: it may lose, repeat and
// reorder them, it keeps no connections, and it does not tell whether a frame
// arrived.
package wire
