// Package readahead recognizes pages that are read in sequence, by several readers at a
// time, and says which pages to fetch ahead of them.
package readahead

// streams is the number of sequences that are followed at a time. A merge of as many runs reads
// each of them in sequence.
const streams = 32

// firstWindow is the number of pages that a new sequence is given ahead.
const firstWindow = 2

// Detector follows sequences. Its zero value fetches nothing ahead; Window says how much.
// It is used by one goroutine at a time.
//
// The first page of what was advised last is the marker of a sequence. With it, or one behind
// it, the next window is advised, which comes while the reader uses up the last one. Pages
// before the marker need not be seen: a pager maps them when they come, and gets no fault.
type Detector struct {
	// Window is the most pages that are advised at a time. So many can also lie between a
	// reader and what is advised.
	Window int

	list [streams]stream
	time uint64
}

type stream struct {
	first       uint64 // what was advised last begins here
	marker, end uint64 // the next window is advised with a page from marker to end
	window      uint64
	used        uint64 // when it was read last; zero if it is not in use
}

// Advice is the pages from First to before End, with the new marker among them. It has no
// pages if First is End.
type Advice struct{ First, Marker, End uint64 }

// Seen is told of a page that is read, and whether it was missed, and returns which pages to
// fetch now, as far as they are not there. Windows double while a sequence goes on. One that
// misses a page before its marker, as that could not be fetched or has left, is a new one.
func (d *Detector) Seen(page uint64, missed bool) Advice {
	if d.Window < 1 {
		return Advice{}
	}
	d.time++
	oldest := &d.list[0]
	for i := range d.list {
		s := &d.list[i]
		switch {
		case s.used == 0:
		case page >= s.marker && page <= s.end:
			s.used = d.time
			s.window = min(max(firstWindow, 2*s.window), uint64(d.Window))
			s.first = page + 1
			s.marker = max(s.end, s.first)
			s.end = s.marker + s.window
			return Advice{s.first, s.marker, s.end}
		case !missed && page+1 >= s.first && page < s.marker:
			s.used = d.time
			return Advice{}
		}
		if s.used < oldest.used {
			oldest = s
		}
	}
	*oldest = stream{first: page + 1, marker: page + 1, end: page + 1, used: d.time}
	return Advice{}
}
