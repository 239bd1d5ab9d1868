package pipeline_test

import (
	"math/rand/v2"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// platform is a lone engine with exact costs, in picoseconds.
type platform struct {
	setup, decision int64
	perByte         int64 // outgoing
	arrival         int64 // per byte, incoming
}

// frame lets a policy move a frame that arrives at a steady rate, and returns when
// the last byte has left and in how many transfers.
func (p platform) frame(t *testing.T, d *pipeline.Device, length int) (end int64, transfers int) {
	t.Helper()
	ends, _ := d.Policy().(pipeline.FrameObserver)
	end, transfers = p.move(t, d, length)
	if ends != nil {
		ends.ObserveFrame(length, end-int64(length)*p.arrival)
	}
	return end, transfers
}

// move is frame by a mover that does not say how frames end.
func (p platform) move(t *testing.T, d *pipeline.Device, length int) (end int64, transfers int) {
	t.Helper()
	start(t, d, length)
	learns, _ := d.Policy().(pipeline.Observer)
	told := false
	arrived := func(now int64) int { return int(min(now/p.arrival, int64(length))) }
	progress := func(now int64) {
		if d.Filling() {
			must.OK(t, d.Arrived(arrived(now)))
		}
		if learns != nil && !told && arrived(now) == length {
			learns.ObserveArrival(length, int64(length)*p.arrival)
			told = true
		}
	}
	now := int64(0)
	for {
		want, ok := d.Threshold(arrived(now))
		if !ok {
			t.Fatal("nothing left to do before the frame has left")
		}
		now = max(now, int64(want)*p.arrival)
		if again, _ := d.Threshold(arrived(now)); again > arrived(now) {
			continue
		}
		began := now
		now += p.decision
		progress(now)
		tr, ok := d.Next()
		if !ok {
			t.Fatalf("promised at %d and refused at %d", want, arrived(now))
		}
		transfers++
		now += p.setup + int64(tr.Bytes)*p.perByte
		progress(now)
		if learns != nil {
			view, _ := d.Head()
			learns.Observe(pipeline.Observation{Bytes: tr.Bytes, Elapsed: now - began, Decision: p.decision, Left: view.Length - view.Sent, Queued: view.Queued})
		}
		must.OK(t, d.Done())
		if tr.Last {
			return now, transfers
		}
	}
}

// varied returns costs that differ from p by a share of up to by, and a transfer in 200
// that takes twenty times as long to set up.
func (p platform) varied(r *rand.Rand, by float64) platform {
	vary := func(x int64) int64 { return max(int64(float64(x)*(1+by*(2*r.Float64()-1))), 1) }
	q := platform{setup: vary(p.setup), decision: vary(p.decision), perByte: vary(p.perByte), arrival: vary(p.arrival)}
	if r.IntN(200) == 0 {
		q.setup *= 20
	}
	return q
}

// best is the least end over eager thresholds, found by trying them all.
func (p platform) best(t *testing.T, length int) int64 {
	t.Helper()
	var best int64
	for n := 1; n <= length; n += max(length/400, 1) {
		if end, _ := p.frame(t, device(t, pipeline.Eager{MinPulse: n}, 2), length); best == 0 || end < best {
			best = end
		}
	}
	return best
}

var platforms = map[string]platform{
	"engine as fast as its source": {setup: 4_000_000, decision: 900_000, perByte: 8000, arrival: 8000},
	"engine half as fast":          {setup: 3_000_000, decision: 900_000, perByte: 16000, arrival: 8000},
	"engine twice as fast":         {setup: 3_000_000, decision: 900_000, perByte: 4000, arrival: 8000},
	"modern, slow source":          {setup: 250_000, decision: 100_000, perByte: 140, arrival: 800},
	"modern, fast source":          {setup: 20_000, decision: 100_000, perByte: 80, arrival: 35},
}
