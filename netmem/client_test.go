package netmem_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/via"
)

// smallCache has room for 16 pages of 4 KiB.
var smallCache = netmem.Options{Cache: 16 * 4096}

func TestReadsWhatWasWritten(t *testing.T) {
	for name, o := range map[string]struct {
		page int
		netmem.Options
	}{
		"4 KiB":          {4 << 10, smallCache},
		"64 KiB":         {64 << 10, netmem.Options{Cache: 1 << 20}},
		"nothing ahead":  {8 << 10, netmem.Options{Cache: 16 * 8192, ReadAhead: -1}},
		"a small window": {4 << 10, netmem.Options{Cache: 16 * 4096, ReadAhead: 8192}},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, emulator.PairOptions{})
			s := r.serve(netmem.ServerOptions{Page: o.page, Size: 3<<20 + 1})
			c := r.open(o.Options, s)
			if c.Size() != 3<<20+int64(o.page) || c.Page() != o.page {
				t.Fatalf("%d bytes by pages of %d", c.Size(), c.Page())
			}
			want := make([]byte, c.Size())
			put := func(b []byte, off int64) {
				r.write(c, b, off)
				copy(want[off:], b)
			}
			put(randomBytes(1, 1<<20), 12345)
			put(randomBytes(2, 1), c.Size()-1)
			put(randomBytes(3, 200_000), 1<<21)
			put(randomBytes(4, 2*o.page), int64(o.page))
			must.Same(t, r.read(c, len(want), 0), want, "read other bytes than were written")
			r.close(c)
			again := r.open(o.Options, s)
			must.Same(t, r.read(again, 70_001, 1<<20-5), want[1<<20-5:][:70_001], "another client reads other bytes")
			must.Same(t, r.read(again, len(want), 0), want, "another client reads other bytes, all at once")
			st := s.Stats()
			if st.Stored == 0 || st.Stored > 2<<20 || st.Capacity != uint64(again.Size()) || st.Clients != 1 || st.BytesIn < 1<<20 {
				t.Errorf("stats of the server: %+v", st)
			}
			if st := again.Stats(); st.Misses == 0 || o.ReadAhead >= 0 && st.Ahead == 0 || st.Median <= 0 || st.P99 < st.Median {
				t.Errorf("stats of the client: %+v", st)
			}
			if o.ReadAhead < 0 {
				return
			}
			// Who takes his time finds what was read ahead.
			slow := r.open(o.Options, s)
			for off := 0; slow.Stats().AheadUsed == 0; off += o.page {
				if off >= len(want) {
					t.Fatalf("nothing that was read ahead was used: %+v", slow.Stats())
				}
				r.read(slow, o.page, int64(off))
				time.Sleep(time.Millisecond)
			}
		})
	}
}

func TestEdges(t *testing.T) {
	r := newRig(t, emulator.PairOptions{})
	s := r.serve(netmem.ServerOptions{Page: 4096, Size: 8 * 4096})
	c := r.open(smallCache, s)
	r.write(c, []byte("end"), 8*4096-3)
	b := make([]byte, 10)
	if n, err := c.ReadAt(b, 8*4096-3); n != 3 || err != io.EOF || string(b[:3]) != "end" {
		t.Errorf("%d, %v, %q", n, err, b[:n])
	}
	for _, off := range []int64{8 * 4096, 1 << 62} {
		if n, err := c.ReadAt(b, off); n != 0 || err != io.EOF {
			t.Errorf("read at %d: %d, %v", off, n, err)
		}
	}
	should.Refuse(c.ReadAt(b, -1))(t, netmem.ErrOutside)
	for _, off := range []int64{-1, 8*4096 - 9, 1 << 62} {
		should.Refuse(c.WriteAt(b, off))(t, netmem.ErrOutside, "write at %d", off)
	}
	should.Give(c.ReadAt(nil, 5))(t, 0)
	r.close(c)
	for what, err := range map[string]error{
		"read": second(c.ReadAt(b, 0)), "write": second(c.WriteAt(b, 0)), "sync": c.Sync(),
	} {
		should.Fail(t, err, net.ErrClosed, "%s after the end", what)
	}
	should.OK(t, c.Close())
}

func second(_ int, err error) error { return err }

func TestReadOnly(t *testing.T) {
	r := newRig(t, emulator.PairOptions{})
	s := r.serve(netmem.ServerOptions{Size: 1 << 20, ReadOnly: true})
	c := r.open(netmem.Options{}, s)
	should.Refuse(c.WriteAt([]byte("x"), 0))(t, netmem.ErrReadOnly)
	should.Same(t, r.read(c, 100, 0), make([]byte, 100), "it reads other than zeros")
}

// TestFull: a server that lends less than its addresses reach takes no more pages than it
// has memory for, and what was written before stays.
func TestFull(t *testing.T) {
	r := newRig(t, emulator.PairOptions{})
	s := r.serve(netmem.ServerOptions{Page: 4096, Size: 8 * 4096, Span: 64 * 4096})
	c := r.open(smallCache, s)
	page := randomBytes(1, 4096)
	for i := range int64(8) {
		r.write(c, page, i*4096)
	}
	r.sync(c)
	r.write(c, page, 20*4096)
	should.Fail(t, c.Sync(), netmem.ErrFull, "the ninth page")
	c.Drop()
	r.write(c, page[:100], 4096) // there is always room for a page that is there
	should.Same(t, r.read(c, 8*4096, 0), bytes.Repeat(page, 8), "what was there is gone")
	should.Fail(t, c.Close(), netmem.ErrFull, "close with a page that has no place")
}

func TestOptions(t *testing.T) {
	r := newRig(t, emulator.PairOptions{})
	for name, o := range map[string]netmem.ServerOptions{
		"Size": {}, "Page": {Size: 1, Page: 5000}, "Span": {Size: 1, Span: -1},
	} {
		_, err := netmem.NewServer(t.Context(), r.far, o)
		should.Fail(t, err, netmem.ErrOption, "server, %s", name)
		should.Contain(t, fmt.Sprint(err), name)
	}
	s := r.serve(netmem.ServerOptions{Name: "a", Size: 1 << 20})
	for name, o := range map[string]netmem.Options{
		"Copies": {Copies: 2}, "Cache": {Cache: 1}, "Timeout": {Timeout: -1},
	} {
		_, err := r.tryOpen(o, s)
		should.Fail(t, err, netmem.ErrOption, "client, %s", name)
		should.Contain(t, fmt.Sprint(err), name)
	}
	two := []string{s.Address().String(), s.Address().String() + "2"}
	should.Refuse(netmem.Open(t.Context(), r.near, two, netmem.Options{Copies: 2}))(t, netmem.ErrOption, "copies without a store")
	should.Refuse(r.tryOpen(netmem.Options{}, s, s))(t, netmem.ErrOption, "one server twice")
	should.Refuse(r.tryOpen(netmem.Options{}))(t, netmem.ErrOption, "no server")
	other := r.serve(netmem.ServerOptions{Name: "b", Size: 2 << 20})
	should.Refuse(r.tryOpen(netmem.Options{}, s, other))(t, netmem.ErrOption, "servers of two sizes")
}

// TestManyGoroutines: readers and writers of one client, each with its own part of every
// page, on a cache that is far too small.
func TestManyGoroutines(t *testing.T) {
	const pages, page, share = 64, 4096, 512
	r := newRig(t, emulator.PairOptions{})
	s := r.serve(netmem.ServerOptions{Page: page, Size: pages * page})
	c := r.open(smallCache, s)
	var wait sync.WaitGroup
	for g := range page / share {
		wait.Go(func() {
			for round := range 3 {
				for i := range pages {
					off := int64(i*page + g*share)
					want := bytes.Repeat([]byte{byte(g<<4 + round)}, share)
					if _, err := c.WriteAt(want, off); err != nil {
						t.Error(err)
						return
					}
					got := make([]byte, share)
					if _, err := c.ReadAt(got, off); err != nil || !bytes.Equal(got, want) {
						t.Errorf("page %d, goroutine %d, round %d: %v", i, g, round, err)
						return
					}
				}
			}
		})
	}
	wait.Wait()
	r.close(c)
	again := r.open(smallCache, s)
	got := r.read(again, pages*page, 0)
	for i, b := range got {
		must.Be(t, b, byte(i%page/share<<4+2), "byte %d", i)
	}
}

// TestAddresses: an address may be written in several ways, and stands for the same server; one
// that is none is named by the error, and nothing is connected.
func TestAddresses(t *testing.T) {
	r := newRig(t, emulator.PairOptions{})
	s := r.serve(netmem.ServerOptions{Name: "a", Size: 1 << 20})
	want := []byte("the same bytes")
	c := r.open(netmem.Options{}, s)
	r.write(c, want, 0)
	r.close(c)
	mac := s.Address().MAC.String()
	for _, address := range []string{mac + "/a", strings.ToUpper(mac) + "/a", mac + `/"a"`} {
		c := must.Get(netmem.Open(t.Context(), r.near, []string{address}, netmem.Options{}))(t)
		if got := r.read(c, len(want), 0); string(got) != string(want) || c.Stats().Servers[0].Address != s.Address().String() {
			t.Errorf("%s: %q, %+v", address, got, c.Stats().Servers)
		}
		r.close(c)
	}
	for _, address := range []string{"", mac + `/"a`, "02:00:00:00:00:zz/a", mac + "/" + strings.Repeat("a", via.MaxDiscriminator+1)} {
		_, open := netmem.Open(t.Context(), r.near, []string{address}, netmem.Options{})
		_, source := netmem.OpenSource(t.Context(), r.near, []string{address}, netmem.Options{})
		_, ask := netmem.Ask(t.Context(), r.near, address, time.Minute)
		for what, err := range map[string]error{"open": open, "open source": source, "ask": ask} {
			if !errors.Is(err, netmem.ErrOption) || !strings.Contains(err.Error(), strconv.Quote(address)) {
				t.Errorf("%s %q: %v", what, address, err)
			}
		}
	}
}
