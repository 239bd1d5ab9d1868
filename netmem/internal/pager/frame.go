package pager

type state uint8

const (
	// free: the frame is not in use.
	free state = iota
	// fetching: a buffer waits for it.
	fetching
	// pooled: it is in a buffer.
	pooled
	// moving: it is being copied from its buffer to the file.
	moving
	// mapped: it is in the file, and the mapper sees it. It has a buffer too while it is
	// written back for Sync.
	mapped
	// leaving: it is being punched out of the file, and equals the source's. It counts as
	// mapped until then.
	leaving
)

const none = -1

// chances of a page, which the clock's hand takes one by one.
const (
	chanceMissed   = 1 // it was missed, and fetched
	chanceReturned = 2 // it was missed a second time, or written
	chanceMost     = 3
)

type frame struct {
	page   uint64 // of the source
	buffer int    // which it has, or none
	state  state
	// chances that are left.
	chances uint8
	// dirty: it is not protected against writing, or the pool has what is still to be
	// written back.
	dirty bool
	// writing: it is being written back from its buffer.
	writing bool
	// wanted: a thread waits until it is fetched, written back, moved or gone; wantedWrite:
	// to write.
	wanted, wantedWrite bool
	// ahead: it was read ahead, and was not missed since. marker: it stays in the
	// pool until it is missed, which tells that the reader has come so far.
	ahead, marker bool
	version       uint64
	// ticket of the write-back under way.
	ticket uint64
	// missed is when the fault was read, by the pager's clock, and part the offset in the
	// page of the machine's page that was missed first: that is put in place first.
	missed, part int64
	// newer and older are its neighbours among the pages in the pool that may leave it.
	newer, older *frame
}

// idle is the list of pages in the pool that may leave it, by age: a ring that closes in a frame of no page.
type idle struct{ ends frame }

func (l *idle) init() { l.ends.newer, l.ends.older = &l.ends, &l.ends }

// oldest is nil if there is no such page.
func (l *idle) oldest() *frame {
	if l.ends.newer == &l.ends {
		return nil
	}
	return l.ends.newer
}

func (l *idle) add(f *frame) {
	f.older, f.newer = l.ends.older, &l.ends
	f.older.newer, l.ends.older = f, f
}

func (l *idle) remove(f *frame) { f.older.newer, f.newer.older = f.newer, f.older }
