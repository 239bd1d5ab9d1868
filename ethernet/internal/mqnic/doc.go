// Package mqnic drives Corundum, the open NIC in FPGAs, as ports of package ethernet. Importing it
// makes it known to ethernet.Open. There are three kinds of address:
//
//	pci:0000:03:00.0               the first interface of a board
//	pci:0000:03:00.0?interface=1   the second; both can be open at once
//	vfio-user:/run/board.sock      a board that another process serves, such as a simulation
//
// # What it does
//
// For each queue of ethernet.Options there are a transmit and a receive queue, with a completion queue
// each. They share an event queue, which has a vector of MSI-X. Completions may come in any order. The
// NIC sums TCP and UDP of frames that are sent; the driver sums the header of IPv4, and what begins
// behind byte 255. For a received frame the NIC gives the sum of all that follows the Ethernet header.
// From that the driver finds whether the checksums are right. The hash has a fixed key. The
// NIC receives all frames and the driver filters them. It tells neither speed nor frames that it has
// counted, and has no link interrupt: the link is asked for each 100 ms.
//
// # What it does not
//
// Descriptor blocks have one descriptor, as a frame is in one buffer. Of several ports of one
// interface the first is used. Frames are not stamped, and the PTP clock is left alone. Pause frames stay off. The
// board's own MAC address is not read: a port has a random one, or that of Options.MAC. Tags and
// segments are no offloads, and Options.HashKey is refused. The NIC's UDP sum may be 0, which a receiver
// takes as no checksum.
//
// # What was tried
//
// A fake device, written from the register map. The gates in simulation: a Verilator model of commit
// 1ca0151b, behind vfio-user. No board has been run.
//
// # Where the numbers are from
//
// All are from corundum/corundum at commit 1ca0151b, read for its facts. Files are below
// fpga/common/rtl, if no folder is named:
//
//	register blocks, chain        modules/mqnic/mqnic_hw.h (MQNIC_RB_*), lib/mqnic/reg_block.c
//	FW_ID, IF, STATS, APP_INFO    mqnic_core.v; IRQ_CONFIG: mqnic_core_pcie.v
//	IF_CTRL, queue managers       mqnic_interface.v
//	PORT, PORT_CTRL               mqnic_port.v, mqnic_port_map_mac_axis.v; modules/mqnic/mqnic_port.c
//	SCHED_BLOCK, SCHED_RR         mqnic_tx_scheduler_block_rr.v, tx_scheduler_rr.v
//	RX_QUEUE_MAP                  mqnic_rx_queue_map.v
//	queue registers, commands     queue_manager.v, cpl_queue_manager.v; docs/source/modules/queue_manager.rst
//	descriptor, completion, event modules/mqnic/mqnic_hw.h (struct mqnic_desc, mqnic_cpl, mqnic_event)
//	transmit checksum             modules/mqnic/mqnic_tx.c, tx_checksum.v
//	receive checksum, hash        modules/mqnic/mqnic_rx.c, rx_checksum.v, rx_hash.v
//	order of work                 modules/mqnic/mqnic_if.c, mqnic_netdev.c, mqnic_eq.c
//	flash                         utils/mqnic-fw.c, utils/flash.c
//	statistics                    stats_pcie_if.v, stats_dma_if_pcie.v, mqnic_core_pcie.v
//	boards                        the fpga.v of each design; modules/mqnic/mqnic_board.c
package mqnic
