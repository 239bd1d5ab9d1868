package cells

import "golang.org/x/sys/cpu"

// folds says that the processor multiplies without carries (PCLMULQDQ) and shuffles bytes
// (PSHUFB), which makes the CRC of a cell in a small part of the time that tables take.
var folds = cpu.X86.HasPCLMULQDQ && cpu.X86.HasSSSE3

// foldCells takes the state crc over n payloads, at least one, that lie one behind the other.
// The method is that of V. Gopal and others, "Fast CRC Computation for Generic Polynomials
// Using PCLMULQDQ Instruction", Intel, 2009: the bits are a polynomial, of which a block of 128
// is replaced by what is congruent to it further on. The three blocks of a cell do not wait for
// each other, and what is left is divided by the generator once, at the end.
//
//go:noescape
func foldCells(crc uint32, p *[PayloadSize]byte, n int) uint32

// constants of foldCells: what the lower and the upper half of a block, of which the lower one
// ends n bits before the place, are multiplied by.
//
//lint:ignore U1000 fold_amd64.s reads them
var constants = [...]uint64{
	power(384), power(384 + 64), // the next cell
	power(256), power(256 + 64), // from the first block of the last cell to its third
	power(128), power(128 + 64), // from the second
	power(96), power(64), // behind which 32 zeros come, in two steps
	quotient(64), 1<<32 | polynomial, // for P. Barrett's division of the 64 bits that are left
}

// power returns x^n modulo the generator.
func power(n int) uint64 {
	_, r := divide(n)
	return r
}

// quotient returns x^n divided by the generator, n at most 95.
func quotient(n int) uint64 {
	q, _ := divide(n)
	return q
}

// divide divides x^n by the generator, bit by bit. Of the quotient it has the last 64.
func divide(n int) (quotient, remainder uint64) {
	remainder = 1
	for range n {
		remainder <<= 1
		carry := remainder >> 32
		remainder ^= carry * (1<<32 | polynomial)
		quotient = quotient<<1 | carry
	}
	return quotient, remainder
}
