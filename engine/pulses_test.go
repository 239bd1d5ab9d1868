package engine_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// pump is the host's side of pulses: it reads the progress counters in its own
// memory.
type pump struct {
	n    *node
	mem  []byte
	iova uint64
}

func (n *node) newPump() *pump {
	mem, _, iova := n.alloc(datasheet.ProgressAreaSize)
	n.e.SetProgressArea(iova)
	return &pump{n: n, mem: mem, iova: iova}
}

// progress reads the counters of direction d.
func (p *pump) progress(d engine.Direction) (v datasheet.Progress) {
	p.n.w.t.Helper()
	if !datasheet.ProgressAt(p.mem[int(d)*datasheet.ProgressSize:]).Load(&v) {
		p.n.w.t.Fatal("the counters are being written, by nobody")
	}
	if v.Sent > v.Arrived || v.Arrived > v.Length {
		p.n.w.t.Fatalf("counters %+v", v)
	}
	return v
}

// shows checks the counters.
func (p *pump) shows(d engine.Direction, frame, length, arrived, sent, queued uint32, active bool) {
	p.n.w.t.Helper()
	v := p.progress(d)
	flags := uint32(0)
	if active {
		flags = datasheet.ProgressActive
	}
	want := datasheet.Progress{Sequence: v.Sequence, Frame: frame, Length: length, Arrived: arrived, Sent: sent, Queued: queued, Flags: flags}
	must.Be(p.n.w.t, v, want, "%v counters", d)
}

// TestResetOfAHeldFrame resets both NICs while a frame is held in each direction.
func TestResetOfAHeldFrame(t *testing.T) {
	w, v, p := pair(t, nil, inParts(nil), policies(pipeline.Eager{MinPulse: 9}, nil))
	w.a.e.SetPulses(engine.Transmit, true)
	w.b.e.SetPulses(engine.Receive, true)
	for _, n := range []*node{w.a, w.b} {
		n.e.SetPulseDeadline(time.Hour)
	}
	s, _ := v.descriptor(900)
	r, in := p.descriptor(900)
	p.postRecv(r)
	w.settle()
	v.postSend(s)
	w.settle()
	must.Be(t, w.a.e.Pulse(engine.Transmit, 0, 500), true, "the pulse does not pass")
	w.settle()
	must.OK(t, w.a.e.SetPolicy(engine.Transmit, pipeline.Static{Pulse: 5}))
	w.b.e.Reset()
	w.a.e.Reset()
	clear(in[0])
	w.settle()
	if d := w.a.e.DMAState(); d != (engine.DMAState{}) || w.a.e.Policy(engine.Transmit) != (pipeline.Eager{MinPulse: 9}) {
		t.Errorf("%+v, %+v", d, w.a.e.Policy(engine.Transmit))
	}
	if w.a.parts.aborts != 1 || !bytes.Equal(in[0], make([]byte, 900)) {
		t.Errorf("%d frames aborted", w.a.parts.aborts)
	}
	w.mustServe(900)
}
