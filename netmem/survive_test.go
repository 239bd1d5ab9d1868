package netmem_test

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/emulator"
	"github.com/trapeze-nic/trapeze/netmem"
)

// survive: with two copies, a random workload beside a model goes on while servers
// die and come back, one at a time.
func survive(t *testing.T, seed uint64, servers int) {
	const page, pages = 4096, 128
	r := newRigBesides(t, emulator.PairOptions{})
	random := rand.New(rand.NewPCG(seed, 0))
	options := make([]netmem.ServerOptions, servers)
	list := make([]*netmem.Server, servers)
	for i := range list {
		options[i] = netmem.ServerOptions{Name: fmt.Sprintf("server %d", i), Page: page, Size: page * pages}
		list[i] = r.serve(options[i])
	}
	o := netmem.Options{Copies: 2, Cache: 16 * page, Timeout: time.Second, Workers: 4, Witness: netmem.WitnessFile(t.TempDir() + "/witness")}
	c := r.open(o, list...)
	model := make([]byte, page*pages)
	step := func() {
		off := random.IntN(len(model))
		n := min(1+random.IntN(3*page), len(model)-off)
		if random.IntN(4) == 0 { // whole pages
			off, n = off/page*page, page
		}
		if random.IntN(2) == 0 {
			b := randomBytes(random.Uint64(), n)
			r.write(c, b, int64(off))
			copy(model[off:], b)
		} else if got := r.read(c, n, int64(off)); !bytes.Equal(got, model[off:off+n]) {
			t.Fatalf("%d bytes at %d are not what was written", n, off)
		}
		if random.IntN(20) == 0 {
			r.sync(c)
		}
	}
	for round := range 3 {
		victim := random.IntN(servers)
		for range 100 {
			step()
		}
		r.kill(list[victim])
		for range 100 {
			step()
		}
		list[victim] = r.serve(options[victim])
		for range 100 {
			step()
		}
		r.until("the server to have all", complete(c))
		if round == 0 && c.Stats().Repaired == 0 {
			t.Error("nothing was copied to a server that came back")
		}
	}
	r.sync(c)
	c.Drop()
	if got := r.read(c, len(model), 0); !bytes.Equal(got, model) {
		t.Error("at the end it is not what was written")
	}
	// Each server alone has all that it should have: the other clients see the same.
	other := r.open(o, list...)
	r.kill(list[0])
	if got := r.read(other, len(model), 0); !bytes.Equal(got, model) {
		t.Error("the other servers have not what was written")
	}
}
