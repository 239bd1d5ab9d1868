// Package protocol has the control messages of memif, the shared-memory packet
// interface of DPDK and VPP, version 2.0, and carries them over a UNIX socket
// of type SOCK_SEQPACKET.
//
// Layouts and numbers are those of memif.h (VPP: src/plugins/memif, DPDK:
// drivers/net/memif). Every message is a packet of 128 bytes: a 16-bit type,
// then a body without padding, then bytes that mean nothing. Numbers are in the
// byte order of the machine, which is little-endian on all that this runs on.
//
// The server listens, the client connects, and they take turns:
//
//	server: HELLO                      what the server can do
//	client: INIT                       interface, mode, secret;  server: ACK
//	client: ADD_REGION with a file     once for each region;     server: ACK
//	client: ADD_RING with an eventfd   once for each ring;       server: ACK
//	client: CONNECT                    all is there;             server: CONNECTED
//	either: DISCONNECT                 at any time, with a reason
package protocol
