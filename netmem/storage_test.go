package netmem

import (
	"os"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
)

// MemoryDir makes a folder in memory, where there is one, for files that need not outlive the system.
func MemoryDir(t testing.TB) string {
	dir, err := os.MkdirTemp("/dev/shm", "trapeze-netmem-*")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() {
		should.OK(t, os.RemoveAll(dir))
	})
	return dir
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
	should.Be(t, len(s.storage.free), len(s.storage.lent)-2, "frames are free of %d", len(s.storage.lent)) // that of zeros, and of the page
}
