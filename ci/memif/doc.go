// Package memif holds tests of the memif wire against programs that are not
// ours, and of NICs at its ends.
//
// Frames go to and come from dpdk-testpmd, of Debian's package dpdk-dev: from
// testpmd into a pcap file and out of one, back through it, and into nothing.
// Every byte is checked. These tests take a minute and run only where
// TRAPEZE_MEMIF_INTEROP is set, as ci/memif/run does.
package memif
