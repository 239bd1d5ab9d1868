package scalar

import "math/bits"

// Bits says of each bit of a 64-bit number whether it is known. Known bits have
// their value in Value; Mask has a one for each unknown bit. Value & Mask is zero.
//
// These are the tristate numbers of H. Vishwanathan, M. Shachnai, S. Narayana and
// S. Nagarakatte, "Sound, Precise, and Fast Abstract Interpretation with Tristate
// Numbers", CGO 2022, where the formulas of Add and Sub are proved.
type Bits struct {
	Value, Mask uint64
}

func knownBits(v uint64) Bits { return Bits{Value: v} }

// bitsOfRange returns what the bounds say: the leading bits that they share.
func bitsOfRange(lowest, highest uint64) Bits {
	n := bits.Len64(lowest ^ highest)
	if n == 64 {
		return Bits{Mask: ^uint64(0)}
	}
	unknown := uint64(1)<<n - 1
	return Bits{Value: lowest &^ unknown, Mask: unknown}
}

// Min and Max are the least and greatest unsigned number that fits.
func (b Bits) Min() uint64 { return b.Value }

// Max is the greatest unsigned number that fits.
func (b Bits) Max() uint64 { return b.Value | b.Mask }

// Contains reports whether v fits the known bits.
func (b Bits) Contains(v uint64) bool { return v&^b.Mask == b.Value }

// Within reports whether every number of b is one of o.
func (b Bits) Within(o Bits) bool {
	return b.Mask&^o.Mask == 0 && b.Value&^o.Mask == o.Value
}

// Aligned reports whether b is known to be a multiple of size, a power of two.
func (b Bits) Aligned(size uint64) bool { return (b.Value|b.Mask)&(size-1) == 0 }

// meet returns the numbers of both; ok is false if there are none.
func (b Bits) meet(o Bits) (met Bits, ok bool) {
	if (b.Value^o.Value)&^(b.Mask|o.Mask) != 0 {
		return b, false
	}
	mask := b.Mask & o.Mask
	return Bits{Value: (b.Value | o.Value) &^ mask, Mask: mask}, true
}

// reverse returns the low bytes, so many, in reverse order, and zeros above.
func (b Bits) reverse(bytes int) Bits {
	unused := 64 - 8*bytes
	return Bits{Value: bits.ReverseBytes64(b.Value) >> unused, Mask: bits.ReverseBytes64(b.Mask) >> unused}
}

// low returns the low 32 bits, the others known to be zero.
func (b Bits) low() Bits {
	const m = 1<<32 - 1
	return Bits{Value: b.Value & m, Mask: b.Mask & m}
}

// high returns the high 32 bits, the others known to be zero.
func (b Bits) high() Bits {
	l := b.low()
	return Bits{Value: b.Value ^ l.Value, Mask: b.Mask ^ l.Mask}
}

// Add returns the sums.
func (b Bits) Add(o Bits) Bits {
	value, mask := b.Value+o.Value, b.Mask+o.Mask
	carries := (value + mask) ^ value
	mask = carries | b.Mask | o.Mask
	return Bits{Value: value &^ mask, Mask: mask}
}

// AddConst returns the sums with v.
func (b Bits) AddConst(v uint64) Bits { return b.Add(knownBits(v)) }

func (b Bits) sub(o Bits) Bits {
	value := b.Value - o.Value
	borrows := (value + b.Mask) ^ (value - o.Mask)
	mask := borrows | b.Mask | o.Mask
	return Bits{Value: value &^ mask, Mask: mask}
}

// mul knows the product of two known numbers, and otherwise the trailing zeros.
func (b Bits) mul(o Bits) Bits {
	if b.Mask == 0 && o.Mask == 0 {
		return knownBits(b.Value * o.Value)
	}
	zeros := bits.TrailingZeros64(b.Max()) + bits.TrailingZeros64(o.Max())
	if zeros >= 64 {
		return Bits{}
	}
	return Bits{Mask: ^uint64(0) << zeros}
}

func (b Bits) and(o Bits) Bits {
	value := b.Value & o.Value
	return Bits{Value: value, Mask: b.Max() & o.Max() &^ value}
}

func (b Bits) or(o Bits) Bits {
	value := b.Value | o.Value
	return Bits{Value: value, Mask: (b.Mask | o.Mask) &^ value}
}

func (b Bits) xor(o Bits) Bits {
	mask := b.Mask | o.Mask
	return Bits{Value: (b.Value ^ o.Value) &^ mask, Mask: mask}
}

func (b Bits) shiftLeft(n uint) Bits  { return Bits{Value: b.Value << n, Mask: b.Mask << n} }
func (b Bits) shiftRight(n uint) Bits { return Bits{Value: b.Value >> n, Mask: b.Mask >> n} }

// shiftArithmetic shifts in copies of the top bit, known or not.
func (b Bits) shiftArithmetic(n uint) Bits {
	return Bits{Value: uint64(int64(b.Value) >> n), Mask: uint64(int64(b.Mask) >> n)}
}

// shiftArithmetic32 does the same to the low 32 bits; the others become zero.
func (b Bits) shiftArithmetic32(n uint) Bits {
	return Bits{
		Value: uint64(uint32(int32(b.Value) >> n)),
		Mask:  uint64(uint32(int32(b.Mask) >> n)),
	}
}
