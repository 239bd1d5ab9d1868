package core

import (
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/internal/datasheet"
)

// replies collects what an engine's part tells its host.
type replies map[uint16]datasheet.Result

func (r replies) Interrupt(uint16) {}
func (r replies) AdminEntry(e *datasheet.AdminEntry) {
	r[e.ID] = e.Result
}

// TestRequests takes requests through what can become of them.
func TestRequests(t *testing.T) {
	c, now := NewTestClock()
	got := replies{}
	q := &requests{Clock: c, Reports: &Reports{host: got}}
	q.clear()
	client := func(n uint32) Remote { return Remote{Endpoint: n, TheirKey: 1} }
	body := datasheet.ConnectBody{TimeoutMS: 10}
	if _, ok := q.arrived(client(1), &body, &datasheet.Header{}); ok {
		t.Error("a request was taken that nobody waits for")
	}
	for command := range uint16(5) {
		if why := q.Wait(command, &datasheet.ConnectWaitBody{TimeoutMS: 100}); why != (Refusal{}) {
			t.Fatalf("wait: %+v", why)
		}
	}
	if !q.Abort(4) || q.Abort(4) || got[4] != datasheet.ResultAborted {
		t.Error("a command was not aborted once")
	}
	for n := range uint32(3) {
		if lost, ok := q.arrived(client(n+1), &body, &datasheet.Header{}); lost || !ok {
			t.Fatalf("request %d: lost %v, taken %v", n+1, lost, ok)
		}
	}
	find := func(id uint32, want datasheet.Result) *request {
		t.Helper()
		r, why := q.find(id)
		if why != want {
			t.Errorf("request %d: %v, not %v", id, why, want)
		}
		return r
	}
	q.answered(find(2, datasheet.ResultSuccess), requestAccepted)
	find(2, datasheet.ResultInvalidParameter)
	find(4, datasheet.ResultInvalidParameter) // there never was one
	*now = 50 * time.Millisecond              // the clients have gone
	c.Look()
	if q.Tick(); len(q.open) != 0 {
		t.Errorf("%d requests are open without a client", len(q.open))
	}
	find(1, datasheet.ResultWithdrawn)
	*now = time.Second
	c.Look()
	if q.Tick(); len(q.waiters) != 0 || got[3] != datasheet.ResultTimeout || got[0] != datasheet.ResultSuccess {
		t.Errorf("commands ended with %v", got)
	}
	for n := range uint32(rememberedRequests) { // the oldest are forgotten
		q.end(&request{id: 100 + n, from: client(100 + n)})
	}
	if q.byID[1] != nil || q.byClient[client(1)] != nil || q.byID[2] == nil {
		t.Error("what has ended is not forgotten, or what is in use is")
	}
}
