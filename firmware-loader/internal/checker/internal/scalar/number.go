package scalar

import (
	"fmt"
	"math"
)

// Number is the knowledge of a 64-bit number. The zero Number is the number 0.
type Number struct {
	bits Bits
	wide span[uint64, int64]
	half span[uint32, int32] // of the low 32 bits
}

// Unknown is any number.
func Unknown() Number {
	return Number{
		bits: Bits{Mask: ^uint64(0)},
		wide: anySpan[uint64, int64](),
		half: anySpan[uint32, int32](),
	}
}

// Const is the number v.
func Const(v uint64) Number {
	return Number{
		bits: knownBits(v),
		wide: oneSpan[uint64, int64](v),
		half: oneSpan[uint32, int32](uint32(v)),
	}
}

// Unsigned is any number of so many bytes, 1 to 8, with zeros above them.
func Unsigned(bytes int) Number { return Unknown().Truncate(bytes) }

// Signed is any number of so many bytes, 1 to 8, with copies of its sign above.
func Signed(bytes int) Number {
	if bytes >= 8 {
		return Unknown()
	}
	edge := int64(1) << (8*bytes - 1)
	n := Unknown()
	n.wide = signedSpan[uint64](-edge, edge-1)
	return settled(n)
}

// Const returns the number if there is only one.
func (n Number) Const() (v uint64, ok bool) { return n.bits.Value, n.bits.Mask == 0 }

// Bits returns what is known of the bits.
func (n Number) Bits() Bits { return n.bits }

// UMin is the least number, unsigned.
func (n Number) UMin() uint64 { return n.wide.UMin }

// UMax is the greatest number, unsigned.
func (n Number) UMax() uint64 { return n.wide.UMax }

// SMin is the least number, signed.
func (n Number) SMin() int64 { return n.wide.SMin }

// SMax is the greatest number, signed.
func (n Number) SMax() int64 { return n.wide.SMax }

// Contains reports whether v may be the number.
func (n Number) Contains(v uint64) bool {
	return n.bits.Contains(v) && n.wide.contains(v) && n.half.contains(uint32(v))
}

// Within reports whether whatever n may be, o may be too.
func (n Number) Within(o Number) bool {
	return n.bits.Within(o.bits) && n.wide.within(o.wide) && n.half.within(o.half)
}

// Fits reports whether all bits but the low ones, so many, 1 to 64, are zero.
func (n Number) Fits(bits int) bool { return n.wide.UMax>>(bits-1) <= 1 }

func (n Number) String() string {
	if v, ok := n.Const(); ok {
		return fmt.Sprint(int64(v))
	}
	if n.wide.SMin < 0 {
		return fmt.Sprintf("%d to %d", n.wide.SMin, n.wide.SMax)
	}
	return fmt.Sprintf("%d to %d", n.wide.UMin, n.wide.UMax)
}

// Truncate keeps the low bytes, 1 to 8 of them, and makes those above zero.
func (n Number) Truncate(bytes int) Number {
	switch {
	case bytes >= 8:
		return n
	case bytes == 4:
		return fromHalf(n.bits, n.half)
	}
	kept := uint64(1)<<(8*bytes) - 1
	r := Unknown()
	r.bits = n.bits.and(knownBits(kept))
	if n.wide.UMax <= kept {
		r.wide = unsignedSpan[uint64, int64](n.wide.UMin, n.wide.UMax)
	}
	return settled(r)
}

// SignExtend copies the top bit of the low bytes, 1 to 4 of them, into those above.
func (n Number) SignExtend(bytes int) Number {
	if v, ok := n.Const(); ok {
		shift := 64 - 8*bytes
		return Const(uint64(int64(v<<shift) >> shift))
	}
	r := Signed(bytes)
	if n.wide.SMin < r.wide.SMin || n.wide.SMax > r.wide.SMax || (n.wide.SMin < 0) != (n.wide.SMax < 0) {
		return r
	}
	r.wide = signedSpan[uint64](n.wide.SMin, n.wide.SMax)
	return settled(r)
}

// fromHalf is the number whose low 32 bits are as known and whose others are zero.
func fromHalf(b Bits, half span[uint32, int32]) Number {
	return settled(Number{
		bits: b.low(),
		wide: unsignedSpan[uint64, int64](uint64(half.UMin), uint64(half.UMax)),
		half: half,
	})
}

// settled spreads what one part of n knows to the others. n is not contradictory.
func settled(n Number) Number {
	n.settle()
	return n
}

// settle spreads what one part of n knows to the others, and reports whether the
// parts agree: whether there is such a number.
func (n *Number) settle() bool {
	n.learnFromBits()
	n.deduce()
	n.deduce()
	if n.wide.empty() || n.half.empty() {
		return false
	}
	var ok, okHalf bool
	n.bits, ok = n.bits.meet(bitsOfRange(n.wide.UMin, n.wide.UMax))
	low := bitsOfRange(uint64(n.half.UMin), uint64(n.half.UMax))
	low.Mask |= ^uint64(math.MaxUint32)
	n.bits, okHalf = n.bits.meet(low)
	n.learnFromBits()
	return ok && okHalf && !n.wide.empty() && !n.half.empty()
}

func (n *Number) learnFromBits() {
	n.wide = n.wide.knowing(n.bits.Value, n.bits.Mask)
	n.half = n.half.knowing(uint32(n.bits.Value), uint32(n.bits.Mask))
}

// deduce carries bounds between the signed and the unsigned view, and between the
// number and its low half.
func (n *Number) deduce() {
	const low = math.MaxUint32
	w, h := &n.wide, &n.half
	// Bounds with the same upper half bound the lower half.
	if w.UMin>>32 == w.UMax>>32 {
		h.UMin, h.UMax = max(h.UMin, uint32(w.UMin)), min(h.UMax, uint32(w.UMax))
	}
	if w.SMin>>32 == w.SMax>>32 {
		h.UMin, h.UMax = max(h.UMin, uint32(w.SMin)), min(h.UMax, uint32(w.SMax))
	}
	*h = h.deduce()
	*w = w.deduce()
	// The number whose upper half is that of a bound has a lower half inside
	// the lower half's bounds.
	w.UMin = max(w.UMin, w.UMin&^low|uint64(h.UMin))
	w.UMax = min(w.UMax, w.UMax&^low|uint64(h.UMax))
	w.SMin = max(w.SMin, w.SMin&^low|int64(h.UMin))
	w.SMax = min(w.SMax, w.SMax&^low|int64(h.UMax))
	// A number of 32 bits, sign-extended, whose sign is known to be zero. The
	// kernel then takes the bounds of the low half, even if it knew better ones.
	if h.SMin >= 0 && w.SMin >= math.MinInt32 && w.SMax <= math.MaxInt32 {
		w.SMin, w.SMax = int64(h.SMin), int64(h.SMax)
		w.UMin, w.UMax = uint64(h.SMin), uint64(h.SMax)
	}
}
