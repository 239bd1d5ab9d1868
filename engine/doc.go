// Package engine is what a NIC does: it fetches descriptors, translates
// addresses, cuts messages into frames and puts them together again,
// demultiplexes, makes delivery reliable, and writes completions. There is no
// PCI in it: an emulated device puts registers and BARs around it.
//
// Payloads go through the data movement devices of package pipeline, one for
// each direction: a policy, or the host with pulses, decides when a frame that
// is still arriving moves on.
package engine
