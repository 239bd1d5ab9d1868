// Package nic is a wire to whatever a NIC is plugged into: a Port is a wire.Port over an
// ethernet.Port, so that an engine in this process talks VIA, and raw frames, over
// ordinary Ethernet.
//
// Most programs use it through an address, "emu:?wire=pci:0000:03:00.0", or
// "eth:pci:0000:03:00.0" for short, and import the driver of the NIC:
//
//	import (
//		_ "github.com/trapeze-nic/trapeze/emulator"
//		_ "github.com/trapeze-nic/trapeze/ethernet/drivers"
//	)
//
// Frames are written and read where the NIC fetches and stores them: nothing is copied,
// and what is committed between two calls of Flush is sent with one register access.
//
// What such a NIC cannot do: a frame leaves and arrives whole, so that there is no
// cut-through inside a frame; and frames that are not IP all come to its first queue, so
// that a second engine wants a second function of the NIC (a virtual one, for example),
// not another queue.
//
// A NIC that fails, or whose link is down, loses frames, as any wire may: connections send
// them again. The port restarts a NIC that has failed in the background, again and again,
// at growing intervals.
package nic
