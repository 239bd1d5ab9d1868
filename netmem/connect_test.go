package netmem_test

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/via"
)

// openBesideSilence: a client of servers that hold copies for each other does not wait for
// one that says nothing as long as a server may take for an answer.
func openBesideSilence(t *testing.T) {
	const page = 4096
	nics, plugs := onSwitch(t, 3, nil)
	r := &rig{TB: t, near: nics[0], far: nics[1]}
	s := r.serve(netmem.ServerOptions{Name: "a", Page: page, Size: 16 * page})
	r.far = nics[2]
	gone := r.serve(netmem.ServerOptions{Name: "b", Page: page, Size: 16 * page})
	options := netmem.Options{Copies: 2, Store: &r.store, Cache: 16 * page}
	first := r.open(options, s, gone)
	want := randomBytes(1, 16*page)
	r.write(first, want, 0)
	r.close(first)
	plugs[2].SetLink(false)
	options.Timeout = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c := must.Get(netmem.Open(ctx, r.near, []string{s.Address().String(), gone.Address().String()}, options))(t)
	defer r.close(c)
	if ctx.Err() != nil {
		t.Error("it has waited for a server that says nothing")
	}
	for _, s := range c.Stats().Servers {
		if s.Complete && s.Address == gone.Address().String() {
			t.Errorf("%+v", s)
		}
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
		c, err := netmem.Open(t.Context(), r.near, []string{address}, netmem.Options{})
		if err != nil {
			t.Fatalf("%s: %v", address, err)
		}
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
