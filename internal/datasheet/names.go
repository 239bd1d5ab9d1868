package datasheet

import "fmt"

// nameOf returns the name of v, or what it is and its number if it has none.
func nameOf[T ~uint8 | ~uint16 | ~uint32 | ~int](names []string, v T, what string) string {
	if v >= 0 && uint64(v) < uint64(len(names)) && names[v] != "" {
		return names[v]
	}
	return fmt.Sprintf("%s %d", what, v)
}
