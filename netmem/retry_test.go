package netmem_test

import (
	"bytes"
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/ring"
	"github.com/trapeze-nic/trapeze/via"
)

// frame is registered memory for one page.
func (r *rig) frame(page int) ring.Frame {
	r.Helper()
	m, err := r.near.Alloc(r.Context(), page, via.MemoryAttributes{})
	if err != nil {
		r.Fatal(err)
	}
	return ring.Frame{Memory: m, Length: page}
}

// reconnect: a call that has time left waits for the only server, which is cut off meanwhile,
// to read and to write; one that has none left names the page.
func reconnect(t *testing.T) {
	const page = 4096
	nics, plugs := onSwitch(t, 2)
	r := &rig{TB: t, near: nics[0], far: nics[1]}
	s := r.serve(netmem.ServerOptions{Page: page, Size: 64 * page})
	c := r.open(netmem.Options{Cache: 16 * page, Timeout: cutTimeout, ReadAhead: -1}, s)
	content := randomBytes(1, page)
	r.write(c, content, 3*page)
	r.sync(c)
	frame := r.frame(page)
	cutOff := func() {
		plugs[1].SetLink(false)
		r.until("the client to notice", func() bool {
			short, cancel := context.WithTimeout(t.Context(), 3*cutTimeout)
			defer cancel()
			_, err := c.Fetch(short, 3, frame)
			return errors.Is(err, netmem.ErrUnavailable) && !c.Stats().Servers[0].Connected
		})
	}
	for name, call := range map[string]func(context.Context) error{
		"fetch": func(ctx context.Context) error { _, err := c.Fetch(ctx, 3, frame); return err },
		"store": func(ctx context.Context) error {
			// The version is none of the page, so that the server refuses it.
			_, err := c.Store(ctx, 3, 1, frame)
			if errors.Is(err, netmem.ErrConflict) {
				return nil
			}
			return errors.Join(err, errors.New("no conflict"))
		},
	} {
		t.Run(name, func(t *testing.T) {
			cutOff()
			short, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			var e *netmem.Error
			err := call(short)
			if !errors.Is(err, netmem.ErrUnavailable) || !errors.As(err, &e) || !strings.HasSuffix(e.Op, " page 3") {
				t.Errorf("without a server: %v", err)
			}
			if short.Err() == nil || !errors.Is(err, context.DeadlineExceeded) {
				t.Errorf("it has not waited until its deadline: %v", err)
			}
			// Longer than the timeout: it is the context that counts.
			long, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			done := make(chan error, 1)
			go func() { done <- call(long) }()
			select {
			case err := <-done:
				t.Errorf("it has not waited for the server: %v", err)
				done <- nil
			case <-time.After(cutTimeout + 500*time.Millisecond):
			}
			plugs[1].SetLink(true)
			if err := <-done; err != nil {
				t.Errorf("once the server is back: %v", err)
			}
		})
	}
	if _, err := c.Fetch(t.Context(), 3, frame); err != nil || !bytes.Equal(frame.Bytes(), content) {
		t.Errorf("after all: %v", err)
	}
	canceled, cancel := context.WithCancel(t.Context())
	plugs[1].SetLink(false)
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := c.Fetch(canceled, 3, frame); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
}

// reconnectCached: calls of the cache, which have no context, wait for the server, which is restarted
// meanwhile, as long as the timeout says, together: once it has been away for so long it is taken for dead.
func reconnectCached(t *testing.T) {
	const page = 4096
	r := newRigBesides(t, emulator.PairOptions{})
	o := netmem.ServerOptions{Page: page, Size: 64 * page}
	s := r.serve(o)
	c := r.open(netmem.Options{Cache: 16 * page, Timeout: 30 * time.Second, ReadAhead: -1}, s)
	content := randomBytes(1, 8*page)
	r.write(c, content, 0)
	r.kill(s)
	back := make(chan *netmem.Server)
	time.AfterFunc(300*time.Millisecond, func() { back <- r.serve(o) })
	r.sync(c)
	s = <-back
	c.Drop()
	got := make([]byte, len(content))
	n, err := c.ReadAt(got, 0)
	if n != len(got) || err != nil || !bytes.Equal(got, content) {
		t.Errorf("read %d bytes: %v", n, err)
	}
	r.close(c)
	dead := r.open(netmem.Options{Cache: 16 * page, Timeout: cutTimeout, ReadAhead: -1}, s)
	r.write(dead, content, 0)
	r.kill(s)
	if err := dead.Sync(); !errors.Is(err, netmem.ErrUnavailable) {
		t.Errorf("sync without a server: %v", err)
	}
	start := time.Now()
	for range 200 {
		if _, err := dead.ReadAt(got[:1], 60*page); !errors.Is(err, netmem.ErrUnavailable) {
			t.Fatalf("read without a server: %v", err)
		}
	}
	if took := time.Since(start); took > time.Minute { // 400 s if each of them had waited
		t.Errorf("200 reads from a server that is dead took %v", took)
	}
}

// reconnectOfAll: both servers of a page are cut off, and who has time waits for one.
func reconnectOfAll(t *testing.T) {
	const page = 4096
	nics, plugs := onSwitch(t, 3)
	r := &rig{TB: t, near: nics[0]}
	var list []*netmem.Server
	for i, nic := range nics[1:] {
		r.far = nic
		list = append(list, r.serve(netmem.ServerOptions{Name: string(rune('a' + i)), Page: page, Size: 16 * page}))
	}
	c := r.open(netmem.Options{Copies: 2, Cache: 8 * page, Timeout: cutTimeout, ReadAhead: -1}, list...)
	content := randomBytes(1, page)
	r.write(c, content, 0)
	r.sync(c)
	frame := r.frame(page)
	for _, plug := range plugs[1:] {
		plug.SetLink(false)
	}
	short, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	if _, err := c.Fetch(short, 0, frame); !errors.Is(err, netmem.ErrUnavailable) && !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("without a server: %v", err)
	}
	time.AfterFunc(200*time.Millisecond, func() { plugs[2].SetLink(true) })
	long, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if _, err := c.Fetch(long, 0, frame); err != nil || !bytes.Equal(frame.Bytes(), content) {
		t.Errorf("with one server again: %v", err)
	}
	plugs[1].SetLink(true)
	r.until("both servers", complete(c))
}
