// Package round rounds numbers to whole units.
package round

// Up is the least multiple of unit that is not below n.
func Up[T int | uint64](n, unit T) T { return (n + unit - 1) / unit * unit }
