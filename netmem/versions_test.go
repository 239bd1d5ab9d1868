package netmem_test

import (
	"bytes"
	"errors"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/netmem/internal/protocol"
)

// TestConflict: a page that another client has written meanwhile is not overwritten, and
// is read anew.
func TestConflict(t *testing.T) {
	r := newRig(t, emulator.PairOptions{})
	s := r.serve(netmem.ServerOptions{Page: 4096, Size: 1 << 20})
	a, b := r.open(smallCache, s), r.open(smallCache, s)
	r.write(a, []byte("first"), 0)
	r.sync(a)
	r.read(b, 5, 0) // b has the page now
	r.write(a, []byte("newer"), 0)
	r.sync(a)
	should.Be(t, string(r.read(b, 5, 0)), "first", "b's cache")
	r.write(b, []byte("X"), 1)
	r.write(b, []byte("other page"), 8192)
	err := b.Sync()
	var conflict *netmem.ConflictError
	if !errors.As(err, &conflict) || conflict.Page != 0 || conflict.Found <= conflict.Base {
		t.Fatalf("a write to a page of another client: %v", err)
	}
	r.sync(b)
	should.Be(t, string(r.read(b, 5, 0)), "newer", "b reads")
	a.Drop()
	should.Be(t, string(r.read(a, 10, 8192)), "other page", "a reads")
	// Whoever overwrites a page as a whole builds on nothing: the last one wins.
	r.write(a, bytes.Repeat([]byte{1}, 4096), 0)
	r.write(b, bytes.Repeat([]byte{2}, 4096), 4096)
	r.sync(a)
	r.sync(b)
	should.Be(t, b.Stats().Conflicts, 1, "conflicts")
}

// TestConflictOnEviction: an error of a page that left the cache is not forgotten.
func TestConflictOnEviction(t *testing.T) {
	r := newRig(t, emulator.PairOptions{})
	s := r.serve(netmem.ServerOptions{Page: 4096, Size: 1 << 20})
	a, b := r.open(smallCache, s), r.open(smallCache, s)
	r.read(b, 5, 0)
	r.write(a, []byte("newer"), 0)
	r.sync(a)
	r.write(b, []byte("older"), 0)
	for i := range int64(64) {
		r.read(b, 1, 4096*(i*3%64+1)) // the page has to go
	}
	r.until("the page to go", func() bool { return b.Stats().Conflicts == 1 })
	should.Fail(t, b.Close(), netmem.ErrConflict, "close")
}

// TestOtherPool: servers that have been used apart are not used together.
func TestOtherPool(t *testing.T) {
	r := newRig(t, emulator.PairOptions{})
	a := r.serve(netmem.ServerOptions{Name: "a", Size: 1 << 20})
	b := r.serve(netmem.ServerOptions{Name: "b", Size: 1 << 20})
	r.close(r.open(netmem.Options{}, a))
	r.close(r.open(netmem.Options{}, b))
	should.Refuse(r.tryOpen(netmem.Options{}, a, b))(t, netmem.ErrOtherPool, "servers of two pools")
}

// TestLastVersion: a page whose version is the largest is not written again, and none wraps.
func TestLastVersion(t *testing.T) {
	const page = 4096
	r := newRig(t, emulator.PairOptions{})
	s := r.serve(netmem.ServerOptions{Page: page, Size: 4 * page})
	good := r.open(netmem.Options{Cache: 8 * page, Timeout: 30 * time.Second}, s)
	r.write(good, []byte("good"), 0)
	r.sync(good)
	k := r.caller(s)
	ask := func(c protocol.Condition, expected, next uint64) protocol.Reply {
		return k.ask(protocol.Request{Operation: protocol.Write, Condition: c, Length: page, Page: 0, Expected: expected, Next: next, Client: 5, Epoch: 1, Incarnation: k.incarnation}, page)
	}
	const last = 1<<64 - 2
	if r := ask(protocol.IfOlder, 0, last); r.Result != protocol.OK || r.Version != last {
		t.Fatalf("%v, version %d", r.Result, r.Version)
	}
	for what, r := range map[string]protocol.Reply{
		"if expected": ask(protocol.IfExpected, last, last+1),
		"if older":    ask(protocol.IfOlder, 0, last+1),
	} {
		should.Be(t, r.Result, protocol.VersionLimit, "%s: version %d", what, r.Version)
	}
	stamps := k.ask(protocol.Request{Operation: protocol.Stamps, Length: protocol.StampSize, Epoch: 1, Incarnation: k.incarnation}, 0)
	if st := protocol.StampAt(k.memory.Bytes()[netmem.MaxPage:]); stamps.Result != protocol.OK || st.Version != last || st.Flags&protocol.Unwritten != 0 {
		t.Errorf("after all: %v, %+v", stamps.Result, st)
	}
	good.Drop()
	r.write(good, []byte("x"), 1)
	should.Fail(t, good.Sync(), netmem.ErrVersionLimit, "a write of a page with the last version")
}
