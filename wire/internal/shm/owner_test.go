package shm_test

import (
	"math/rand/v2"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/wire/internal/shm"
)

// TestRevokeOfOwner: to take back what one connection has lent leaves the frames alone
// that lend on behalf of others, and those that lend nothing, wherever they are on their
// way: not shown yet, waiting, or being read.
func TestRevokeOfOwner(t *testing.T) {
	checkLeaks(t)
	a, b, id, _ := lending(t, shm.Options{Share: true, Ring: shm.MinRing, MTU: 4096}, page)
	r := rand.New(rand.NewPCG(1, 2))
	type frame struct {
		tag     byte
		owner   uint32
		revoked bool
	}
	tag := byte(0)
	for round := range 3000 { // of more frames than the ring has words
		var sent []frame
		for range 1 + r.IntN(8) {
			tag++
			f := frame{tag: tag, owner: uint32(r.IntN(4))} // zero: it lends nothing
			buf := a.Reserve(64)
			must.Be(t, buf == nil, false, "no room")
			buf[0] = f.tag
			a.Commit()
			if f.owner != 0 {
				a.Lent(f.owner)
			}
			sent = append(sent, f)
			if r.IntN(3) == 0 {
				a.Flush()
			}
		}
		revoke := func() {
			owner := uint32(1 + r.IntN(3))
			a.Revoke(owner)
			for i := range sent {
				sent[i].revoked = sent[i].revoked || sent[i].owner == owner
			}
		}
		if r.IntN(2) == 0 {
			revoke()
		}
		a.Flush()
		for len(sent) > 0 {
			buf := b.Receive()
			// A frame that was void before it was seen is left out.
			for len(sent) > 0 && sent[0].revoked && (buf == nil || buf[0] != sent[0].tag) {
				sent = sent[1:]
			}
			if buf == nil && len(sent) == 0 {
				break
			}
			must.Hold(t, buf != nil && buf[0] == sent[0].tag, "round %d: frame %+v does not come", round, sent[0])
			must.Be(t, b.Borrow(id, 0, page) == nil, false, "it cannot be borrowed")
			if r.IntN(4) == 0 {
				revoke()
			}
			if valid := b.Return(); valid == sent[0].revoked {
				t.Fatalf("round %d: frame %+v, valid %v", round, sent[0], valid)
			}
			b.Release()
			sent = sent[1:]
		}
		must.Be(t, b.Receive() != nil, false, "round %d: one frame more", round)
	}
}
