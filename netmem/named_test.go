package netmem_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/via"
)

// TestMembersByName: servers publish one name, and a client that is given the name has them all.
func TestMembersByName(t *testing.T) {
	const page = 4096
	r := newRig(t, emulator.PairOptions{})
	names := via.FileNames(t.TempDir() + "/hosts")
	r.near.UseNames(names)
	for _, name := range []string{"a", "b", "c"} {
		s := r.serve(netmem.ServerOptions{Name: name, Page: page, Size: 64 * page})
		p, err := names.Publish(t.Context(), "memory", s.Address(), via.MostLease)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Withdraw()
	}
	c, err := netmem.Open(t.Context(), r.near, []string{"memory"}, netmem.Options{Copies: 2, Cache: 16 * page})
	if err != nil {
		t.Fatal(err)
	}
	defer r.close(c)
	want := randomBytes(1, 64*page)
	r.write(c, want, 0)
	if got := r.read(c, len(want), 0); string(got) != string(want) {
		t.Error("other bytes were read than written")
	}
	if n := len(c.Stats().Servers); n != 3 {
		t.Errorf("%d servers", n)
	}
}
