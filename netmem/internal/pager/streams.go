package pager

// streamCount is how many sequences are followed at a time: a merge of as many runs reads
// each of them in sequence.
const streamCount = 32

// firstWindow is how many pages a new sequence is given ahead.
const firstWindow = 2

// stream is a reader that goes from page to page. Pages that were read ahead are mapped when
// they come, so that their reader is not seen again until it comes to one that is not: the
// marker, which is the first page of what was asked for last. With it the next window is
// asked for, and comes while the reader uses up the one that has come.
type stream struct {
	marker, end int64 // the next fault is expected from marker to end
	window      int64
	used        uint64
}

// streams finds sequences among the faults.
type streams struct {
	list   [streamCount]stream
	time   uint64
	window int64 // the largest, in pages
}

// missed is told of each page that was missed, and returns which pages to read ahead, as far
// as they are not local: from first to before end, with the new marker among them.
func (s *streams) missed(page int64) (first, marker, end int64) {
	if s.window < 1 {
		return 0, 0, 0
	}
	s.time++
	oldest := &s.list[0]
	for i := range s.list {
		t := &s.list[i]
		if t.used != 0 && page >= t.marker && page <= t.end {
			t.used = s.time
			t.window = min(max(firstWindow, 2*t.window), s.window)
			t.marker = max(t.end, page+1)
			t.end = t.marker + t.window
			return page + 1, t.marker, t.end
		}
		if t.used < oldest.used {
			oldest = t
		}
	}
	*oldest = stream{marker: page + 1, end: page + 1, used: s.time}
	return 0, 0, 0
}
