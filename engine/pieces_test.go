package engine_test

import (
	"bytes"
	"testing"
	"time"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/engine"
	"github.com/trapeze-nic/trapeze/internal/datasheet"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// eagerly has receivers place whatever has arrived.
var eagerly = policies(nil, pipeline.Eager{MinPulse: 1})

// breaking lets data frame number which (from 0) arrive 200 bytes at a time, and
// has it end after 700 bytes in the way that end says.
func breaking(which int, end func(n, size int) (int, bool)) func(p *parts) {
	return func(p *parts) {
		seen, last := -1, (*byte)(nil)
		looks := 0
		p.lie = func(size int) (int, bool, bool) {
			if size < 1000 {
				return 0, false, false // not a data frame of these tests
			}
			if p.current != last {
				seen, last, looks = seen+1, p.current, 0
			}
			if seen != which {
				return 0, false, false
			}
			if looks++; 200*looks <= 700 {
				return 200 * looks, false, true
			}
			n, aborted := end(700, size)
			return n, aborted, true
		}
	}
}

// endings are ways in which a frame can fail to arrive.
var endings = []struct {
	name string
	end  func(n, size int) (int, bool)
}{
	{"aborted", func(n, size int) (int, bool) { return n, true }},
	{"aborted with all of its bytes there", func(n, size int) (int, bool) { return size, true }},
	{"counter goes backwards", func(n, size int) (int, bool) { return n - 600, false }},
	{"counter is negative", func(n, size int) (int, bool) { return -1, false }},
	{"counter goes beyond the frame", func(n, size int) (int, bool) { return size + 1, false }},
}

// TestFramesThatBreakOff: the receiver is as if such a frame had not come.
func TestFramesThatBreakOff(t *testing.T) {
	levels(t, func(t *testing.T, level datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
		for _, e := range endings {
			for which := range 3 {
				t.Run(e.name, func(t *testing.T) {
					w, v, p := pair(t, change, eagerly, inParts(breaking(which, e.end)))
					const size = 3*1984 - 100
					s, out := v.descriptor(size)
					r, in := p.descriptor(size)
					copy(out[0], pattern(size, 1))
					p.postRecv(r)
					w.settle()
					v.postSend(s)
					w.run("the send", func() bool { return s.Status().Done() })
					w.settle()
					if n := w.b.e.Counter(datasheet.CounterFramesDropped); level != datasheet.Unreliable && n != 1 || n < 1 {
						t.Errorf("%d frames dropped", n)
					}
					if level == datasheet.Unreliable {
						must.Be(t, r.Status().Done(), false, "a message without a frame: %v", r.Status())
						// Its receive serves the next one.
						again, bufs := v.descriptor(size)
						copy(bufs[0], out[0])
						v.postSend(again)
					}
					w.run("the message", func() bool { return r.Status().Done() })
					if s.Status().Failed() || r.Status().Failed() {
						t.Fatalf("%v, %v", s.Status(), r.Status())
					}
					mustEqual(t, in[0], out[0])
				})
			}
		}
	})
}

// TestFrameThatDoesNotGrow: the wire stands still in the middle of a frame. The
// receiver gives the frame up after the dead time, of which the time in which
// nobody ran it is no part.
func TestFrameThatDoesNotGrow(t *testing.T) {
	stuck := true
	w, v, p := pair(t, unreliable, eagerly, inParts(breaking(0, func(n, size int) (int, bool) {
		if stuck {
			return n, false
		}
		return size, false
	})))
	s, out := v.descriptor(1500)
	r, in := p.descriptor(1500)
	copy(out[0], pattern(1500, 1))
	p.postRecv(r)
	v.postSend(s)
	w.settle()
	if !bytes.Equal(in[0][:700-datasheet.HeaderSize], out[0][:700-datasheet.HeaderSize]) || in[0][700-datasheet.HeaderSize] != 0 {
		t.Fatal("what has arrived has not landed")
	}
	dropped := func() uint64 { return w.b.e.Counter(datasheet.CounterFramesDropped) }
	dead := engine.DefaultTiming().Dead
	pass := func(d time.Duration) {
		for range d / time.Millisecond {
			w.now += time.Millisecond
			w.a.e.Step()
			w.b.e.Step()
			w.b.e.Step()
			w.b.e.Step()
		}
	}
	pass(dead / 2)
	w.now += time.Hour // the host was suspended
	pass(10 * time.Millisecond)
	must.Be(t, dropped(), 0, "the frame was given up too early")
	pass(dead)
	must.Be(t, dropped(), 1, "frames dropped")
	stuck = false
	again, bufs := v.descriptor(1500)
	copy(bufs[0], pattern(1500, 2))
	v.postSend(again)
	w.run("the next message", func() bool { return r.Status().Done() })
	mustEqual(t, in[0], pattern(1500, 2))
}

// TestFrameOfADeadConnection lets a connection end at the receiver while a frame
// of it is arriving. What comes then goes nowhere.
func TestFrameOfADeadConnection(t *testing.T) {
	levels(t, func(t *testing.T, level datasheet.Reliability, change func(*datasheet.CreateEndpointBody)) {
		arrived := 500
		w, v, p := pair(t, change, eagerly, inParts(func(p *parts) {
			p.pace = func(_, size int) int {
				if size < 1000 {
					return size
				}
				return arrived
			}
		}))
		s, out := v.descriptor(1500)
		r, in := p.descriptor(1500)
		copy(out[0], pattern(1500, 1))
		p.postRecv(r)
		w.settle()
		v.postSend(s)
		w.settle()
		must.Be(t, in[0][0], out[0][0], "nothing has landed")
		do(p.n, datasheet.OpDisconnect, datasheet.EndpointBody{Endpoint: p.id})
		must.Be(t, r.Status().Done(), true, "the receive has not come back")
		clear(in[0])
		arrived = 5000
		w.settle()
		must.Same(t, in[0], make([]byte, 1500), "a buffer was written after its descriptor came back")
		do(p.n, datasheet.OpDestroyEndpoint, datasheet.EndpointBody{Endpoint: p.id})
		w.mustServe(1500)
	})
}

// TestChecksumsWaitForTheWhole: a frame with a checksum is not looked at before it
// is whole, nor published.
func TestChecksumsWaitForTheWhole(t *testing.T) {
	checked := func(c *engine.Config, p *port) { p.checksum = true }
	w, v, p := pair(t, nil, checked, eagerly, bursts(64), inParts(func(p *parts) {
		p.pace = func(have, size int) int { return have + 1 + size/9 }
	}))
	before := w.b.e.DMAState().Movers[engine.Receive].Frame
	mustArrive(t, v, p, 7000, 2)
	should.Be(t, len(w.a.parts.copied), 0, "bytes were published before their checksum was there")
	if s := w.b.e.DMAState().Movers[engine.Receive]; s.Frame != before+3 || s.Active {
		t.Errorf("%+v", s)
	}
	// One that is damaged is dropped, and not a byte of it has landed.
	spoilt := 0
	w.a.port.spoil = func(f []byte) [][]byte {
		if len(f) > 1000 && spoilt == 0 {
			spoilt++
			f[datasheet.HeaderSize+5] ^= 1
		}
		return [][]byte{f}
	}
	mustArrive(t, v, p, 7000, 3)
	should.Be(t, w.b.e.Counter(datasheet.CounterChecksumErrors), 1, "checksum errors")
}
