// Package engine is what a NIC does: it fetches descriptors, translates
// addresses, cuts messages into frames and puts them together again,
// demultiplexes, makes delivery reliable, and writes completions. There is no
// PCI in it: an emulated device puts registers and BARs around it.
package engine
