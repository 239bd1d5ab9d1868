// Package memif is a wire to another process: memif, the shared-memory packet
// interface of DPDK and VPP, version 2.0 (memif.h). A Port is a wire.Port, so
// an emulated NIC at one talks to testpmd, VPP, libmemif, or another Port.
//
// Most programs use it through an address, "emu:?wire=memif:/run/x.sock&role=client".
//
//	p, err := wire.NewMemif(wire.MemifOptions{Socket: "/run/trapeze.sock", Role: wire.MemifServer})
//
// It has:
//
//   - both roles, sockets in the file system and abstract ones ("@name"),
//     interface ids, one on a socket of ours, secrets;
//   - several rings in each direction. A port receives from all of them in turn.
//     What it commits between two calls of Flush goes into one ring: the next
//     one if the peer has taken everything from the ring that was used before,
//     otherwise that again, so that frames do not overtake each other;
//   - polling and interrupts (eventfds). Interrupts are asked for while there is
//     a function to wake (Port.SetWake) and nothing has come for a while;
//   - frames of several buffers; rings and buffers of any size that memif can
//     express;
//   - a connection that ends, because the peer dies, disconnects or
//     misbehaves, takes the link down. A client then connects again, and a
//     server takes the next client.
//
// It does not have: modes other than Ethernet (IP, punt/inject), private
// headers, zero-copy of memory that is the caller's (a DPDK or VPP client may do
// that: its memory is then not sealed, see below), and any offload.
//
// # Trust
//
// Any program that can connect to a server's socket can be its peer, unless it has a secret:
// the socket is made with the permissions that the umask leaves.
//
// A peer can do no more than end its own connection. Control messages are
// checked, each step has a deadline, and nothing that is in shared memory is
// used before it was copied and checked (package ring). A client's memory must
// be a file in memory; if it can be cut off while it is in use (no seal can be
// put on it: memfd_create(2)), all accesses are made so that this ends the
// connection and not the program, and frames are copied (Stats.Guarded).
// Otherwise frames that Receive returns are in shared memory, where the peer
// can change them: copy what you check.
//
// Two things are left. A peer may end in the middle of a frame: what was
// reserved or received then shows zeros or what was there. And a peer that
// clears O_NONBLOCK of an eventfd of the port and fills it can make Flush wait
// until the connection ends, be it by Close.
package memif
