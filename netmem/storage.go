package netmem

import (
	"context"
	"sync"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// spareFrames are those beyond what is lent. A page is written into a frame of its own, which
// then takes the place of the old one. A client that fetches the page meanwhile gets all of the
// old one.
const spareFrames = 64

// storage holds the pages that a server lends, with their versions. Requests have been checked: the page is lent. Pages get a frame when they are first written.
type storage struct {
	memory *via.Memory
	page   int
	table  placeTable // behind the frames

	mu     sync.Mutex
	base   uint64           // version of pages that were never written
	pages  []protocol.Stamp // zero of those that were never written
	epoch  uint64           // by which pages are given out to those who read the memory; 0: they are not
	frames []uint32         // of each page: its frame, none if it has not been written
	lent   []int32          // of each frame: loans; plus dropped when it belongs to no page any more
	free   []uint32
	used   int // pages that have been written
	most   int
}

// of is the stamp of a page as clients see it.
func (s *storage) of(page uint64) protocol.Stamp {
	if p := s.pages[page]; p.Version != 0 {
		return p
	}
	return protocol.Stamp{Version: s.base, Flags: protocol.Unwritten}
}

// next is the stamp that a page gets by a write, if its condition holds.
func (s *storage) next(q *protocol.Request) (protocol.Stamp, protocol.Result) {
	now := s.of(q.Page).Version
	if q.Condition == protocol.IfOlder && now >= q.Next || q.Condition == protocol.IfExpected && now != q.Expected {
		return protocol.Stamp{}, protocol.VersionConflict
	}
	return protocol.Stamp{Version: q.Next, Client: q.Client}, protocol.OK
}

// zeros is the frame of zeros, which all pages share that were never written.
const zeros = 0

// dropped is added to the loans of a frame that is free when they are returned.
const dropped = 1 << 30

func newStorage(ctx context.Context, f fabric, page int, pages, capacity uint64) (*storage, error) {
	frames := int(capacity) + spareFrames + 1
	table := int(pages) * protocol.PlaceSize
	if table > frames*page/8 {
		table = 0 // it would be large beside what is lent
	}
	m, err := f.alloc(ctx, frames*page+table, via.MemoryAttributes{RDMARead: true})
	if err != nil {
		return nil, err
	}
	s := &storage{
		memory: m, table: placesAt(m.Bytes()[frames*page:]), page: page, most: int(capacity), pages: make([]protocol.Stamp, pages),
		frames: make([]uint32, pages), lent: make([]int32, frames), free: make([]uint32, 0, frames),
	}
	for f := frames - 1; f > zeros; f-- {
		s.free = append(s.free, uint32(f))
	}
	return s, nil
}

// fetch lends the page that q names until the loan is returned, and fills in r.
func (s *storage) fetch(q *protocol.Request, r *protocol.Reply) *loan {
	s.mu.Lock()
	f := s.frames[q.Page]
	s.lent[f]++
	r.Stamp = s.of(q.Page)
	s.mu.Unlock()
	return lend(s, f, ring.Frame{Memory: s.memory, Offset: int(f) * s.page, Length: s.page})
}

func (s *storage) returned(f uint32) {
	s.mu.Lock()
	if s.lent[f]--; s.lent[f] == dropped {
		s.lent[f] = 0
		s.free = append(s.free, f)
	}
	s.mu.Unlock()
}

// write makes from, one page, the page, and fills in r.
func (s *storage) write(q *protocol.Request, r *protocol.Reply, from []byte) {
	f, result := s.take(q)
	if r.Result = result; result == protocol.OK {
		copy(s.memory.Bytes()[int(f)*s.page:], from) // the frame is known nowhere else
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if result == protocol.OK {
		f, r.Result = s.put(q, f)
		s.drop(f)
	}
	r.Stamp = s.of(q.Page)
}

func (s *storage) take(q *protocol.Request) (uint32, protocol.Result) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if _, result := s.next(q); result != protocol.OK {
		return 0, result
	}
	switch {
	case s.frames[q.Page] == zeros && s.used >= s.most:
		return 0, protocol.Full
	case len(s.free) == 0:
		return 0, protocol.Busy
	}
	f := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return f, protocol.OK
}

// put makes frame f the page, unless something has changed since it was taken, and
// returns the frame that is not needed any more.
func (s *storage) put(q *protocol.Request, f uint32) (uint32, protocol.Result) {
	next, result := s.next(q)
	old := s.frames[q.Page]
	switch {
	case result != protocol.OK:
		return f, result
	case old == zeros && s.used >= s.most:
		return f, protocol.Full
	case old == zeros:
		s.used++
	}
	s.frames[q.Page], s.pages[q.Page] = f, next
	s.show(q.Page)
	return old, protocol.OK
}

// drop frees a frame that is no page any more, when its loans are returned.
func (s *storage) drop(f uint32) {
	switch {
	case f == zeros:
	case s.lent[f] > 0:
		s.lent[f] += dropped
	default:
		s.free = append(s.free, f)
	}
}

// stampsOf fills in the stamps of the pages from first on, which are lent.
func (s *storage) stampsOf(first uint64, into []protocol.Stamp) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i := range into {
		into[i] = s.of(first + uint64(i))
	}
}

// adopt notes what the server is in its pool. With anew it has nothing from then on.
func (s *storage) adopt(m *membership, anew bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if anew {
		for page, f := range s.frames {
			s.drop(f)
			s.frames[page], s.pages[page] = zeros, protocol.Stamp{}
		}
		s.used = 0
	}
	s.base, s.epoch = m.Base, 0
	if !m.joining && m.Epoch <= protocol.MaxPlaceEpoch {
		s.epoch = m.Epoch
	}
	for page := range s.pages {
		s.show(uint64(page))
	}
}

// show tells those who read the memory where a page is. mu is held, so that the frame that the page had
// is written to only later.
func (s *storage) show(page uint64) {
	if len(s.table) == 0 {
		return
	}
	p := s.of(page)
	to := protocol.Place{Frame: s.frames[page], Version: p.Version, Client: p.Client, Epoch: s.epoch, Flags: p.Flags}
	s.table.store(page, &to)
}

// window says where clients that can read the server's memory find pages; nil: nowhere.
func (s *storage) window() *protocol.Window {
	if len(s.table) == 0 {
		return nil
	}
	at := s.memory.Address()
	return &protocol.Window{Handle: s.memory.Handle(), Frames: at, Table: at + uint64(s.memory.Size()-len(s.table)*protocol.PlaceSize)}
}

func (s *storage) stored() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return uint64(s.used) * uint64(s.page)
}

// loan is a frame that the NIC sends from. It is not written to until it is returned.
type loan struct {
	frame   ring.Frame
	place   uint32 // of the frame, in the storage
	owner   interface{ returned(place uint32) }
	session *session
	done    func() // returns it: give, bound once
}

var loans sync.Pool

func lend(owner interface{ returned(uint32) }, place uint32, f ring.Frame) *loan {
	l, _ := loans.Get().(*loan)
	if l == nil {
		l = new(loan)
		l.done = l.give
	}
	l.owner, l.place, l.frame = owner, place, f
	return l
}

// give returns the loan, once.
func (l *loan) give() {
	l.owner.returned(l.place)
	l.session.taken.Add(1)
	l.session.lent.Add(-1)
	l.owner, l.session, l.frame = nil, nil, ring.Frame{}
	loans.Put(l)
}

// stampFrames is for how many clients at a time a server has room for stamps, and a host for pages.
const stampFrames = 8

// rooms are frames of registered memory for what is on its way.
type rooms struct {
	memory *via.Memory
	free   chan uint32
}

func newRooms(ctx context.Context, f fabric, count, page int) (*rooms, error) {
	m, err := f.alloc(ctx, count*page, via.MemoryAttributes{})
	if err != nil {
		return nil, err
	}
	s := &rooms{memory: m, free: make(chan uint32, count)}
	for i := range uint32(count) {
		s.free <- i
	}
	return s, nil
}

func (s *rooms) take() (uint32, bool) {
	select {
	case room := <-s.free:
		return room, true
	default:
		return 0, false
	}
}

func (s *rooms) returned(room uint32) { s.free <- room }

// frame is a room of page bytes.
func (s *rooms) frame(room uint32, page int) ring.Frame {
	return ring.Frame{Memory: s.memory, Offset: int(room) * page, Length: page}
}

// membership has all that a server knows of its pool.
type membership struct {
	protocol.Record
	since   uint64 // the epoch in which it was let in
	joining bool
}
