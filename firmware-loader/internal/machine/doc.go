// Package machine runs control programs (internal/abi) as the NIC processor does.
//
// A program is decoded once, by Compile: operands, addresses of maps and targets of
// jumps are resolved, and frequent sequences of instructions are merged. A run then
// interprets the result without allocating. The reasons for an interpreter of this
// shape, and what was measured against it, are at Program.run.
//
// The decoder is the checker's, but the machine does not rely on what the checker
// proves. Each access is checked against the
// region it falls into, and a run ends when its budget is used up: the worst that a
// program can do is to answer wrongly or to be stopped with a *Fault.
//
// A Program and the maps it refers to are used by one goroutine at a time. Boot makes an image
// in a slot of SRAM ready.
package machine
