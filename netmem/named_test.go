package netmem_test

import (
	"errors"
	"testing"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
	"github.com/trapeze-nic/trapeze/via"
)

// TestMembersByName: servers publish one name, and a client that is given the name has them all. Those
// that come and go later do not change the pool.
func TestMembersByName(t *testing.T) {
	const page = 4096
	r := newRig(t, emulator.PairOptions{})
	names := via.FileNames(t.TempDir() + "/hosts")
	r.near.UseNames(names)
	var published []*via.Publication
	publish := func(name string) {
		s := r.serve(netmem.ServerOptions{Name: name, Page: page, Size: 64 * page})
		p, err := names.Publish(t.Context(), "memory", s.Address(), via.MostLease)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = p.Withdraw() }) // the test may have done so
		published = append(published, p)
	}
	for _, name := range []string{"a", "b", "c"} {
		publish(name)
	}
	o := netmem.Options{Copies: 2, Cache: 16 * page}
	c, err := netmem.Open(t.Context(), r.near, []string{"memory"}, o)
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
	// The members of a pool stay what they were: a client that finds more or fewer is refused.
	publish("d")
	refused := func(what string) {
		t.Helper()
		if other, err := netmem.Open(t.Context(), r.near, []string{"memory"}, o); !errors.Is(err, netmem.ErrOtherPool) {
			t.Errorf("%s: %v, %v", what, other, err)
		}
	}
	refused("a server more")
	for _, p := range published[2:] {
		if err := p.Withdraw(); err != nil {
			t.Fatal(err)
		}
	}
	refused("a server fewer")
	if got := r.read(c, len(want), 0); string(got) != string(want) || len(c.Stats().Servers) != 3 {
		t.Error("the client that was open has other members")
	}
}
