package scalar

// span bounds a number of one width as an unsigned and as a signed number, all
// bounds included. U and S have the same width.
type span[U uint32 | uint64, S int32 | int64] struct {
	UMin, UMax U
	SMin, SMax S
}

func signedBounds[U uint32 | uint64, S int32 | int64]() (lowest, highest S) {
	highest = S(^U(0) >> 1)
	return -highest - 1, highest
}

func anySpan[U uint32 | uint64, S int32 | int64]() span[U, S] {
	lowest, highest := signedBounds[U, S]()
	return span[U, S]{UMin: 0, UMax: ^U(0), SMin: lowest, SMax: highest}
}

func unsignedSpan[U uint32 | uint64, S int32 | int64](lowest, highest U) span[U, S] {
	s := anySpan[U, S]()
	s.UMin, s.UMax = lowest, highest
	return s
}

func signedSpan[U uint32 | uint64, S int32 | int64](lowest, highest S) span[U, S] {
	s := anySpan[U, S]()
	s.SMin, s.SMax = lowest, highest
	return s
}

func oneSpan[U uint32 | uint64, S int32 | int64](v U) span[U, S] {
	return span[U, S]{UMin: v, UMax: v, SMin: S(v), SMax: S(v)}
}

func (a span[U, S]) empty() bool { return a.UMin > a.UMax || a.SMin > a.SMax }

func (a span[U, S]) one() bool { return a.UMin == a.UMax }

func (a span[U, S]) contains(v U) bool {
	return v >= a.UMin && v <= a.UMax && S(v) >= a.SMin && S(v) <= a.SMax
}

func (a span[U, S]) within(b span[U, S]) bool {
	return a.UMin >= b.UMin && a.UMax <= b.UMax && a.SMin >= b.SMin && a.SMax <= b.SMax
}

// meet returns the numbers of both. It may be empty.
func (a span[U, S]) meet(b span[U, S]) span[U, S] {
	return span[U, S]{
		UMin: max(a.UMin, b.UMin), UMax: min(a.UMax, b.UMax),
		SMin: max(a.SMin, b.SMin), SMax: min(a.SMax, b.SMax),
	}
}

// deduce lets the unsigned bounds say what they know of the signed ones and the
// other way round. Each can where its numbers all have the same top bit. Signed
// bounds on both sides of zero are two ranges of unsigned numbers, at the bottom and
// at the top: one of them may be out of the question.
func (a span[U, S]) deduce() span[U, S] {
	if S(a.UMin) <= S(a.UMax) {
		a.SMin, a.SMax = max(a.SMin, S(a.UMin)), min(a.SMax, S(a.UMax))
	}
	switch {
	case U(a.SMin) <= U(a.SMax):
		a.UMin, a.UMax = max(a.UMin, U(a.SMin)), min(a.UMax, U(a.SMax))
	case a.UMax < U(a.SMin):
		a.SMin, a.UMax = S(a.UMin), min(a.UMax, U(a.SMax))
	case U(a.SMax) < a.UMin:
		a.SMax, a.UMin = S(a.UMax), max(a.UMin, U(a.SMin))
	}
	return a
}

// knowing returns the bounds narrowed by the known bits value, of a number whose
// unknown bits are mask.
func (a span[U, S]) knowing(value, mask U) span[U, S] {
	top := ^(^U(0) >> 1)
	return a.meet(span[U, S]{
		UMin: value, UMax: value | mask,
		SMin: S(value | mask&top), SMax: S(value | mask&^top),
	})
}

func (a span[U, S]) add(b span[U, S]) span[U, S] {
	r := anySpan[U, S]()
	// Either no sum wraps, or each does.
	if lowest, top := a.UMin+b.UMin, a.UMax+b.UMax; (lowest < a.UMin) == (top < a.UMax) {
		r.UMin, r.UMax = lowest, top
	}
	if !addOverflows(a.SMin, b.SMin) && !addOverflows(a.SMax, b.SMax) {
		r.SMin, r.SMax = a.SMin+b.SMin, a.SMax+b.SMax
	}
	return r
}

func (a span[U, S]) sub(b span[U, S]) span[U, S] {
	r := anySpan[U, S]()
	if (a.UMin < b.UMax) == (a.UMax < b.UMin) {
		r.UMin, r.UMax = a.UMin-b.UMax, a.UMax-b.UMin
	}
	if !subOverflows(a.SMin, b.SMax) && !subOverflows(a.SMax, b.SMin) {
		r.SMin, r.SMax = a.SMin-b.SMax, a.SMax-b.SMin
	}
	return r
}

func (a span[U, S]) mul(b span[U, S]) span[U, S] {
	if a.UMax != 0 && b.UMax > ^U(0)/a.UMax {
		return anySpan[U, S]()
	}
	return unsignedSpan[U, S](a.UMin*b.UMin, a.UMax*b.UMax)
}

// shiftLeft gives up where numbers would reach beyond the top bit, as the kernel does.
func (a span[U, S]) shiftLeft(n uint) span[U, S] {
	if top := ^(^U(0) >> 1); a.UMax > top>>n {
		return anySpan[U, S]()
	}
	return unsignedSpan[U, S](a.UMin<<n, a.UMax<<n)
}

func (a span[U, S]) shiftRight(n uint) span[U, S] {
	return unsignedSpan[U, S](a.UMin>>n, a.UMax>>n)
}

func (a span[U, S]) shiftArithmetic(n uint) span[U, S] {
	return signedSpan[U](a.SMin>>n, a.SMax>>n)
}

func addOverflows[S int32 | int64](a, b S) bool {
	sum := a + b
	return (a >= 0) == (b >= 0) && (sum >= 0) != (a >= 0)
}

func subOverflows[S int32 | int64](a, b S) bool {
	difference := a - b
	return (a >= 0) != (b >= 0) && (difference >= 0) != (a >= 0)
}
