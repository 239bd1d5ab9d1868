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
		"always":   {Condition: protocol.Always, Next: 5},
		"older":    {Condition: protocol.IfOlder, Next: last},
		"expected": {Condition: protocol.IfExpected, Expected: last, Next: 1},
	} {
		s := stamps{pages: []stamp{{version: last, client: 1, state: written}}}
		q.Length = MinPage
		result := checkWrite(&q, MinPage, MinPage)
		if result == protocol.OK {
			_, result = s.next(&q)
		}
		if result == protocol.OK {
			t.Errorf("%s was not refused at the largest version", name)
		}
		s = stamps{base: last, pages: make([]stamp, 1)}
		if _, result := s.next(&protocol.Request{Condition: protocol.Always}); result != protocol.VersionLimit {
			t.Errorf("always on a base of the largest version: %v", result)
		}
	}
	s := stamps{pages: []stamp{{version: last, client: 1, state: written}}}
	if p, result := s.next(&protocol.Request{Condition: protocol.Exactly, Next: 3, Client: 9}); result != protocol.OK || p.version != 3 || p.client != 9 {
		t.Errorf("exactly: %+v, %v", p, result)
	}
	if r := s.of(0); r.Version != last || r.Flags&protocol.Unwritten != 0 {
		t.Errorf("the page is %+v", r)
	}
}

// TestFresh: a repair does not overwrite what a client has written in the same join.
func TestFresh(t *testing.T) {
	s := stamps{pages: make([]stamp, 1)}
	put := func(c protocol.Condition, next uint64) protocol.Result {
		p, result := s.next(&protocol.Request{Condition: c, Next: next})
		if result == protocol.OK {
			s.pages[0] = p
		}
		return result
	}
	s.joins++
	if put(protocol.IfOlder, 10) != protocol.OK || s.of(0).Flags&protocol.Fresh == 0 {
		t.Fatal("a write did not make the page fresh")
	}
	if put(protocol.Exactly, 10) != protocol.VersionConflict || put(protocol.Exactly, 9) != protocol.VersionConflict || put(protocol.Exactly, 11) != protocol.OK {
		t.Fatal("a fresh page is only overwritten by a newer one")
	}
	s.joins++
	if s.of(0).Flags&protocol.Fresh != 0 || put(protocol.Exactly, 2) != protocol.OK || s.of(0).Flags&protocol.Fresh != 0 {
		t.Fatal("the next join remembers the last one")
	}
}
