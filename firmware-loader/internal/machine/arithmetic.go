package machine

// Division as RFC 9669, section 4.1 has it: a division by zero gives zero, the
// remainder of one the dividend; the one signed quotient that does not fit wraps.

func quotient[T uint32 | uint64](a, b T) T {
	if b == 0 {
		return 0
	}
	return a / b
}

func remainder[T uint32 | uint64](a, b T) T {
	if b == 0 {
		return a
	}
	return a % b
}

// Go defines the most negative number divided by -1 as itself, remainder 0 (language
// specification, "Integer operators"), as wanted.

func signedQuotient[T int32 | int64](a, b T) T {
	if b == 0 {
		return 0
	}
	return a / b
}

func signedRemainder[T int32 | int64](a, b T) T {
	if b == 0 {
		return a
	}
	return a % b
}
