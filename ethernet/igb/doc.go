// Package igb drives Intel's gigabit NICs 82576, 82580, I350, I354, I210 and I211 as
// ports of package ethernet, and the virtual functions of the 82576 and the I350, which
// can be used while the kernel's own driver has the physical one. Importing it makes them
// known to ethernet.Open.
//
// Only the 82576 has been run, as QEMU emulates it; the others differ as the table in
// models.go says, which is tested against itself. Models with fibre or SerDes are left
// out: their link is not brought up through a PHY.
//
// The numbers of registers and bits are those of Intel's public sources for this family
// (Linux, FreeBSD and DPDK name them alike) and of QEMU's model, both read for their
// facts; the data sheets were not at hand, so no section of them is named.
package igb
