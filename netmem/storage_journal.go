package netmem

import (
	"errors"
	"io"
	"math"
	"os"
)

// pageFile is a file of pages and its sidecar. A page is written to the journal first,
// then in place, and then its stamp to the table. Writes follow one another, so the journal
// has room for one.
//
// What survives: the process may be killed at any point, and each page is old or new as a
// whole. When the power fails, what close and save have flushed is there; a later page is
// old, new or damaged.
type pageFile struct {
	sideLayout
	stamps
	data     *os.File
	side     *os.File // nil: for reading only, and there is none
	lock     *os.File // the data again, locked
	writable bool     // the file is not for reading only
	dirty    bool     // written since it was opened
	state    sideState

	entry, old []byte // of the page that is being written
	// edited pages were changed by another program while no server lent the file.
	edited, damaged uint64
}

// put writes a page and its stamp. On error the page and its stamp are the old ones, or the
// page is damaged.
func (f *pageFile) put(page uint64, to stamp, from []byte) error {
	if f.side == nil {
		return os.ErrPermission
	}
	f.dirty = true
	at := int64(page * f.page)
	unknown := f.read(f.old, at)
	to.sum = sumOf(from)
	j := journal{page: page, stamp: to}
	j.encode(f.entry)
	copy(f.entry[block:], from)
	if _, err := f.side.WriteAt(f.entry, journalAt); err != nil {
		return err // a torn entry is none
	}
	n, err := f.data.WriteAt(from, at)
	if err == nil {
		err = f.keep(page, to)
	}
	if err == nil {
		f.pages[page] = to
		return nil
	}
	return errors.Join(err, f.undo(page, n, unknown))
}

// undo makes a page what it was before n bytes were written to it. It empties the journal of what
// would be written after a restart.
func (f *pageFile) undo(page uint64, n int, err error) error {
	if err == nil && n > 0 {
		_, err = f.data.WriteAt(f.old[:n], int64(page*f.page))
	}
	if n == 0 {
		err = nil // nothing was written, whatever the page was
	}
	if err != nil {
		f.pages[page].state |= damaged | written
	}
	return errors.Join(err, f.keep(page, f.pages[page]), f.settle())
}

// keep writes the stamp of a page to the table.
func (f *pageFile) keep(page uint64, p stamp) error {
	var b [entrySize]byte
	if p != (stamp{}) {
		p.encode(b[:])
	}
	_, err := f.side.WriteAt(b[:], f.tableAt(page))
	return err
}

// settle empties the journal.
func (f *pageFile) settle() error {
	_, err := f.side.WriteAt(make([]byte, journalHead), journalAt)
	return err
}

// read reads from the file. What is behind its end is zeros.
func (f *pageFile) read(into []byte, at int64) error {
	n, err := f.data.ReadAt(into, at)
	if errors.Is(err, io.EOF) {
		clear(into[n:])
		return nil
	}
	return err
}

// save makes a state the one that a restart finds. On error it is the old one that counts.
func (f *pageFile) save(to sideState, flush bool) error {
	if !f.writable {
		f.state, f.base, f.joins = to, to.base, to.joins
		return nil
	}
	to.turn = f.state.turn + 1
	if len(to.record) > mostRecord {
		return &SidecarError{Path: f.side.Name(), Field: "record", Value: uint64(len(to.record)), Want: "one that fits"}
	}
	if _, err := f.side.WriteAt(to.encode(), stateAt+int64(to.turn%2)*block); err != nil {
		return err
	}
	if flush {
		if err := f.side.Sync(); err != nil {
			return err
		}
	}
	f.state, f.base, f.joins = to, to.base, to.joins
	return nil
}

// replay finishes the write that a kill has cut short.
func (f *pageFile) replay() error {
	if _, err := f.side.ReadAt(f.entry, journalAt); err != nil {
		return err
	}
	j, whole := f.parseJournal(f.entry)
	if !whole {
		return nil
	}
	if f.pages[j.page] != j.stamp {
		if !f.writable {
			f.pages[j.page].state |= damaged | written
			return nil
		}
		f.dirty = true
		if _, err := f.data.WriteAt(j.data, int64(j.page*f.page)); err != nil {
			return err // the journal still has the page
		}
		if err := f.keep(j.page, j.stamp); err != nil {
			return err
		}
		f.pages[j.page] = j.stamp
	}
	if !f.writable {
		return nil
	}
	return f.settle()
}

// examine compares a page with its sum. A page that has changed is one that was edited, if
// adopt is set, and else damaged.
func (f *pageFile) examine(page uint64, adopt bool) error {
	p := f.pages[page]
	if p.state&written == 0 {
		return nil
	}
	if p.state&damaged == 0 {
		err := f.read(f.old, int64(page*f.page))
		sum := sumOf(f.old)
		if err == nil && sum == p.sum {
			return nil
		}
		if err == nil && adopt && p.version < math.MaxUint64 {
			p.version, p.client, p.sum = p.version+1, 0, sum
			f.edited++
		} else {
			p.state |= damaged
		}
	}
	if p.state&damaged != 0 {
		f.damaged++
	}
	if f.pages[page] == p || !f.writable {
		f.pages[page] = p
		return nil
	}
	f.pages[page] = p
	return f.keep(page, p)
}

// close flushes what was written and says so in the sidecar.
func (f *pageFile) close() error {
	var err error
	if f.dirty {
		err = f.data.Sync()
	}
	if f.writable && err == nil {
		err = f.side.Sync()
	}
	if f.writable && err == nil {
		to := f.state
		to.boot = [16]byte{}
		err = f.save(to, true)
	}
	return errors.Join(err, f.release())
}

// release closes what openPages has opened.
func (f *pageFile) release() error {
	var err error
	if f.side != nil {
		err = f.side.Close()
	}
	return errors.Join(err, f.lock.Close())
}
