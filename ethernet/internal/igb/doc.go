// Package igb drives Intel's gigabit NICs 82576, 82580, I350, I354, I210 and I211 as
// ports of package ethernet. So it does the virtual functions of the 82576 and the I350, which
// can be used while the kernel's own driver has the physical one. Importing it makes them
// known to ethernet.Open.
//
// # One NIC for the kernel and us
//
// The kernel's igb keeps the physical function, and the host its network; a virtual
// function is ours:
//
//	echo 1 > /sys/bus/pci/devices/0000:03:00.0/sriov_numvfs
//	trapeze bind 0000:03:10.0
//	ethernet.Open(ctx, "pci:0000:03:10.0", config)
//
// It has one queue. What it may do the kernel's driver decides: its address and VLANs can
// be fixed from outside (ip link set … vf 0 …), promiscuous mode is refused with
// ErrNotSupported, and of tagged frames only those of SetVLANs come.
//
// # What was tried
//
// Only the 82576 has been run, as QEMU emulates it. The others were run on a fake device
// that differs as the table in models.go says. Models with fibre or SerDes are left out:
// their link is not brought up through a PHY. docs/nics.md has the table of all NICs.
//
// The numbers of registers and bits are those of Intel's public sources for this family
// (Linux, FreeBSD and DPDK name them alike) and of QEMU's model, both read for their
// facts; the data sheets were not at hand, so no section of them is named.
package igb
