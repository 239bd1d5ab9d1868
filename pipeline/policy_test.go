package pipeline_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/trapeze-nic/trapeze/ci/kit/must"
	"github.com/trapeze-nic/trapeze/ci/kit/should"
	"github.com/trapeze-nic/trapeze/pipeline"
)

// pulses returns the transfers of a lone frame if bytes arrive in equal portions
// and each transfer ends before the next portion arrives.
func pulses(t *testing.T, p pipeline.Policy, length, portion int) []int {
	t.Helper()
	d := device(t, p, 1)
	start(t, d, length)
	var sizes []int
	for arrived := 0; arrived < length; {
		arrived = min(arrived+portion, length)
		must.OK(t, d.Arrived(arrived))
		for {
			tr, ok := d.Next()
			if !ok {
				break
			}
			sizes = append(sizes, tr.Bytes)
			must.OK(t, d.Done())
		}
	}
	return sizes
}

func TestPulses(t *testing.T) {
	schedule := must.Get(pipeline.NewSteps([]pipeline.Step{{Wait: 100, Bytes: 100}, {Wait: 200, Bytes: 200}, {Wait: 300, Bytes: 300}}))(t)
	for _, c := range []struct {
		name            string
		policy          pipeline.Policy
		length, portion int
		want            []int
	}{
		{"store and forward", pipeline.StoreAndForward{}, 1000, 100, []int{1000}},
		{"static", pipeline.Static{Pulse: 300}, 1000, 100, []int{300, 300, 300, 100}},
		{"static, cell size", pipeline.Static{Pulse: 48}, 100, 7, []int{48, 48, 4}},
		{"static, pulse above the frame", pipeline.Static{Pulse: 4096}, 100, 10, []int{100}},
		{"eager", pipeline.Eager{MinPulse: 128}, 1000, 100, []int{200, 200, 200, 200, 200}},
		{"eager, tail below the threshold", pipeline.Eager{MinPulse: 400}, 1000, 500, []int{500, 500}},
		{"eager, small tail", pipeline.Eager{MinPulse: 400}, 1010, 500, []int{500, 500, 10}},
		{"schedule, last size repeats", schedule, 1300, 50, []int{100, 200, 300, 300, 300, 100}},
		{"schedule, everything at once", schedule, 700, 700, []int{100, 200, 300, 100}},
		{"table, short frame", pipeline.Table{}, 512, 64, []int{512}},
		{"table, longer frame", pipeline.Table{}, 1000, 50, []int{416, 416, 168}},
	} {
		should.Same(t, pulses(t, c.policy, c.length, c.portion), c.want, "%s", c.name)
	}
}

func TestBadPolicies(t *testing.T) {
	for name, err := range map[string]error{
		"empty schedule":     second(pipeline.NewSteps(nil)),
		"size 0":             second(pipeline.NewSteps([]pipeline.Step{{Wait: 1, Bytes: 1}, {}})),
		"size above a frame": second(pipeline.NewSteps([]pipeline.Step{{Wait: 1, Bytes: pipeline.MaxFrame + 1}})),
		"endless schedule":   second(pipeline.NewSteps(slices.Repeat([]pipeline.Step{{Wait: 1, Bytes: 1}}, pipeline.MaxSchedule+1))),
		"wait above size":    second(pipeline.NewSteps([]pipeline.Step{{Wait: 9, Bytes: 8}})),
		"wait 0":             second(pipeline.NewSteps([]pipeline.Step{{Wait: 0, Bytes: 8}})),
		"negative threshold": second(pipeline.ByName("amp", pipeline.Parameters{MinPulseSend: -1})),
		"optimal, no steps":  second(pipeline.ByName("optimal", pipeline.Parameters{})),
	} {
		var p *pipeline.ParameterError
		if !errors.Is(err, pipeline.ErrParameter) || !errors.As(err, &p) || p.Allowed == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	should.Refuse(pipeline.ByName("fastest", pipeline.Parameters{}))(t, pipeline.ErrUnknownPolicy, "unknown policy")
}

func second[T any](_ T, err error) error { return err }

// TestCatalogue checks the names that users know.
func TestCatalogue(t *testing.T) {
	want := []string{"store-and-forward", "static", "schedule", "table", "send-side", "hierarchical", "cut-through",
		"eager", "pure-cut-through", "amp", "optimal", "auto"}
	should.Same(t, pipeline.PolicyNames(), want)
	steps := []pipeline.Step{{Wait: 1, Bytes: 1}}
	for _, name := range want {
		plan := must.Get(pipeline.ByName(name, pipeline.Parameters{OptimalSend: steps, OptimalReceive: steps}))(t)
		if plan.Name != name || plan.Send() == nil || plan.Receive() == nil {
			t.Errorf("%s: %+v", name, plan)
		}
		should.Be(t, name == "cut-through" || name == "pure-cut-through", plan.Buffers == 1, "%s: %d buffers", name, plan.Buffers)
	}
}
