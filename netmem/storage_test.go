package netmem

import (
	"math"
	"os"
	"testing"

	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
)

// MemoryDir makes a folder in memory, where there is one, for files that need not outlive the system.
func MemoryDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "trapeze-netmem-*")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		if err := os.RemoveAll(dir); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// TestWrap: no write makes a version smaller, and unwritten is not a version.
func TestWrap(t *testing.T) {
	const last = math.MaxUint64
	for name, q := range map[string]protocol.Request{
		"older":     {Condition: protocol.IfOlder, Next: last},
		"older, 0":  {Condition: protocol.IfOlder},
		"expected":  {Condition: protocol.IfExpected, Expected: last, Next: 1},
		"no change": {Condition: protocol.IfExpected, Expected: 5, Next: 5},
	} {
		s := storage{pages: []stamp{{version: last, client: 1}}}
		q.Length = MinPage
		result := checkWrite(&q, MinPage, MinPage)
		if result == protocol.OK {
			_, result = s.next(&q)
		}
		if result == protocol.OK {
			t.Errorf("%s was not refused at the largest version", name)
		}
	}
	s := storage{base: 7, pages: []stamp{{version: last, client: 1}, {}}}
	if r := s.of(0); r.Version != last || r.Flags&protocol.Unwritten != 0 {
		t.Errorf("the page is %+v", r)
	}
	if r := s.of(1); r.Version != 7 || r.Flags != protocol.Unwritten {
		t.Errorf("the page that was never written is %+v", r)
	}
}

// TestAdopt: a server takes newer epochs of its pool, and has nothing once it is let in anew.
func TestAdopt(t *testing.T) {
	d := newDirect(t, "a")
	s := d.server("a")
	adopt := func(r protocol.Record, since uint64, joining bool) protocol.Result {
		q := protocol.Request{Operation: protocol.Adopt}
		q.SetRecord(r, since, joining)
		return s.adopt(&q, &protocol.Reply{})
	}
	pool := func(epoch uint64) protocol.Record {
		return protocol.Record{Pool: 1, Epoch: epoch, Base: 5, Members: 9}
	}
	put := func() {
		var r protocol.Reply
		s.storage.write(&protocol.Request{Operation: protocol.Write, Condition: protocol.IfOlder, Length: MinPage, Next: 100}, &r, make([]byte, MinPage))
	}
	for _, step := range []struct {
		what    string
		record  protocol.Record
		since   uint64
		joining bool
		want    protocol.Result
		stored  uint64
	}{
		{"no pool", protocol.Record{}, 1, false, protocol.BadRequest, 0},
		{"no epoch", protocol.Record{Pool: 1}, 1, false, protocol.BadRequest, 0},
		{"the first", pool(2), 1, false, protocol.OK, 0},
		{"once more", pool(2), 1, false, protocol.OK, MinPage},
		{"an older one", pool(1), 1, false, protocol.OtherEpoch, MinPage},
		{"another pool", protocol.Record{Pool: 2, Epoch: 7, Members: 9}, 1, false, protocol.OtherPool, MinPage},
		{"other servers", protocol.Record{Pool: 1, Epoch: 7, Members: 8}, 1, false, protocol.OtherPool, MinPage},
		{"a newer one", pool(3), 1, false, protocol.OK, MinPage},
		{"let in anew", pool(5), 4, true, protocol.OK, 0},
		{"and still", pool(6), 4, true, protocol.OK, MinPage},
		{"a member again", pool(7), 4, false, protocol.OK, MinPage},
	} {
		if got := adopt(step.record, step.since, step.joining); got != step.want || s.storage.stored() != step.stored {
			t.Errorf("%s: %v, not %v, and %d bytes are stored, not %d", step.what, got, step.want, s.storage.stored(), step.stored)
		}
		if step.want == protocol.OK {
			put()
		}
	}
	if len(s.storage.free) != len(s.storage.lent)-2 { // that of zeros, and of the page
		t.Errorf("%d frames are free of %d", len(s.storage.free), len(s.storage.lent))
	}
}
