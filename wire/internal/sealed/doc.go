// Package sealed encrypts and authenticates the frames of a wire whose datagrams
// others can read, change, drop, repeat and make up (SPEC.md 8.11). Who has the
// key, 32 bytes that both ends were given, can send and receive; no other host can
// read a frame, or have one delivered that was not sent, or twice.
//
// A Tunnel has a Link to each address that it talks to, and a link has sessions. A
// session begins with a handshake of two datagrams, in which both ends prove that
// they have the key and contribute random numbers, from which HKDF-SHA-256 makes a
// key for each direction. Each frame is one AES-256-GCM datagram under a number that
// counts up, so none repeats under a key; a window at the receiver refuses numbers
// that have come before (the idea of RFC 6479).
//
// The package does no input or output, starts no goroutines and reads no clock.
package sealed
