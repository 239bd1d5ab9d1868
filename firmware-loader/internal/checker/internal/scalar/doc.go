// Package scalar says what is known of a number that a BPF program computes: which
// of its bits are known, and between which bounds it lies as an unsigned and as a
// signed number of 64 bits and, for its low half, of 32 bits.
//
// Every operation is sound: what it returns holds for every pair of numbers that
// its operands stand for. It is not always as exact as it could be. The Linux
// kernel's verifier is the measure: what it does not know, a program that is to run
// there too may not depend on, so we know no more than it does.
package scalar
