// Package engine does the work of a NIC: it fetches descriptors, translates
// addresses, cuts messages into frames and puts them together again,
// demultiplexes, makes delivery reliable, and writes completions. There is no
// PCI in it: an emulated device puts registers and BARs around it.
//
// Only those who build another device around an engine need this package. [New] makes an
// engine of a [Config], which has the [Port] to the wire and the [Memory] that DMA reaches;
// package emulator shows how it is used.
//
// Payloads go through the data movement devices of package pipeline, one for
// each direction: a policy, or the host with pulses, decides when a frame that
// is still arriving moves on.
package engine
