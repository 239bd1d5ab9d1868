package pipeline_test

import (
	"errors"
	"slices"
	"testing"

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
		must(t, d.Arrived(arrived))
		for {
			tr, ok := d.Next()
			if !ok {
				break
			}
			sizes = append(sizes, tr.Bytes)
			must(t, d.Done())
		}
	}
	return sizes
}

func TestPulses(t *testing.T) {
	schedule, err := pipeline.NewSchedule([]int{100, 200, 300})
	must(t, err)
	table, err := pipeline.NewTable([]pipeline.TableRow{{UpTo: 500, Fragment: 500}, {UpTo: 1000, Fragment: 400}})
	must(t, err)
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
		{"table, short frame", table, 400, 50, []int{400}},
		{"table, longer frame", table, 1000, 50, []int{400, 400, 200}},
		{"table, beyond its last row", table, 1300, 50, []int{400, 400, 400, 100}},
	} {
		if got := pulses(t, c.policy, c.length, c.portion); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func TestBadPolicies(t *testing.T) {
	many := make([]int, pipeline.MaxSchedule+1)
	for i := range many {
		many[i] = 1
	}
	for name, err := range map[string]error{
		"empty schedule":     second(pipeline.NewSchedule(nil)),
		"size 0":             second(pipeline.NewSchedule([]int{128, 0})),
		"size above a frame": second(pipeline.NewSchedule([]int{pipeline.MaxFrame + 1})),
		"endless schedule":   second(pipeline.NewSchedule(many)),
		"wait above size":    second(pipeline.NewSteps([]pipeline.Step{{Wait: 9, Bytes: 8}})),
		"wait 0":             second(pipeline.NewSteps([]pipeline.Step{{Wait: 0, Bytes: 8}})),
		"empty table":        second(pipeline.NewTable(nil)),
		"descending table":   second(pipeline.NewTable([]pipeline.TableRow{{UpTo: 9, Fragment: 1}, {UpTo: 9, Fragment: 1}})),
		"fragment 0":         second(pipeline.NewTable([]pipeline.TableRow{{UpTo: 9}})),
		"negative threshold": second(pipeline.ByName("amp", pipeline.Parameters{MinPulseSend: -1})),
		"optimal, no steps":  second(pipeline.ByName("optimal", pipeline.Parameters{})),
	} {
		var p *pipeline.ParameterError
		if !errors.Is(err, pipeline.ErrParameter) || !errors.As(err, &p) || p.Allowed == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	_, err := pipeline.ByName("fastest", pipeline.Parameters{})
	if !errors.Is(err, pipeline.ErrUnknownPolicy) {
		t.Errorf("unknown policy: %v", err)
	}
}

func second[T any](_ T, err error) error { return err }

// TestCatalogue checks the names that users know.
func TestCatalogue(t *testing.T) {
	want := []string{"store-and-forward", "static", "schedule", "table", "send-side", "hierarchical", "cut-through",
		"eager", "pure-cut-through", "amp", "optimal", "auto"}
	if got := pipeline.PolicyNames(); !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	steps := []pipeline.Step{{Wait: 1, Bytes: 1}}
	for _, name := range want {
		plan, err := pipeline.ByName(name, pipeline.Parameters{OptimalSend: steps, OptimalReceive: steps})
		must(t, err)
		if plan.Name != name || plan.Send() == nil || plan.Receive() == nil {
			t.Errorf("%s: %+v", name, plan)
		}
		lone := name == "cut-through" || name == "pure-cut-through"
		if lone != (plan.Buffers == 1) {
			t.Errorf("%s: %d buffers", name, plan.Buffers)
		}
	}
}
