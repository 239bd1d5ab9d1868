package shm

import (
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/internal/atomicmem"
	"github.com/trapeze-nic/trapeze/vfio"
)

// borrowed is memory of the peer that we have mapped.
type borrowed struct {
	of     *session
	id     uint32
	memory *mapping
	mem    []byte
	write  bool // we may write to it
}

// Borrow returns bytes at offset of the memory that the
// peer has exported as id, nil if they are not all in it. It is the data path's,
// as Receive is. They stay until the next call of Receive, Release or Return.
func (p *Port) Borrow(id uint32, offset, n uint64) []byte {
	if !p.borrowed {
		p.borrowed = true
		atomic.StoreUint32(&p.loan.inUse, 1)
	}
	bytes := p.Reach(id, offset, n, false)
	if bytes != nil {
		p.counts.borrowed.Add(1)
		p.counts.borrowedBytes.Add(n)
	}
	return bytes
}

func (p *Port) Reach(id uint32, offset, n uint64, write bool) []byte {
	// After inUse is set: what is in the table now is not unmapped.
	t := *p.loan.theirs.Load()
	for i := range t {
		// A frame of a session that has ended means nothing of the peer that has
		// come since. Before the first frame there is no session here.
		if b := &t[i]; b.id == id && (b.of == p.session || p.session == nil) {
			if size := uint64(len(b.mem)); offset > size || n > size-offset || write && !b.write {
				return nil
			}
			return b.mem[offset : offset+n : offset+n]
		}
	}
	return nil
}

func (p *Port) Return() (valid bool) {
	if !p.borrowed {
		return true
	}
	atomicmem.LoadBarrier() // what was borrowed has been read
	valid = p.session != nil && !p.Rx.Revoked()
	if !valid {
		p.counts.revoked.Add(1)
	}
	p.giveBack()
	return valid
}

// giveBack ends the use of what was borrowed.
func (p *Port) giveBack() {
	p.borrowed = false
	p.endUse()
}

// endUse ends the use of the peer's memory.
func (p *Port) endUse() {
	atomicmem.Store32(&p.loan.inUse, 0)
	if p.loan.waiting.Load() {
		select {
		case p.loan.idle <- struct{}{}:
		default:
		}
	}
}

// takeOffer maps what the peer exports.
func (p *Port) takeOffer(s *session, m message, fd int) error {
	t := *p.loan.theirs.Load()
	switch {
	case len(t) >= maxExports:
		return broken("number of exports", uint64(len(t))+1, fmt.Sprintf("at most %d", maxExports))
	case m.c&^exportWritable != 0 || m.c != 0 && !s.writes:
		return broken("flags of an export", m.c, "0, or 1 if both let the other write")
	case slices.ContainsFunc(t, func(b borrowed) bool { return b.id == m.id }):
		return broken("number of an export", uint64(m.id), "a new one")
	}
	answer := message{kind: kindExported, id: m.id}
	b, err := mapOffer(s, m, fd)
	if err != nil {
		errno := unix.EINVAL
		errors.As(err, &errno)
		answer.a = uint64(errno)
	} else {
		t = append(slices.Clone(t), b)
		p.loan.theirs.Store(&t)
	}
	return s.conn.send(answer)
}

func mapOffer(s *session, m message, fd int) (borrowed, error) {
	offset, n := m.a, m.b
	if n == 0 || n > math.MaxInt || offset > math.MaxInt64 || offset%uint64(os.Getpagesize()) != 0 {
		return borrowed{}, fmt.Errorf("%w: %#x bytes at %#x", ErrMemory, n, offset)
	}
	whole, err := checkFile(fd, unix.F_SEAL_SHRINK, offset+n)
	if err != nil {
		return borrowed{}, err
	}
	flags := 0
	if whole {
		// The pages are there: reading shall not stop for each of them.
		flags = unix.MAP_POPULATE
	}
	write, protection := m.c&exportWritable != 0, unix.PROT_READ
	if write {
		protection |= unix.PROT_WRITE
	}
	memory, err := mapFile(fd, int64(offset), int(n), protection, flags)
	if err != nil {
		return borrowed{}, err
	}
	return borrowed{s, m.id, memory, memory.mem, write}, nil
}

// takeBack unmaps what the peer exports no more.
func (p *Port) takeBack(s *session, m message) error {
	t := *p.loan.theirs.Load()
	if i := slices.IndexFunc(t, func(b borrowed) bool { return b.id == m.id }); i >= 0 {
		old := t[i].memory
		t = slices.Delete(slices.Clone(t), i, i+1)
		p.loan.theirs.Store(&t)
		if err := p.unmapUnused([]*mapping{old}); err != nil {
			return err
		}
	}
	return s.conn.send(message{kind: kindUnexported, id: m.id})
}

// errInUse: a reader of the peer's memory takes too long.
var errInUse = errors.New("the peer's memory is in use")

// unmapUnused unmaps the peer's memory, which is in no table any more, once the
// data path does not read it.
func (p *Port) unmapUnused(m []*mapping) error {
	l := &p.loan
	l.stuck = append(l.stuck, m...)
	l.waiting.Store(true)
	defer l.waiting.Store(false)
	// Its end may be seen here before waiting is seen there: so this looks again and again.
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	for end := time.Now().Add(lendTime); atomic.LoadUint32(&l.inUse) != 0; {
		select {
		case <-l.idle:
		case now := <-tick.C:
			if now.After(end) {
				return errInUse
			}
		case <-p.ctx.Done():
			return vfio.ErrClosed
		}
	}
	for _, n := range l.stuck {
		n.unmap()
	}
	l.stuck = nil
	return nil
}

// endLoans gives up what was lent and borrowed in a session that has ended.
func (p *Port) endLoans() {
	p.mu.Lock()
	for _, e := range p.offers {
		e.seen = false
	}
	p.listLent()
	p.mu.Unlock()
	var old []*mapping
	for _, b := range *p.loan.theirs.Swap(new([]borrowed)) {
		old = append(old, b.memory)
	}
	if t := p.theirTable.Load(); t != nil {
		old = append(old, t.memory)
	}
	// What is still in use stays mapped until a later try, or until the port is
	// collected.
	_ = p.unmapUnused(old)
}
