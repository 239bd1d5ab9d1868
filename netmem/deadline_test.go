package netmem_test

import (
	"bytes"
	"errors"
	"net"
	"os"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/netmem"
)

// TestDeadline: while a server says nothing, calls end at the deadline and not at the timeout;
// what was written stays in the cache, and is on the server once that answers and there is no
// deadline any more.
func TestDeadline(t *testing.T) {
	const page, pages = 4096, 64
	nics, plugs := onSwitch(t, 2)
	r := &rig{TB: t, near: nics[0], far: nics[1]}
	s := r.serve(netmem.ServerOptions{Page: page, Size: page * pages})
	c := r.open(netmem.Options{Cache: 16 * page, ReadAhead: -1, Timeout: time.Hour, Workers: 1}, s)
	want := randomBytes(1, page*16)
	r.write(c, want[:8*page], 0)
	r.sync(c)
	r.read(c, page, 40*page)
	r.write(c, want, 0) // all frames are dirty
	plugs[1].SetLink(false)
	for name, call := range map[string]func() error{
		"read of a page that is missed":     func() error { _, err := c.ReadAt(make([]byte, page), 50*page); return err },
		"write of a part of one":            func() error { _, err := c.WriteAt([]byte("part"), 51*page); return err },
		"write of one, which needs a frame": func() error { _, err := c.WriteAt(make([]byte, page), 52*page); return err },
		"sync":                              c.Sync,
	} {
		if err := c.SetDeadline(time.Now().Add(100 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		if err := call(); !errors.Is(err, os.ErrDeadlineExceeded) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := c.ReadAt(make([]byte, 1), 0); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a read of what is in the cache, after the deadline: %v", err)
	}
	if err := c.SetDeadline(time.Time{}); err != nil {
		t.Fatal(err)
	}
	if got := r.read(c, 4*page, 0); !bytes.Equal(got, want[:4*page]) {
		t.Error("the cache has other bytes than were written")
	}
	plugs[1].SetLink(true)
	r.sync(c)
	other := r.open(netmem.Options{}, s)
	if got := r.read(other, len(want), 0); !bytes.Equal(got, want) {
		t.Error("the server has other bytes than were written")
	}
	r.close(c)
	if err := c.SetDeadline(time.Now()); !errors.Is(err, net.ErrClosed) {
		t.Errorf("a closed client: %v", err)
	}
}
