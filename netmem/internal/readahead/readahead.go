// Package readahead recognizes pages that are read in sequence, by several readers at a
// time, and says which pages to fetch ahead of them.
package readahead

// streams is how many sequences are followed at a time. A merge of as many runs reads
// each of them in sequence.
const streams = 32

// first is how many pages a new sequence is given ahead.
const first = 2

// Detector follows sequences. Its zero value fetches nothing ahead; Window says how much.
// It is used by one goroutine at a time.
type Detector struct {
	// Window is how many pages ahead of a reader are fetched at most.
	Window int

	list [streams]stream
	time uint64
}

type stream struct {
	next   uint64 // the page that follows what was read
	end    uint64 // what was asked for ahead ends before this page
	window int
	used   uint64 // when it was read last; zero if it is not in use
}

// Read is told of each page that is read, and returns the pages to fetch now: n from from
// on. Windows double while a sequence goes on.
func (d *Detector) Read(page uint64) (from uint64, n int) {
	if d.Window < 1 {
		return 0, 0
	}
	d.time++
	oldest := &d.list[0]
	for i := range d.list {
		s := &d.list[i]
		switch {
		case s.used != 0 && page+1 == s.next: // once more the same page
			s.used = d.time
			return 0, 0
		case s.used != 0 && page == s.next:
			return d.follow(s)
		case s.used < oldest.used:
			oldest = s
		}
	}
	*oldest = stream{next: page + 1, end: page + 1, used: d.time}
	return 0, 0
}

// follow goes on with a sequence. More is asked for when half of what was is read.
func (d *Detector) follow(s *stream) (uint64, int) {
	s.used = d.time
	s.next++
	if s.end < s.next {
		s.end = s.next
	}
	if int(s.end-s.next) > s.window/2 {
		return 0, 0
	}
	s.window = min(max(first, 2*s.window), d.Window)
	from := s.end
	s.end = s.next + uint64(s.window)
	if s.end <= from {
		s.end = from
		return 0, 0
	}
	return from, int(s.end - from)
}
