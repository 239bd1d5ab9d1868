package engine_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// logRing is the host's side of a log.
type logRing struct {
	n       *node
	log2    uint8
	records []datasheet.DMARecord
	iova    uint64
	taken   uint32
}

func (n *node) newLog(log2 uint8) *logRing {
	n.w.t.Helper()
	mem, _, iova := n.alloc(datasheet.DMARecordSize << log2)
	clear(mem)
	l := &logRing{n: n, log2: log2, records: datasheet.DMARecordsAt(mem), iova: iova}
	if !n.e.StartLog(iova, log2) {
		n.w.t.Fatal("the log does not start")
	}
	return l
}

// next takes the next record.
func (l *logRing) next() (r datasheet.DMARecord, ok bool) {
	at := &l.records[l.taken&(1<<l.log2-1)]
	if at.LoadFlags()&datasheet.CompletionPhase != datasheet.PhaseOf(l.taken, l.log2) {
		return r, false
	}
	l.taken++
	return *at, true
}

// all takes all records, and tells the NIC. They are told apart by engine, as
// "packet:bytes".
func (l *logRing) all() (by [datasheet.DMAEngineCount][]string) {
	l.n.w.t.Helper()
	var last [datasheet.DMAEngineCount]uint64
	for r, ok := l.next(); ok; r, ok = l.next() {
		if r.Engine >= datasheet.DMAEngineCount || r.Start > r.End || r.Start < last[r.Engine] {
			l.n.w.t.Fatalf("record %+v after one that ended at %d", r, last[r.Engine])
		}
		last[r.Engine] = r.End
		by[r.Engine] = append(by[r.Engine], fmt.Sprintf("%d:%d", r.Packet, r.Bytes))
	}
	if !l.n.e.TakeLog(l.taken) {
		l.n.w.t.Fatalf("%d records are not taken", l.taken)
	}
	return by
}

// ticking has time pass at each look at the clock.
func ticking(c *engine.Config, _ *port) {
	clock := c.Clock
	now := time.Duration(0)
	c.Clock = func() time.Duration { now += time.Nanosecond; return clock() + now }
}

// policies sets the policies of both NICs.
func policies(send, receive pipeline.Policy) option {
	return func(c *engine.Config, _ *port) { c.Pipeline.Send, c.Pipeline.Receive = send, receive }
}

func bursts(n int) option { return func(c *engine.Config, _ *port) { c.Pipeline.Burst = n } }

// TestPoliciesDecide sends one message of 2000 bytes, which is a frame of 1984
// and one of 16, and looks at the transfers.
func TestPoliciesDecide(t *testing.T) {
	whole := []string{"0:1984", "1:16"}
	halves := []string{"0:1000", "0:984", "1:16"}
	for _, tt := range []struct {
		name          string
		send, receive pipeline.Policy
		options       []option
		net, host     []string
	}{
		{name: "defaults", net: whole, host: whole},
		{name: "store and forward", send: pipeline.StoreAndForward{}, receive: pipeline.StoreAndForward{}, net: whole, host: whole},
		{name: "static", send: pipeline.Static{Pulse: 1000}, receive: pipeline.Static{Pulse: 1000}, net: halves, host: halves},
		{name: "each its own", send: pipeline.Static{Pulse: 1000}, receive: pipeline.Eager{MinPulse: 1}, net: halves, host: whole},
		{name: "bursts", send: pipeline.Eager{MinPulse: 100}, receive: pipeline.Eager{MinPulse: 1}, options: []option{bursts(500)},
			net: []string{"0:500", "0:500", "0:500", "0:484", "1:16"}, host: whole},
		{name: "bursts below the threshold", send: pipeline.Eager{MinPulse: 900}, options: []option{bursts(500)},
			net: []string{"0:1000", "0:984", "1:16"}, host: whole},
		{name: "learning", send: pipeline.NewAuto(pipeline.EarlyBytes), receive: pipeline.NewAuto(pipeline.FewTransfers), net: whole, host: whole},
		// In pieces the receiver sees what the sender has published.
		{name: "defaults in pieces", options: []option{inParts(nil)}, net: whole, host: whole},
		{name: "bursts in pieces", send: pipeline.Eager{MinPulse: 1}, receive: pipeline.Eager{MinPulse: 1}, options: []option{inParts(nil), bursts(1000)},
			net: halves, host: whole},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w, v, p := pair(t, nil, append(tt.options, policies(tt.send, tt.receive), ticking)...)
			a, b := w.a.newLog(6), w.b.newLog(6)
			mustArrive(t, v, p, 2000, 1)
			want := [datasheet.DMAEngineCount][]string{datasheet.EngineHostTx: whole, datasheet.EngineNetTx: tt.net}
			if got := a.all(); !slices.EqualFunc(got[:], want[:], slices.Equal) {
				t.Errorf("the sender logs %q, want %q", got, want)
			}
			want = [datasheet.DMAEngineCount][]string{datasheet.EngineNetRcv: whole, datasheet.EngineHostRcv: tt.host}
			if got := b.all(); !slices.EqualFunc(got[:], want[:], slices.Equal) {
				t.Errorf("the receiver logs %q, want %q", got, want)
			}
		})
	}
}

// TestLogOverflow fills a ring, and goes on once the host has made room.
func TestLogOverflow(t *testing.T) {
	w, v, p := pair(t, nil)
	l := w.a.newLog(datasheet.MinLogLog2)
	sent := 0
	send := func(n int) {
		t.Helper()
		for range n {
			if s, r, _ := message(v, p, []byte("hello")); s.Failed() || r.Failed() {
				t.Fatalf("%v, %v", s, r)
			}
			sent++
		}
	}
	send(12) // 24 records into 16
	if s := w.a.e.DMAState(); s.LogProducer != 16 || s.LogLost != 8 || !s.Log {
		t.Fatalf("%+v", s)
	}
	if w.a.e.TakeLog(17) || w.a.e.TakeLog(^uint32(0)) {
		t.Error("records that were not written are taken")
	}
	should.Be(t, l.all()[datasheet.EngineNetTx][7], "7:5")
	should.Be(t, w.a.e.TakeLog(15), false, "records are given back")
	send(3) // the ring wraps, its phase changes
	should.Same(t, l.all()[datasheet.EngineHostTx], []string{"12:5", "13:5", "14:5"})
	w.a.e.StopLog()
	send(1)
	if s := w.a.e.DMAState(); s.Log || s.LogProducer != 22 || w.a.e.TakeLog(22) {
		t.Errorf("%+v after the end of the log", s)
	}
	// A new log begins at packet 0.
	l = w.a.newLog(datasheet.MinLogLog2)
	send(1)
	if got := l.all(); !slices.Equal(got[datasheet.EngineNetTx], []string{"0:5"}) || w.a.e.DMAState().LogLost != 0 {
		t.Errorf("%q, %+v", got, w.a.e.DMAState())
	}
	w.a.e.Reset()
	should.Be(t, w.a.e.DMAState(), engine.DMAState{}, "after a reset")
}

// TestLogFault has the bus refuse the log: the log ends, messages do not.
func TestLogFault(t *testing.T) {
	w, v, p := pair(t, nil)
	l := w.a.newLog(6)
	if s, r, _ := message(v, p, []byte("a")); s.Failed() || r.Failed() {
		t.Fatalf("%v, %v", s, r)
	}
	w.a.breakBus(func(iova uint64) bool { return iova >= l.iova && iova < l.iova+datasheet.DMARecordSize<<6 })
	if s, r, got := message(v, p, pattern(5000, 2)); s.Failed() || r.Failed() || !slices.Equal(got, pattern(5000, 2)) {
		t.Fatalf("%v, %v", s, r)
	}
	if s := w.a.e.DMAState(); s.Log || s.LogProducer != 2 || w.a.e.Counter(datasheet.CounterDMAFaults) != 1 {
		t.Fatalf("%+v, %d faults", s, w.a.e.Counter(datasheet.CounterDMAFaults))
	}
}
