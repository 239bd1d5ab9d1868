package pager

// Streams finds sequences, of windows of at most so many pages.
type Streams struct{ s streams }

// NewStreams makes one.
func NewStreams(window int64) *Streams { return &Streams{streams{window: window}} }

// Missed is that of the pager.
func (s *Streams) Missed(page int64) (first, marker, end int64) { return s.s.missed(page) }
