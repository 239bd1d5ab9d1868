package pipeline_test

import (
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/pipeline"
	"pgregory.net/rapid"
)

func device(t testing.TB, p pipeline.Policy, buffers int) *pipeline.Device {
	t.Helper()
	return must.Get(pipeline.NewDevice(p, buffers))(t)
}

func start(t testing.TB, d *pipeline.Device, length int) int {
	t.Helper()
	return must.Get(d.Start(length))(t)
}

func TestDeviceRefuses(t *testing.T) {
	for _, buffers := range []int{-1, 0, 1025} {
		should.Refuse(pipeline.NewDevice(pipeline.StoreAndForward{}, buffers))(t, pipeline.ErrParameter, "%d buffers", buffers)
	}
	should.Refuse(pipeline.NewDevice(nil, 1))(t, pipeline.ErrParameter, "no policy")
	d := device(t, pipeline.StoreAndForward{}, 2)
	expect := func(what string, err, want error) {
		t.Helper()
		should.Fail(t, err, want, "%s", what)
	}
	for _, n := range []int{-5, 0, pipeline.MaxFrame + 1} {
		_, err := d.Start(n)
		expect("length", err, pipeline.ErrFrameLength)
	}
	expect("progress without a transfer", d.Arrived(1), pipeline.ErrProgress)
	expect("end without a transfer", d.Done(), pipeline.ErrProgress)
	start(t, d, 100)
	_, err := d.Start(10)
	expect("second start", err, pipeline.ErrBusy)
	must.OK(t, d.Arrived(60))
	expect("counter backwards", d.Arrived(59), pipeline.ErrProgress)
	expect("counter beyond the frame", d.Arrived(101), pipeline.ErrProgress)
	must.OK(t, d.Arrived(100))
	expect("counter after the end", d.Arrived(100), pipeline.ErrProgress)
	start(t, d, 10)
	must.OK(t, d.Arrived(10))
	_, err = d.Start(10)
	expect("third frame in two buffers", err, pipeline.ErrNoBuffer)
	if v, _ := d.Head(); v != (pipeline.View{Length: 100, Arrived: 100, Queued: 1}) {
		t.Errorf("refusals changed the device: %+v", v)
	}
}

// TestBothEdges checks what AMP adds to cut-through: with two buffers the next
// frame begins before the first has left, with one it does not.
func TestBothEdges(t *testing.T) {
	for buffers, overlap := range map[int]bool{1: false, 2: true} {
		d := device(t, pipeline.Eager{MinPulse: 10}, buffers)
		start(t, d, 100)
		must.OK(t, d.Arrived(100))
		should.Be(t, d.CanStart(), overlap, "%d buffers: next frame may start", buffers)
		if _, ok := d.Next(); !ok {
			t.Fatalf("%d buffers: the arrived frame does not leave", buffers)
		}
		must.OK(t, d.Done())
		should.Be(t, d.CanStart(), true, "%d buffers: the buffer is not free after the frame left", buffers)
	}
}

// TestThreshold checks that sleeping until Threshold is the same as polling.
func TestThreshold(t *testing.T) {
	steps := must.Get(pipeline.NewSteps([]pipeline.Step{{Wait: 5, Bytes: 9}, {Wait: 40, Bytes: 50}}))(t)
	for name, p := range map[string]pipeline.Policy{
		"store and forward": pipeline.StoreAndForward{}, "static": pipeline.Static{Pulse: 37},
		"eager": pipeline.Eager{MinPulse: 300}, "steps": steps,
	} {
		polled, slept := device(t, p, 1), device(t, p, 1)
		start(t, polled, 1000)
		start(t, slept, 1000)
		for arrived, want := 0, 0; arrived <= 1000; arrived++ {
			if arrived > 0 {
				must.OK(t, polled.Arrived(arrived))
				must.OK(t, slept.Arrived(arrived))
			}
			if want == 0 {
				var ok bool
				if want, ok = slept.Threshold(arrived); !ok {
					t.Fatalf("%s: nothing to wait for at %d", name, arrived)
				}
			}
			a, goes := polled.Next()
			must.Be(t, goes, arrived >= want, "%s: at %d bytes polling says, threshold was %d", name, arrived, want)
			if !goes {
				continue
			}
			b, ok := slept.Next()
			if !ok || a != b {
				t.Fatalf("%s: %+v by polling, %+v by sleeping", name, a, b)
			}
			must.OK(t, polled.Done())
			must.OK(t, slept.Done())
			if a.Last {
				break
			}
			want = 0
		}
	}
}

// idle never wants to move anything.
type idle struct{}

func (idle) Next(pipeline.View) int { return 0 }

// greedy wants more than there is.
type greedy struct{}

func (greedy) Next(pipeline.View) int { return 1 << 30 }

// TestPoliciesAreHeldToTheRules: a policy can neither overrun what has arrived nor
// keep a finished frame.
func TestPoliciesAreHeldToTheRules(t *testing.T) {
	d := device(t, idle{}, 1)
	start(t, d, 64)
	must.OK(t, d.Arrived(63))
	if tr, ok := d.Next(); ok {
		t.Errorf("a policy that says 0 moved %+v", tr)
	}
	must.OK(t, d.Arrived(64))
	if tr, ok := d.Next(); !ok || tr.Bytes != 64 || !tr.Last {
		t.Errorf("a finished frame stays: %+v %v", tr, ok)
	}
	d = device(t, greedy{}, 1)
	start(t, d, 64)
	must.OK(t, d.Arrived(10))
	if tr, ok := d.Next(); !ok || tr.Bytes != 10 || tr.Last {
		t.Errorf("10 bytes arrived, %+v moves", tr)
	}
}

func anyPolicy(t *rapid.T) (string, pipeline.Policy) {
	name := rapid.SampledFrom(pipeline.PolicyNames()).Draw(t, "policy")
	plan := must.Get(pipeline.ByName(name, pipeline.Parameters{
		MinPulseSend: rapid.IntRange(1, 2000).Draw(t, "send"), MinPulseReceive: rapid.IntRange(1, 2000).Draw(t, "receive"),
		OptimalSend: []pipeline.Step{{Wait: 1, Bytes: 100}}, OptimalReceive: []pipeline.Step{{Wait: 70, Bytes: 100}},
	}))(t)
	if rapid.Bool().Draw(t, "sender") {
		return name, plan.Send()
	}
	return name, plan.Receive()
}

// TestProperties drives a device with any policy through random arrivals: every
// byte leaves once and in order, nothing overruns what has arrived, frames end
// exactly, and eager policies never idle above their threshold.
func TestProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		name, policy := anyPolicy(t)
		buffers := rapid.IntRange(1, 4).Draw(t, "buffers")
		d := must.Get(pipeline.NewDevice(policy, buffers))(t)
		lengths := rapid.SliceOfN(rapid.IntRange(1, 5000), 1, 8).Draw(t, "lengths")
		arrived := make([]int, len(lengths))
		sent := make([]int, len(lengths))
		started, oldest, moving := 0, 0, false
		idle := 0
		for oldest < len(lengths) {
			if idle++; idle > 20_000 {
				t.Fatalf("%s stands still: frame %d, %d of %d bytes arrived, %d sent", name, oldest, arrived[oldest], lengths[oldest], sent[oldest])
			}
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				if started < len(lengths) && d.CanStart() {
					must.Get(d.Start(lengths[started]))(t)
					started++
				}
			case 1:
				if d.Filling() {
					f := started - 1
					arrived[f] += rapid.IntRange(0, lengths[f]-arrived[f]).Draw(t, "arrive")
					must.OK(t, d.Arrived(arrived[f]))
				}
			case 2:
				before, any := d.Head()
				tr, ok := d.Next()
				if e, eager := policy.(pipeline.Eager); eager && any && !moving && !ok && before.Available() >= e.MinPulse {
					t.Fatalf("eager idles with %d bytes, threshold %d", before.Available(), e.MinPulse)
				}
				if !ok {
					continue
				}
				if moving || int(tr.Frame) != oldest || tr.Offset != sent[oldest] || tr.Bytes < 1 {
					t.Fatalf("%s: %+v while frame %d has sent %d, moving %v", name, tr, oldest, sent[oldest], moving)
				}
				sent[oldest] += tr.Bytes
				if sent[oldest] > arrived[oldest] || tr.Last != (sent[oldest] == lengths[oldest]) {
					t.Fatalf("%s: %+v overruns: %d arrived of %d", name, tr, arrived[oldest], lengths[oldest])
				}
				moving = true
			case 3:
				if moving {
					must.OK(t, d.Done())
					moving = false
					if sent[oldest] == lengths[oldest] {
						oldest++
					}
					idle = 0
				}
			}
			must.Be(t, d.Frames(), started-oldest, "frames in the device, started %d, left %d", started, oldest)
		}
	})
}
