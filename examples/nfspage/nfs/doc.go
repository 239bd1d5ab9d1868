// Package nfs re-orders packets of NFS version 3 (RFC 1813, over RPC as in RFC 5531 and
// UDP over IPv4) so that a page of a file lies where a page must lie.
//
// In a packet, parts of variable length stand before a file's data: credentials, verifiers,
// file handles, attributes. So the place of the data is not known before the packet has
// come, and it is copied once more. Here a packet goes in three parts, as the paper on MINI
// has it: what has a fixed size of IP, UDP, RPC and NFS, then the data, then what varies. If
// a channel's offset is so that the first part ends with page 0 of its double page, the data
// fill page 1, and the last part wraps to the beginning of page 0.
//
// [Reorder] takes a packet apart and [Restore] makes it whole again, byte for byte, so that
// checksums and signatures hold. Data are never copied by Reorder. Packets come from a
// network: each length is checked before it is used. All lengths are in bytes.
//
// [Lengths] tells the receiver of a first part how much of what follows belongs to the packet:
// a page is sent whole, however few data it has. examples/nfspage serves and reads a file so.
package nfs
