// Package xskring walks the rings that an AF_XDP socket shares with the kernel: buffers go
// to it by the fill ring and come back with frames by the receive ring, and go by the send
// ring and come back by the completion ring (Linux, Documentation/networking/af_xdp.rst and
// include/uapi/linux/if_xdp.h).
//
// What the other side writes is checked: an index beyond the ring, or a buffer that it has
// not got, is a violation, after which nothing is taken any more. It can reach neither
// memory outside the rings nor a buffer twice.
package xskring
