package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// cq is a completion queue and its host side.
type cq struct {
	n       *node
	id      uint32
	log2    uint8
	entries []datasheet.Completion
	index   *uint32
	taken   uint32
}

func (n *node) newCQ(log2 uint8, vector uint16) *cq {
	mem, _, iova := n.alloc(datasheet.CompletionSize << log2)
	word, _, at := n.alloc(4)
	c := &cq{n: n, log2: log2, entries: datasheet.CompletionsAt(mem), index: datasheet.IndexAt(word)}
	r := do(n, datasheet.OpCreateCQ, datasheet.CreateCQBody{IOVA: iova, IndexIOVA: at, Vector: vector, Log2: log2})
	c.id = datasheet.Reply[datasheet.CQBody](r).CQ
	return c
}

// next takes the oldest entry, if there is one.
func (c *cq) next() (datasheet.Completion, bool) {
	e := &c.entries[c.taken&uint32(len(c.entries)-1)]
	if e.LoadFlags()&datasheet.CompletionPhase != datasheet.PhaseOf(c.taken, c.log2) {
		return datasheet.Completion{}, false
	}
	c.taken++
	datasheet.StoreIndex(c.index, c.taken)
	return *e, true
}

func (c *cq) arm() {
	c.n.e.Doorbell(datasheet.CQPage(c.n.e.Limits.Endpoints, c.id)+datasheet.DoorbellCQArm, datasheet.ArmWord(c.taken))
}

// TestNumbersRest makes and destroys objects: a number or handle does not come
// back soon, and a doorbell for the old queue does not reach the new one.
func TestNumbersRest(t *testing.T) {
	w := newWorld(t, memory(roomy))
	old := w.a.newCQ(4, 5)
	do(w.a, datasheet.OpDestroyCQ, datasheet.CQBody{CQ: old.id})
	seen := map[uint32]bool{old.id: true}
	for range w.a.e.Limits.CQs - 1 {
		c := w.a.newCQ(1, 5)
		if seen[c.id] {
			t.Fatalf("completion queue %d was given out again", c.id)
		}
		seen[c.id] = true
		do(w.a, datasheet.OpDestroyCQ, datasheet.CQBody{CQ: c.id})
	}
	must.Be(t, w.a.newCQ(4, 5).id, old.id, "a number is not given out any more")
	handles := map[uint32]bool{}
	for range 20_000 {
		h := w.a.memory(0, 0)
		must.Be(t, handles[h], false, "handle %#x was given out again after %d", h, len(handles))
		handles[h] = true
		do(w.a, datasheet.OpDeregisterMemory, datasheet.MemoryBody{Handle: h})
	}
}
