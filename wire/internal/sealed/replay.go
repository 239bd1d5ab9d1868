package sealed

// The window is as long as the numbers of the frames that a sender may have in
// flight many times over: 64 for each connection.
const (
	windowWords = 64
	wordBits    = 64
	// WindowSize is the distance that a datagram may lag behind the newest one.
	WindowSize = (windowWords - 1) * wordBits
)

// window remembers which numbers have been seen: a ring of words, of which the one
// that is being filled gives up its old bits as a whole (RFC 6479).
type window struct {
	next uint64 // the largest number seen, plus one
	seen [windowWords]uint64
}

// fresh reports whether a number is neither seen nor too old to tell.
func (w *window) fresh(n uint64) bool {
	if n >= w.next {
		return true
	}
	return w.next-n <= WindowSize && w.seen[n/wordBits%windowWords]&(1<<(n%wordBits)) == 0
}

// mark takes note of a number that is fresh.
func (w *window) mark(n uint64) {
	if n >= w.next {
		// The words after that of the newest number so far, up to that of n, begin
		// anew.
		first := (w.next + wordBits - 1) / wordBits
		last := n / wordBits
		if last-first >= windowWords && last >= first {
			first = last - (windowWords - 1)
		}
		for i := first; i <= last; i++ {
			w.seen[i%windowWords] = 0
		}
		w.next = n + 1
	}
	w.seen[n/wordBits%windowWords] |= 1 << (n % wordBits)
}
