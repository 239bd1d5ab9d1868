// Package checker proves that a control program is safe to run, before a byte of it
// reaches a NIC.
//
// Check follows every path that a program may take, without running it, and keeps
// for each register and each stack slot what is known there: nothing yet, a number
// within bounds, or a pointer to a known kind of memory at a bounded offset.
// Conditional jumps narrow what is known on either side. A path ends at an exit, or
// where a path that was followed to its end stood at the same place and knew no
// more. The longest path is the worst case of the program's running time.
//
// What is refused, and why, is in the list of reasons. The rules are those of the
// Linux kernel's verifier (RFC 9669 leaves them to the platform) for the part of the
// machine that control programs have, and stricter in these points: no pointer
// leaves the registers and the stack, bytes of the stack are read only after they
// were written, pointers are compared only with pointers into the same memory, and
// frames are written in filter hooks only. A program that is accepted here and
// refused by the kernel is a fault of this package. Tests look for such programs.
package checker
