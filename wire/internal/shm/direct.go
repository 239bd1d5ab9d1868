package shm

import (
	"errors"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/atomicmem"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/internal/memfile"
	"github.com/trapeze-nic/trapeze/wire/internal/ends"
)

// directTable is the table of one end (SPEC.md 8.15): ours, which the peer cannot write, or
// the peer's, which we cannot.
type directTable struct {
	*datasheet.DirectTable
	memory *mapping
	of     *session // whose peer's it is; nil: ours
}

// copyTime bounds the wait for the end of a copy of the peer's. The largest takes a
// millisecond; a processor may be taken away in the middle of it.
const copyTime = 2 * time.Second

// makeTable makes the table that the peer gets. Where the system cannot keep the peer from
// writing to it, there is none.
func (p *Port) makeTable() {
	p.tableFD = -1
	if !p.options.Share {
		return
	}
	fd, m, err := create(datasheet.DirectTableSize, memfile.Sealed)
	if err != nil {
		return
	}
	defer unix.Close(fd)
	if err = sealWrites(fd, 0, datasheet.DirectTableSize); err == nil {
		p.tableFD, err = readOnly(fd)
	}
	if err != nil {
		m.unmap()
		return
	}
	p.table.DirectTable, p.table.memory = datasheet.DirectTableAt(m.mem), m
}

// dropTable ends what makeTable and takeTable began. The data path uses no table any more.
func (p *Port) dropTable() {
	if t := p.theirTable.Load(); t != nil {
		t.memory.unmap()
	}
	if p.table.DirectTable != nil {
		p.table.memory.unmap()
		p.table = directTable{}
	}
}

// offerTable gives the peer of s the table.
func (p *Port) offerTable(s *session) error {
	if !s.shared || p.tableFD < 0 {
		return nil
	}
	return s.conn.send(message{kind: kindTable, a: datasheet.DirectTableSize}, p.tableFD)
}

// takeTable maps the peer's table.
func (p *Port) takeTable(s *session, m message, fd int) error {
	known := p.theirTable.Load()
	switch {
	case known != nil && known.of == s:
		return broken("kind of a message", uint64(m.kind), "one table")
	case m.a != datasheet.DirectTableSize:
		return broken("size of a table", m.a, "299008")
	}
	memory, err := mapWhole(fd, datasheet.DirectTableSize, unix.PROT_READ, "a table")
	if memory != nil { // else operations go in frames
		p.theirTable.Store(&directTable{datasheet.DirectTableAt(memory.mem), memory, s})
	}
	return err
}

// discard ends a port that was never used.
func (p *Port) discard() {
	p.cancel()
	p.closeOffers()
	p.dropTable()
}

func (p *Port) Table() *datasheet.DirectTable { return p.table.DirectTable }

func (p *Port) AllowDirect(ok bool) {
	if p.welcomes == ok {
		return
	}
	if p.welcomes = ok; ok {
		p.openTable()
		return
	}
	p.closeTable()
	p.Settle()
}

// openTable lets the peer of the session that the data path uses carry out operations, if it
// is welcome to.
func (p *Port) openTable() {
	if s := p.session; p.welcomes && s != nil && s.shared && p.table.DirectTable != nil {
		atomic.StoreUint32(&p.table.Wire, s.memory.number)
	}
}

// closeTable keeps every peer from beginning an operation.
func (p *Port) closeTable() {
	if p.table.DirectTable != nil {
		atomic.StoreUint32(&p.table.Wire, 0)
	}
}

func (p *Port) Where(b []byte) (id uint32, offset uint64, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, e := range p.offers {
		if at, in := within(b, e.mem); in {
			return e.id, at, true
		}
	}
	return 0, 0, false
}

func (p *Port) Settle() {
	if s := p.session; s != nil && s.shared {
		p.settle(s, p.Rx.Copying)
	}
}

// settle waits for the end of a copy that the peer has begun, as its word says. What was
// taken back before, by an atomic store, no later copy uses. A peer that is gone has ended
// its copies. One that takes too long, or breaks the rules, is disconnected, and what it writes later is lost.
func (p *Port) settle(s *session, word *uint32) {
	began := atomic.LoadUint32(word)
	if began&1 == 0 {
		return
	}
	end := time.Now().Add(copyTime)
	for turn := 0; atomic.LoadUint32(word) == began; turn++ {
		late := false
		select {
		case <-s.done:
			if errors.Is(s.why, ends.ErrGone) {
				return
			}
			late = s.broken()
		default:
		}
		switch {
		case late || time.Now().After(end):
			s.end(broken("word of a copy", uint64(began), "another one after two seconds"))
			p.detachAll()
			return
		case turn < 64:
			runtime.Gosched()
		default:
			time.Sleep(50 * time.Microsecond)
		}
	}
}

// detachAll makes what a peer may still be writing to memory of this process alone. It is not exported any more.
func (p *Port) detachAll() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for id, e := range p.offers {
		if e.writable < 0 {
			continue
		}
		if err := detach(e.mem, e.writable, e.offset); err != nil {
			p.kept = fmt.Errorf("%w: a peer that has not ended a copy may still write to it: %w", ErrMemory, err)
		}
		e.close()
		delete(p.offers, id)
	}
	p.listLent()
}

// Kept returns why memory stayed a peer's that had to be taken from it, the last time that this happened. It wraps
// ErrMemory, and is nil if it never did. Any goroutine may call it.
func (p *Port) Kept() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.kept
}

func (p *Port) Begin(wire uint32) *datasheet.DirectTable {
	s := p.session
	if p.state.Load() != 0 || s == nil || !s.shared || s.memory.number != wire {
		return nil
	}
	atomicmem.Store32(&p.loan.inUse, 1)
	p.copies++
	// It keeps the order of this store, and the one before, and of all loads behind.
	atomic.StoreUint32(p.Tx.Copying, p.copies)
	if t := p.theirTable.Load(); t != nil && t.of == s && atomic.LoadUint32(&t.Wire) == wire {
		return t.DirectTable
	}
	p.End()
	return nil
}

func (p *Port) End() {
	p.copies++
	atomicmem.Store32(p.Tx.Copying, p.copies)
	if !p.borrowed {
		p.endUse()
	}
}
