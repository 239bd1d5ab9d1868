package etcd_test

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/via"
	"github.com/trapeze-nic/trapeze/via/etcd"
)

// TestStore: of two swaps of one revision the first wins, also where there is no value yet.
func TestStore(t *testing.T) {
	c := dial(t, serve(t))
	a, b := etcd.NewStore(c, "/pools/a"), etcd.NewStore(c, "/pools/a")
	value, revision, err := a.Get(t.Context())
	if err != nil || value != nil || revision != 0 {
		t.Fatalf("before all: %q, %d, %v", value, revision, err)
	}
	for _, round := range []string{"first", "next", "last"} {
		must.OK(t, errors.Join(a.Swap(t.Context(), []byte(round), revision), b.Swap(t.Context(), []byte("too late"), revision)))
		value, now, err := b.Get(t.Context())
		if err != nil || string(value) != round || now <= revision {
			t.Fatalf("%s: %q, %d after %d, %v", round, value, now, revision, err)
		}
		revision = now
	}
	if _, revision, err := etcd.NewStore(c, "/pools/b").Get(t.Context()); err != nil || revision != 0 {
		t.Errorf("another key: %d, %v", revision, err)
	}
}

// TestMemory: a pool whose configuration is in etcd goes on without a server that has ended, and gives it all pages
// when another one takes its place.
func TestMemory(t *testing.T) {
	c := dial(t, serve(t))
	one, other := must.Two(emulator.Pair(emulator.PairOptions{}))(t)
	var nics []*via.NIC
	for _, d := range []*emulator.Device{one, other} {
		nic := must.Get(via.OpenDevice(t.Context(), d, via.Options{OnError: func(via.AsyncError) {}}))(t)
		t.Cleanup(func() {
			should.OK(t, nic.Close())
		})
		nics = append(nics, nic)
	}
	const page = 4096
	servers, addresses := map[string]*netmem.Server{}, []string(nil)
	start := func(name string) {
		s := must.Get(netmem.NewServer(t.Context(), nics[1], netmem.ServerOptions{Name: name, Page: page, Size: 16 * page}))(t)
		t.Cleanup(func() { _ = s.Close() }) // the test may have closed it
		servers[name] = s
	}
	for _, name := range []string{"a", "b"} {
		start(name)
		addresses = append(addresses, servers[name].Address().String())
	}
	client := must.Get(netmem.Open(t.Context(), nics[0], addresses, netmem.Options{Copies: 2, Store: etcd.NewStore(c, "/pools/memory"), Cache: 8 * page, ReadAhead: -1, Timeout: 2 * time.Second}))(t)
	defer func() {
		should.OK(t, client.Close())
	}()
	put := func(b byte) {
		t.Helper()
		must.Get(client.WriteAt(bytes.Repeat([]byte{b}, 16*page), 0))(t)
		must.OK(t, client.Sync())
	}
	configuration := func() string {
		got, err := c.Get(t.Context(), "/pools/memory")
		if err != nil || len(got.Kvs) != 1 {
			t.Fatal(got, err)
		}
		return string(got.Kvs[0].Value)
	}
	put(1)
	if first := configuration(); !strings.Contains(first, `"epoch":1,`) || strings.Contains(first, `"joining":true`) {
		t.Errorf("the first configuration is %s", first)
	}
	for _, name := range []string{"a", "b"} {
		must.OK(t, servers[name].Close())
		put(name[0])
		start(name)
		for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
			if s := client.Stats().Servers; s[0].Complete && s[1].Complete {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("%s is not complete: %s", name, configuration())
			}
		}
		client.Drop()
		got := make([]byte, 16*page)
		if _, err := client.ReadAt(got, 0); err != nil || bytes.Count(got, []byte(name[:1])) != len(got) {
			t.Errorf("after %s was away: %v, %v", name, got[0], err)
		}
	}
}
