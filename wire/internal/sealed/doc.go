// Package sealed encrypts and authenticates the frames of a wire whose datagrams
// others can read, change, drop, repeat and make up (SPEC.md 8.11). Hosts with the
// key, 32 bytes that both ends were given, can send and receive; no other host can
// read a frame, or have one delivered that was not sent, or twice.
//
// A Tunnel has a Link to each address that it talks to, and a link has sessions. A
// session begins with a handshake of two datagrams, NNpsk0 of the Noise Protocol
// Framework: both ends prove that they have the key, and a host that gets hold of the key later
// cannot read what was sent before. Each frame is one AES-256-GCM datagram under a number that
// counts up, so none repeats under a key; a window at the receiver refuses numbers
// that have come before (RFC 6479).
//
// The package does no input or output, starts no goroutines and reads no clock.
package sealed
