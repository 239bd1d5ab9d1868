// Package wire holds the wires of emulated NICs: memory (two ends in one
// process), loopback, UDP, and any of them with faults.
//
// A wire carries whole frames, as an Ethernet does: it may lose, repeat and
// reorder them, it keeps no connections, and it tells nobody whether a frame
// arrived.
package wire
