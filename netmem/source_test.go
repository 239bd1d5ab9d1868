package netmem_test

import (
	"bytes"
	"io"
	"math"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
)

// sourceOfTwo: pages move between servers and memory, by their places there, with versions,
// and survive the death of one server.
func sourceOfTwo(t *testing.T) {
	const page = 8192
	r := newRigBesides(t, emulator.PairOptions{})
	a := r.serve(netmem.ServerOptions{Name: "a", Page: page, Size: 16 * page})
	b := r.serve(netmem.ServerOptions{Name: "b", Page: page, Size: 16 * page})
	servers := []string{a.Address().String(), b.Address().String()}
	var s netmem.PageSource
	r.until("the source opens in time", func() bool { // not at once where the machine is busy
		var err error
		s, err = netmem.OpenSource(t.Context(), r.near, servers, netmem.Options{Copies: 2, Store: &r.store, Timeout: cutTimeout})
		return err == nil
	})
	defer func() {
		should.OK(t, s.(io.Closer).Close())
	}()
	if s.Size() != 16*page || s.PageSize() != page {
		t.Errorf("%d bytes by pages of %d", s.Size(), s.PageSize())
	}
	should.Refuse(s.ReadPage(t.Context(), 0, 0))(t, netmem.ErrOutside, "read without memory")
	m, err := s.Alloc(4 * page)
	if err != nil || len(m) != 4*page {
		t.Fatal(len(m), err)
	}
	if _, err := s.Alloc(page); err == nil {
		t.Error("memory was made twice")
	}
	first, err := s.ReadPage(t.Context(), 5, page)
	if err != nil || !bytes.Equal(m[page:2*page], make([]byte, page)) {
		t.Fatalf("a page that nobody has written: %v", err)
	}
	content := randomBytes(1, page)
	copy(m[2*page:], content)
	second, err := s.WritePage(t.Context(), 5, 2*page, first)
	if err != nil || second <= first {
		t.Fatalf("version %d after %d: %v", second, first, err)
	}
	other := r.open(netmem.Options{Copies: 2}, a, b)
	r.write(other, []byte("other"), 5*page)
	r.sync(other)
	should.Refuse(s.WritePage(t.Context(), 5, 2*page, second))(t, netmem.ErrConflict, "a page that another client has written")
	r.kill(a)
	if _, err := s.ReadPage(t.Context(), 5, 0); err != nil || !bytes.Equal(m[:page], append([]byte("other"), content[5:]...)) {
		t.Errorf("from the other server: %v", err)
	}
	for _, c := range []struct {
		page uint64
		at   int
	}{{math.MaxUint64, 0}, {16, 0}, {0, -1}, {0, 3*page + 1}} {
		should.Refuse(s.ReadPage(t.Context(), c.page, c.at))(t, netmem.ErrOutside, "read page %d to %d", c.page, c.at)
		should.Refuse(s.WritePage(t.Context(), c.page, c.at, 0))(t, netmem.ErrOutside, "write page %d from %d", c.page, c.at)
	}
}
