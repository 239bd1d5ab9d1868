package netmem_test

import (
	"context"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/via"
)

// openBesideSilence: a client of servers that hold copies for each other does not wait for
// one that says nothing as long as a server may take for an answer.
func openBesideSilence(t *testing.T) {
	const page = 4096
	nics, plugs := onSwitch(t, 3)
	r := &rig{TB: t, near: nics[0], far: nics[1]}
	s := r.serve(netmem.ServerOptions{Name: "a", Page: page, Size: 16 * page})
	r.far = nics[2]
	gone := r.serve(netmem.ServerOptions{Name: "b", Page: page, Size: 16 * page})
	options := netmem.Options{Copies: 2, Cache: 16 * page}
	first := r.open(options, s, gone)
	want := randomBytes(1, 16*page)
	r.write(first, want, 0)
	r.close(first)
	plugs[2].SetLink(false)
	options.Timeout = time.Hour
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	c, err := netmem.Open(ctx, r.near, []via.Address{s.Address(), gone.Address()}, options)
	if err != nil {
		t.Fatal(err)
	}
	defer r.close(c)
	if ctx.Err() != nil {
		t.Error("it has waited for a server that says nothing")
	}
	if got := r.read(c, len(want), 0); string(got) != string(want) {
		t.Error("other bytes were read than written")
	}
	for _, s := range c.Stats().Servers {
		if s.Complete && s.Address == gone.Address().String() {
			t.Errorf("%+v", s)
		}
	}
}
