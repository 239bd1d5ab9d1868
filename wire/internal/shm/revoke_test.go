package shm_test

import (
	"context"
	"errors"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/ci/kit/waittest"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// header is what frames carry beside their payload.
const header = datasheet.HeaderSize

// lentFrame sends an empty frame, for which something is lent in these tests.
func lentFrame(t testing.TB, p *shm.Port) {
	t.Helper()
	must.Be(t, p.Reserve(header) == nil, false, "no room")
	p.Commit()
	p.Flush()
}

// valid takes a frame, reads what was lent for it, and says what Return says.
func valid(t testing.TB, p *shm.Port, id uint32) bool {
	t.Helper()
	must.Be(t, p.Receive() == nil, false, "no frame")
	defer p.Release()
	must.Be(t, p.Borrow(id, 0, page) == nil, false, "it cannot be borrowed")
	return p.Return()
}

// TestRevoke: a loan is void for the frames before it was revoked, read or not,
// and for no other.
func TestRevoke(t *testing.T) {
	checkLeaks(t)
	a, b, id, _ := lending(t, shm.Options{Share: true, Ring: shm.MinRing, MTU: 4096}, page)
	a.Revoke(0) // nothing has been sent yet
	should.Be(t, b.Return(), true, "nothing was borrowed, and yet is void")
	for round := range 2000 { // of more frames than the ring has words
		for range 3 {
			lentFrame(t, a)
		}
		must.Be(t, valid(t, b, id), true, "round %d: void before it was revoked", round)
		a.Revoke(0)
		lentFrame(t, a)
		for range 2 {
			must.Be(t, valid(t, b, id), false, "round %d: good after it was revoked", round)
		}
		must.Be(t, valid(t, b, id), true, "round %d: void though it was lent later", round)
	}
	// While it is being read.
	lentFrame(t, a)
	b.Receive()
	b.Borrow(id, 0, page)
	a.Revoke(0)
	should.Be(t, b.Return(), false, "good though it was revoked in the middle")
	should.Be(t, b.Return(), true, "given back, and yet void")
	b.Release()
	s := b.Stats()
	should.Hold(t, s.Borrowed == 4*2000+1 && s.BorrowedBytes == page*s.Borrowed && s.Revoked == 2*2000+1, "%+v", s)
	if n := a.Stats().Lent; n == 0 {
		t.Error("nothing is counted as lent")
	}
}

// TestRevokeAtTheEnd: what was lent in a session that one side has left is void at
// the other, which may not know yet.
func TestRevokeAtTheEnd(t *testing.T) {
	checkLeaks(t)
	a, b, id, _ := lending(t, shm.Options{Share: true}, page)
	lentFrame(t, a)
	must.Be(t, b.Receive() == nil || b.Borrow(id, 0, page) == nil, false, "nothing has come")
	// Its data path has not run since.
	must.OK(t, a.Close())
	should.Be(t, b.Return(), false, "good after the lender has gone")
	b.Release()
	a.Revoke(0) // nobody is there
}

// TestBorrowOverSessions: a frame of a peer that is gone refers to nothing of the
// one that has come in its place.
func TestBorrowOverSessions(t *testing.T) {
	checkLeaks(t)
	path := socket(t)
	b := open(t, shm.Options{Path: path, Role: shm.RoleListen, Share: true})
	var ids [2]uint32
	for i := range ids {
		a := open(t, shm.Options{Path: path, Role: shm.RoleConnect, Share: true})
		fd, mem := lendable(t, page)
		ids[i] = must.Get(a.Export(fd, 0, mem))(t)
		lentAt(t, a, mem)
		if i == 1 {
			break
		}
		lentFrame(t, a)
		must.Be(t, b.Receive() == nil || b.Borrow(ids[i], 0, 1) == nil, false, "nothing has come")
		b.Return()
		closePort(t, a)
		waittest.Until(t, "link down", func() bool { return !b.LinkUp() })
	}
	must.Be(t, ids[0], ids[1], "regions")
	should.Be(t, b.Borrow(ids[0], 0, 1) != nil, false, "an old frame refers to the memory of a new peer")
	b.Release()
	b.Receive()
	should.Be(t, b.Borrow(ids[1], 0, 1) == nil, false, "the new peer's memory cannot be borrowed")
	b.Return()
}

// TestVoidWords: a peer that writes nonsense about its loans harms nobody but
// itself.
func TestVoidWords(t *testing.T) {
	checkLeaks(t)
	p, r := withRaw(t, shm.Options{Share: true}, flagShare)
	fd, _ := lendable(t, page)
	r.send(msgExport, 9, 0, page, 0, fd)
	if id, errno, _, _, _ := r.readUntil(msgExported); id != 9 || errno != 0 {
		t.Fatalf("region %d, errno %d", id, errno)
	}
	const before, all = 1 << 32, 1 << 33
	for i, tt := range []struct {
		void  uint64
		valid bool
	}{
		{0, true}, {1, true}, {before, true}, {before | 3, true}, {before | 5, false}, {before | 5, true}, {before | 7, false},
		{before | 0xffffffff, true}, {all, false}, {^uint64(0), false}, {1 << 63, true}, {before | 12, false}, {before | 1<<31, true},
	} {
		r.poke(r.framesAt()+r.ring+256, tt.void)
		r.put(i, header, header, 1)
		should.Be(t, valid(t, p, 9), tt.valid, "frame %d, word %#x: valid", i, tt.void)
	}
	if s := p.Stats(); s.Violations != 0 || !p.LinkUp() {
		t.Errorf("%+v", s)
	}
}

// unexportUnanswered: a peer that does not give memory back is disconnected, and what it reads is void
// by the time when Unexport gives up.
func unexportUnanswered(t *testing.T) {
	p, r := withRaw(t, shm.Options{Share: true}, flagShare)
	fd, mem := lendable(t, page)
	id := must.Get(p.Export(fd, 0, mem))(t)
	_, _, _, _, got := r.readUntil(msgExport)
	unix.Close(got)
	r.send(msgExported, id, 0, 0, 0)
	lentAt(t, p, mem)
	void := func() byte { return r.theirs[256+4] }
	must.Be(t, void(), 0, "loans are void from the start")
	if err := p.Unexport(id); !errors.Is(err, shm.ErrMemory) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("error %v", err)
	}
	waittest.Until(t, "disconnected", func() bool { return !p.LinkUp() })
	should.Be(t, void(), 2, "the word")
}
