package engine_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// TestMappedDoorbells: doorbells are in memory that is large enough and aligned. A value that makes no sense is judged once, and a
// reset clears it.
func TestMappedDoorbells(t *testing.T) {
	w := newWorld(t)
	limits := w.a.e.Limits
	bar := alignedBytes(int(limits.Endpoints+limits.CQs) * datasheet.PageSize)
	for what, c := range map[string]struct {
		bar   []byte
		taken bool
	}{"too small": {bar[:4096], false}, "misaligned": {bar[1:], false}, "good": {bar, true}} {
		should.Be(t, w.a.e.MapDoorbells(c.bar), c.taken, "a BAR that is %s", what)
	}
	page := datasheet.EndpointPage(w.a.newVI(w.a.memory(0, 0), nil).id)
	datasheet.StoreIndex(datasheet.IndexAt(bar[page:]), 5000)
	datasheet.SetMarks(bar, page/datasheet.PageSize)
	w.run("the event", func() bool { return len(w.a.events) > 0 })
	for range 100 {
		w.a.e.Step()
	}
	if len(w.a.events) != 1 || w.a.events[0].Code != datasheet.EventVIOverrun {
		t.Fatalf("events %+v", w.a.events)
	}
	w.a.e.Reset()
	must.Be(t, *datasheet.IndexAt(bar[page:]), 0, "a doorbell page survived the reset")
}
