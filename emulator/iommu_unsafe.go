package emulator

import "unsafe"

// follows reports whether b starts in memory where a ends.
func follows(a, b []byte) bool {
	return len(a) > 0 && len(b) > 0 &&
		unsafe.Add(unsafe.Pointer(unsafe.SliceData(a)), len(a)) == unsafe.Pointer(unsafe.SliceData(b))
}

// join makes one slice of a and b, which follows a. Both are mapped memory
// outside the Go heap.
func join(a, b []byte) []byte {
	return unsafe.Slice(unsafe.SliceData(a), len(a)+len(b))
}
